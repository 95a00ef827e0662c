"""Residency of a device whose kernels change it themselves, as a prompt and the host see it.

While a decode step runs, the tables belong to the kernels; between steps they are read, changed and
written back here as a whole. Knows slots and worth, not tokens or copies. Called by
`engine.moe.device_experts` and, during a prompt, by `engine.moe.device_prefill` through it.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine.moe.arena import ExpertArena
from engine.moe.prompt_routes import PROMPT_LOSS
from engine.moe.slots import SlotId
from kernels.cuda.moe_state import MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Residency

PROMPT_USE = 0.3  # of a use in decode: prompts name what replies do not go on with
_LEAST_SCORE = np.float32(2.0**-100)  # of what was ever used


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
        self._is_changed = False  # by that prompt

    @property
    def has_room_for_all(self) -> bool:
        """Whether every expert has a slot or finds a free one: nothing is left to choose."""
        return self._tables.num_slots >= len(self._tables.slot_of)

    def begin(self) -> None:
        """Read the tables; waits for the steps in flight. A prompt that failed before is undone."""
        self.abandon()
        self._tables = self._state.snapshot()
        self._admitted, self._shares, self._is_open = [], {}, True
        self._is_changed = False

    def slots(self) -> NDArray[np.int32]:
        """Return each expert's slot, NO_SLOT unless it lies there as a whole: a copy, [L, E]."""
        tables = self._tables
        whole = tables.valid == tables.num_units
        return np.where(whole, tables.slot_of, np.int32(NO_SLOT)).reshape(-1, self._num_experts)

    def addresses(self, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where slots' bytes begin on the device."""
        return self._arena.addresses(slots)

    def slot(self, slot: int) -> torch.Tensor:
        """Return a slot's bytes, uint8 [record_bytes]."""
        return self._arena.slot(SlotId(slot))

    def credit(
        self, moe_layer: int, uses: Sequence[float] | NDArray[np.float32], num_tokens: int
    ) -> None:
        """Count a prompt's routes to one layer's experts, so that hot ones keep their slots.

        `uses` are sums over the prompt's tokens, each weighing `PROMPT_LOSS` less than the next;
        what was counted before them fades likewise. Both figures won replays of recorded routes
        from several places of a text.
        """
        amounts = np.zeros(len(self._tables.slot_of), np.float32)
        first = moe_layer * self._num_experts
        scores = self._tables.score[first : first + self._num_experts]
        faded = np.maximum(scores * np.float32(PROMPT_LOSS**num_tokens), _LEAST_SCORE)
        scores[:] = np.where(scores > 0, faded, scores)
        amounts[first : first + self._num_experts] = np.asarray(uses, np.float32) * PROMPT_USE
        self._tables.credit(amounts)
        self._is_changed = True

    def admit(self, records: Sequence[int], hotness: Sequence[float]) -> Mapping[int, int]:
        """Give slots to one layer's records, hottest first; the caller fills them at once.

        Equally hot ones go by worth. Free slots go first, this layer's share of them; then, to
        those that the prompt's last tokens used, slots of this layer's experts that are worth less.

        Returns: record -> slot, for those that got one.
        """
        tables, offered = self._tables, np.asarray(records, np.int64)
        homeless = tables.slot_of[offered] == NO_SLOT
        wanted, heat = offered[homeless], np.asarray(hotness, np.float64)[homeless]
        if not len(wanted):
            return {}
        moe_layer, worth = int(wanted[0]) // self._num_experts, tables.worth(wanted)
        free, victims = self._share_of_free(moe_layer), self._victims(moe_layer, offered)
        given: dict[int, int] = {}
        for at in np.lexsort((-worth, -heat)).tolist():
            record = int(wanted[at])
            if free:
                slot = free.pop(0)
                self._shares[moe_layer] -= 1
            else:
                victim, least = next(victims, (FREE, 0)) if heat[at] > 0 else (FREE, 0)
                if victim == FREE or least >= worth[at]:
                    break
                slot = _evict(tables, victim)
            tables.owner[slot], tables.slot_of[record] = record, slot
            tables.valid[record] = tables.num_units
            given[record] = slot
        self._admitted += given
        self._is_changed |= bool(given)
        return given

    def commit(self) -> None:
        """Put the changed tables into force; the copies were queued before."""
        self._is_open = False
        if self._is_changed:
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
        if self._is_changed:
            self._state.install(self._tables)

    def _share_of_free(self, moe_layer: int) -> list[int]:
        """Return the free slots that this layer may take: later layers get as many each."""
        tables = self._tables
        free: list[int] = np.flatnonzero(tables.owner[: tables.num_slots] == FREE).tolist()
        if self.has_room_for_all:
            self._shares[moe_layer] = len(free)
        layers_left = len(tables.slot_of) // self._num_experts - moe_layer
        share = self._shares.setdefault(moe_layer, -(-len(free) // layers_left))
        return free[:share]

    def _victims(self, moe_layer: int, keep: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Yield who may lose a slot with its worth, the least first; sorted only if one is asked.

        Of this layer only. Later layers still count on theirs; and if earlier ones could lose
        theirs, prompt after prompt would move slots towards the last layers, where the link then
        waits for compute, as compute for the link in the first ones. Replays of recorded routes
        hit more so, too: by a point after 40 prompts.
        """
        tables, first = self._tables, moe_layer * self._num_experts
        owners = tables.owner[: tables.num_slots]
        mine = owners[(owners >= first) & (owners < first + self._num_experts)]
        candidates = mine[~np.isin(mine, keep)]
        worth = tables.worth(candidates)
        for at in np.lexsort((candidates, worth)).tolist():
            yield int(candidates[at]), int(worth[at])


def _evict(tables: Residency, record: int) -> int:
    """Take a record's slot away; returns it."""
    slot = int(tables.slot_of[record])
    tables.owner[slot], tables.slot_of[record], tables.valid[record] = FREE, NO_SLOT, 0
    return slot
