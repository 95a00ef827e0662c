"""Idle moments on a device with a link: what the cache has room for is copied before it is asked.

Free slots get experts, and partly filled ones their other units; nobody loses a slot, and no bit of
a result changes, because records are the same wherever they lie. Work comes in pieces that have
landed when a call returns, so nothing is ever under way while a step, a prompt or a resize runs.
Called by `engine.moe.device_experts` while no request is open.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from engine.moe.arena import ExpertArena
from engine.moe.pool import ExpertPool
from engine.moe.slots import SlotId
from kernels.cuda.moe_state import MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Residency
from kernels.device.base import Device

PIECE_S = 4e-3  # a request that arrives meanwhile waits for one piece
FIRST_PIECE_BYTES = 4 << 20  # the link's rate is not known yet
PIECE_GROWTH = 4  # of one piece over the one before


class Part(NamedTuple):
    """Units [first, last) of a record, to be copied into its slot."""

    record: int
    slot: int
    first: int
    last: int


def warm_order(tables: Residency, num_experts: int, links: Sequence[bool]) -> list[int]:
    """Return the records that are not whole on the device, those that are worth most first.

    Who was never used comes last: slots that are begun, then so that every layer gets as many
    experts. `links` says of each layer whether its records can be copied; others are left out.
    """
    layer = np.arange(len(tables.slot_of)) // num_experts
    resident = tables.slot_of != NO_SLOT
    missing = ~(resident & (tables.valid == tables.num_units)) & np.asarray(links, bool)[layer]
    used = tables.score > 0
    seen, begun = np.flatnonzero(missing & used), np.flatnonzero(missing & ~used & resident)
    new = np.flatnonzero(missing & ~used & ~resident)
    taken = np.bincount(layer[resident | (missing & used)], minlength=len(links))
    of = layer[new]  # ascending, so that a place within the layer is a distance to its first
    level = taken[of] + np.arange(len(new)) - np.searchsorted(of, of)
    seen = seen[np.argsort(-tables.worth()[seen], kind="stable")]
    return [int(record) for record in (*seen, *begun, *new[np.lexsort((of, level))])]


def next_parts(tables: Residency, order: deque[int], units: int) -> list[Part]:
    """Give free slots to the first records of `order`, and take their units, `units` in all.

    Records leave `order` as they become whole, or find no slot. `tables` are changed.
    """
    free = deque(np.flatnonzero(tables.owner[: tables.num_slots] == FREE).tolist())
    parts: list[Part] = []
    while order and units > 0:
        record = order[0]
        if tables.slot_of[record] == NO_SLOT:
            if not free:
                order.popleft()
                continue
            slot = free.popleft()
            tables.owner[slot], tables.slot_of[record], tables.valid[record] = record, slot, 0
        first = int(tables.valid[record])
        last = min(tables.num_units, first + units)
        parts.append(Part(record, int(tables.slot_of[record]), first, last))
        tables.valid[record] = last
        units -= last - first
        if last == tables.num_units:
            order.popleft()
    return parts


class WarmUp:
    """Brings pieces until nothing is left that has room.

    Attributes:
        num_bytes: copied since load.
    """

    def __init__(
        self,
        pool: ExpertPool,
        arena: ExpertArena,
        state: MoeState,
        device: Device,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pool, self._arena, self._state = pool, arena, state
        self._device, self._clock = device, clock
        self._copies = device.stream()
        self._tables: Residency | None = None
        self._order: deque[int] = deque()
        self._piece_bytes = float(FIRST_PIECE_BYTES)
        self.num_bytes = 0

    def forget(self) -> None:
        """Say that the tables may change: what is missing is looked up anew."""
        self._tables = None

    def step(self) -> bool:
        """Bring one piece; False if there was none. Raises what a lost device raises."""
        begin_s, tables = self._clock(), self._tables
        if tables is None:
            tables = self._look()
        layout = self._pool.layout
        parts = next_parts(tables, self._order, max(1, int(self._piece_bytes / layout.unit_bytes)))
        if not parts:
            return False
        self._tables = None  # of which nothing holds if this fails
        self._copy(parts)
        self._state.install(tables)
        self._tables = tables
        moved = layout.unit_bytes * sum(part.last - part.first for part in parts)
        self.num_bytes += moved
        if self._order:  # the last piece is a rest, whose rate says little
            took_s = max(self._clock() - begin_s, 1e-6)
            self._piece_bytes = min(PIECE_GROWTH * self._piece_bytes, moved * PIECE_S / took_s)
        return True

    def close(self) -> None:
        """End the copy queue."""
        self._copies.close()

    def _look(self) -> Residency:
        """Read the tables; waits for what is in flight."""
        self._tables = tables = self._state.snapshot()
        links = [bool(usable) for usable in self._state.link_ok.tolist()]
        self._order = deque(warm_order(tables, self._pool.num_experts, links))
        return tables

    def _copy(self, parts: Sequence[Part]) -> None:
        """Copy and wait. A slot that is free now may still be written by a prompt that failed."""
        unit, after = self._pool.layout.unit_bytes, self._device.record()
        for part in parts:
            here = slice(part.first * unit, part.last * unit)
            target = self._arena.slot(SlotId(part.slot))[here]
            event = self._copies.copy(target, self._pool.record(part.record)[here], after)
        event.synchronize()
