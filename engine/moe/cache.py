"""The single owner of residency: which expert is on the device, and the copies that make it so.

Knows records, slots and copies; not tokens, policies or how an expert is computed. Called by
`engine.moe.executor` and, between steps, by the safe point through it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from engine.moe.arena import ExpertArena
from engine.moe.heat import Heat
from engine.moe.pool import ExpertPool
from engine.moe.slots import NO_SLOT, SlotTable, Touched
from engine.protocol.errors import BudgetError, InternalError
from kernels.device.base import Device, DeviceMemoryError, Event


@dataclass(frozen=True, slots=True)
class ResizeOutcome:
    """Slots that hold now, and experts that lost theirs."""

    slots: int
    evicted: int


class ExpertCache:
    """`num_slots` experts of the pool on the device, by recency of routing.

    `max_slots` (default: every expert) is what address space is reserved for.

    Raises: BudgetError if the device has no room.
    """

    def __init__(
        self,
        pool: ExpertPool,
        device: Device,
        num_slots: int,
        max_slots: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_slots = pool.num_records if max_slots is None else max_slots
        if not 1 <= num_slots <= self.max_slots:
            raise BudgetError(f"{num_slots} slots asked; possible are 1 to {self.max_slots}.")
        self._pool = pool
        self._device = device
        self._table = SlotTable(num_slots)
        try:
            self._arena = ExpertArena(device, pool.layout, self.max_slots, num_slots)
        except DeviceMemoryError as problem:
            raise BudgetError(f"No room for {num_slots} experts: {problem}.") from problem
        self._heat = Heat(pool.num_records, clock)

    @property
    def num_slots(self) -> int:
        """Slots, filled or not."""
        return self._table.num_slots

    @property
    def num_resident(self) -> int:
        """Filled slots."""
        return self._table.num_resident

    @property
    def num_bytes(self) -> int:
        """Device memory of the slots: slots times record."""
        return self._arena.num_bytes

    @property
    def room(self) -> int:
        """Slots that the current step does not use."""
        return self._table.room

    def resident(self) -> tuple[int, ...]:
        """Return the resident records, coldest first."""
        return self._table.resident()

    def is_resident(self, record: int) -> bool:
        """Whether a record is in a slot. Does not count as a use."""
        return self._table.lookup(record) != NO_SLOT

    def slot_of(self, record: int) -> torch.Tensor:
        """Return the slot's bytes of a resident record. Raises InternalError if it is not."""
        slot = self._table.lookup(record)
        if slot == NO_SLOT:
            raise InternalError(f"Expert record {record} is not resident.")
        return self._arena.slot(slot)

    def touch(self, records: Iterable[int]) -> Touched:
        """Begin a step that routes `records`; see `SlotTable.touch`."""
        return self._table.touch(records)

    def count(self, records: Iterable[int]) -> None:
        """Note uses for the heat map, one per route."""
        self._heat.add(records)

    def fill(
        self, record: int, after: Event, source: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Event]:
        """Give a touched record a slot and queue its copy.

        `after` is a point of compute behind which no kernel reads the slot's old contents. `source`
        is the record where it already lies on the device, else it comes from the pool.

        Returns: the slot's bytes, and the event that must be waited for before they are read.
        Raises: LookupError if the step uses every slot; whatever the copy raised, the record then
        not being resident.
        """
        slot, _ = self._table.admit(record)
        target = self._arena.slot(slot)
        try:
            event = self._device.copy(
                target, self._pool.record(record) if source is None else source, after
            )
        except BaseException:
            self._table.evict(record)
            raise
        return target, event

    def drop(self, records: Iterable[int]) -> None:
        """Forget records whose copy failed after all."""
        for record in records:
            if self.is_resident(record):
                self._table.evict(record)

    def resize(self, num_slots: int) -> ResizeOutcome:
        """Change the number of slots; the hottest experts stay. Call it between steps.

        Raises: BudgetError if out of bounds or the device refuses; the old size is kept and
        serving goes on (case M-01).
        """
        if not 1 <= num_slots <= self.max_slots:
            raise BudgetError(f"{num_slots} slots asked; possible are 1 to {self.max_slots}.")
        before = self.num_slots
        self._device.synchronize()
        if num_slots >= before:
            self._resize_arena(num_slots)
            self._table.grow(num_slots)
            return ResizeOutcome(num_slots, 0)
        shrunk = self._table.shrink(num_slots)
        for source, target in shrunk.moves:
            self._device.copy(self._arena.slot(target), self._arena.slot(source))
        self._device.synchronize()
        try:
            self._resize_arena(num_slots)
        except BudgetError:
            self._table.grow(before)
            raise
        return ResizeOutcome(num_slots, len(shrunk.evicted))

    def heat_map(self) -> tuple[bytes, bytes, int]:
        """Return uses uint8 [L*E] (255 = the most), resident 0/1 [L*E], and the most uses."""
        hits, top = self._heat.scaled()
        resident = bytearray(self._pool.num_records)
        for record in self._table.resident():
            resident[record] = 1
        return hits, bytes(resident), top

    def close(self) -> None:
        """Give the slots back to the device."""
        self._arena.close()

    def _resize_arena(self, num_slots: int) -> None:
        try:
            self._arena.resize(num_slots)
        except DeviceMemoryError as problem:
            raise BudgetError(
                f"No room for {num_slots} experts: {problem}.",
                f"The cache keeps its {self._arena.num_slots} experts.",
            ) from problem
