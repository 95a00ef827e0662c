"""Residency of a device whose kernels change it themselves, as a prompt and the host see it.

While a decode step runs, the tables belong to the kernels; between steps they are read, changed and
written back here as a whole. Knows slots and worth, not tokens or copies. Called by
`engine.moe.device_experts` and, during a prompt, by `engine.moe.device_prefill` through it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine.moe.arena import ExpertArena
from engine.moe.slots import SlotId
from kernels.cuda.moe_state import MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Residency

# A use in a prompt counts less than one in decode: prompts name what replies do not go on with.
# 0.02 a use won over 0 and over 1 in replays of a 512-token prompt; a longer one weighs no more.
PROMPT_USE = 0.02
PROMPT_TOKENS = 512


class DeviceResidency:
    """A prompt's view of the tables; see `engine.moe.device_prefill.Residency`.

    `begin`, then any number of `credit` and `admit`, then `commit` or `abandon`. Whoever reads the
    tables or lets a step run in between calls `abandon` first: a prompt may have failed anywhere.
    """

    def __init__(self, state: MoeState, arena: ExpertArena, num_experts: int) -> None:
        self._state, self._arena, self._num_experts = state, arena, num_experts
        self._tables = state.snapshot()
        self._admitted: list[int] = []
        self._shares: dict[int, int] = {}  # by layer, free slots that it may still take
        self._is_open = False  # a prompt has begun, and may have overwritten slots

    @property
    def is_complete(self) -> bool:
        """Whether every expert of the model lies in a slot: nothing is left to choose."""
        return bool((self._tables.slot_of != NO_SLOT).all())

    def begin(self) -> None:
        """Read the tables; waits for the steps in flight. A prompt that failed before is undone."""
        self.abandon()
        self._tables = self._state.snapshot()
        self._admitted, self._shares, self._is_open = [], {}, True

    def resident(self, moe_layer: int) -> Mapping[int, int]:
        """Return expert -> slot of the layer's experts that lie there as a whole."""
        tables, first = self._tables, moe_layer * self._num_experts
        part = slice(first, first + self._num_experts)
        whole = (tables.slot_of[part] != NO_SLOT) & (tables.valid[part] == tables.num_units)
        return {int(e): int(tables.slot_of[first + e]) for e in np.flatnonzero(whole)}

    def slot_address(self, slot: int) -> int:
        """Return where a slot's bytes begin on the device."""
        return self._arena.slot(SlotId(slot)).data_ptr()

    def slot(self, slot: int) -> torch.Tensor:
        """Return a slot's bytes, uint8 [record_bytes]."""
        return self._arena.slot(SlotId(slot))

    def credit(self, moe_layer: int, uses: Sequence[int], num_tokens: int) -> None:
        """Count a prompt's routes to one layer's experts, so that hot ones keep their slots."""
        each = PROMPT_USE * min(1.0, PROMPT_TOKENS / max(1, num_tokens))
        amounts = np.zeros(len(self._tables.slot_of), np.float32)
        first = moe_layer * self._num_experts
        amounts[first : first + self._num_experts] = np.asarray(uses, np.float32) * each
        self._tables.credit(amounts)

    def admit(self, records: Sequence[int], hotness: Sequence[float]) -> Mapping[int, int]:
        """Give slots to one layer's records, hottest first; the caller fills them at once.

        Free slots go first, this layer's share of them; then, to those that the prompt's last
        tokens used, slots of experts worth less, in this layer or an earlier one.

        Returns: record -> slot, for those that got one.
        """
        tables = self._tables
        order = sorted(zip(records, hotness, strict=True), key=lambda one: -one[1])
        wanted = [one for one in order if tables.slot_of[one[0]] == NO_SLOT]
        if not wanted:
            return {}
        moe_layer, worth = wanted[0][0] // self._num_experts, tables.worth()
        free = self._share_of_free(moe_layer)
        victims = iter(self._victims(moe_layer, set(records), worth))
        given: dict[int, int] = {}
        for record, heat in wanted:
            if free:
                slot = free.pop(0)
                self._shares[moe_layer] -= 1
            else:
                victim = next(victims, None) if heat > 0 else None
                if victim is None or worth[victim] >= worth[record]:
                    break
                slot = _evict(tables, victim)
            tables.owner[slot], tables.slot_of[record] = record, slot
            tables.valid[record] = tables.num_units
            given[record] = slot
        self._admitted += given
        return given

    def commit(self) -> None:
        """Put the changed tables into force; the copies were queued before."""
        self._is_open = False
        self._state.install(self._tables)

    def abandon(self) -> None:
        """Forget who got a slot in a prompt that did not end: its copy may be missing.

        Who lost a slot stays without: it may be overwritten.
        """
        if not self._is_open:
            return
        self._is_open = False
        for record in self._admitted:
            if self._tables.slot_of[record] != NO_SLOT:
                _evict(self._tables, record)
        self._admitted = []
        self._state.install(self._tables)

    def _share_of_free(self, moe_layer: int) -> list[int]:
        """Return the free slots that this layer may take: later layers get as many each."""
        tables = self._tables
        free: list[int] = np.flatnonzero(tables.owner[: tables.num_slots] == FREE).tolist()
        layers_left = len(tables.slot_of) // self._num_experts - moe_layer
        share = self._shares.setdefault(moe_layer, -(-len(free) // layers_left))
        return free[:share]

    def _victims(self, moe_layer: int, keep: set[int], worth: NDArray[np.int64]) -> list[int]:
        """Return who may lose a slot, of least worth first: later layers still count on theirs."""
        limit = (moe_layer + 1) * self._num_experts
        tables = self._tables
        owners = tables.owner[: tables.num_slots]
        candidates = [int(r) for r in owners if r not in (FREE,) and r < limit and r not in keep]
        return sorted(candidates, key=lambda record: (worth[record], record))


def _evict(tables: Residency, record: int) -> int:
    """Take a record's slot away; returns it."""
    slot = int(tables.slot_of[record])
    tables.owner[slot], tables.slot_of[record], tables.valid[record] = FREE, NO_SLOT, 0
    return slot
