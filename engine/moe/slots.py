"""Which expert lies in which slot, with recency. Pure Python; the model of a later plan kernel.

Knows record numbers and slot numbers, no tensors and no bytes. Recency is set by *routing*: a touch
counts for every routed expert, also for those that the CPU serves. Owned by `engine.moe.cache`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType

SlotId = NewType("SlotId", int)
NO_SLOT = SlotId(-1)


@dataclass(frozen=True, slots=True)
class Touched:
    """One step's routed records: where the resident ones lie, and when the others were last routed.

    Both keep the order in which the records were given.
    """

    hits: dict[int, SlotId]
    misses: dict[int, int]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a shrink demands: copies (source slot, target slot), hottest first, and who lost."""

    moves: tuple[tuple[SlotId, SlotId], ...]
    evicted: tuple[int, ...]


class SlotTable:
    """LRU over all layers of a layout.

    `touch` is the only thing that sets recency. Victims come from the cold end and a touched record
    sits at the hot end, so that touch and victims are one pass over the K routed records, whatever
    the number of slots. An expert that the current step uses is never a victim (case E-18).
    """

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError(f"{num_slots} slots")
        self._num_slots = num_slots
        # Coldest first. A dict keeps insertion order: a touch takes an entry out and puts it back.
        self._slots: dict[int, SlotId] = {}
        self._free = [SlotId(slot) for slot in reversed(range(num_slots))]
        self._last_use: dict[int, int] = {}
        self._step = 0
        self._in_use = 0  # resident records that the current step uses

    @property
    def num_slots(self) -> int:
        """Slots, filled or not."""
        return self._num_slots

    @property
    def num_resident(self) -> int:
        """Filled slots."""
        return len(self._slots)

    @property
    def room(self) -> int:
        """Slots that `admit` can still give in this step: free ones and victims."""
        return self._num_slots - self._in_use

    @property
    def step(self) -> int:
        """Number of the current step: touches so far."""
        return self._step

    def lookup(self, record: int) -> SlotId:
        """Return the record's slot, or NO_SLOT. Does not count as a use."""
        return self._slots.get(record, NO_SLOT)

    def last_use(self, record: int) -> int:
        """Return the step in which the record was last routed; 0 = never."""
        return self._last_use.get(record, 0)

    def resident(self) -> tuple[int, ...]:
        """Return all resident records, coldest first."""
        return tuple(self._slots)

    def touch(self, records: Iterable[int]) -> Touched:
        """Begin a step that routes `records` (repeated ones count once): all become hottest."""
        self._step += 1
        hits: dict[int, SlotId] = {}
        misses: dict[int, int] = {}
        for record in records:
            if record in hits or record in misses:
                continue
            slot = self._slots.pop(record, None)
            if slot is None:
                misses[record] = self._last_use.get(record, 0)
            else:
                self._slots[record] = hits[record] = slot
            self._last_use[record] = self._step
        self._in_use = len(hits)
        return Touched(hits, misses)

    def admit(self, record: int) -> tuple[SlotId, int | None]:
        """Give a slot to a record that the current step has touched.

        Returns: the slot, and the record that lost it (None if it was free).
        Raises: ValueError if the record is resident, or was not touched in this step; LookupError
        if the step already uses every slot (see `room`).
        """
        if record in self._slots or self._last_use.get(record) != self._step:
            raise ValueError(f"record {record} is resident or not part of step {self._step}")
        if self.room < 1:
            raise LookupError(f"all {self._num_slots} slots are in use by step {self._step}")
        victim: int | None = None
        if self._free:
            slot = self._free.pop()
        else:
            victim = next(iter(self._slots))
            slot = self._slots.pop(victim)
        self._slots[record] = slot
        self._in_use += 1
        return slot, victim

    def evict(self, record: int) -> None:
        """Forget a resident record, e.g. because its copy failed; its slot is free again."""
        slot = self._slots.pop(record)
        self._free.append(slot)
        if self._last_use.get(record) == self._step:
            self._in_use -= 1

    def grow(self, num_slots: int) -> None:
        """Add free slots at the tail. Raises ValueError if there would be fewer."""
        if num_slots < self._num_slots:
            raise ValueError(f"{self._num_slots} slots cannot grow to {num_slots}")
        self._free[:0] = [SlotId(slot) for slot in reversed(range(self._num_slots, num_slots))]
        self._num_slots = num_slots

    def shrink(self, num_slots: int) -> Shrunk:
        """Give up the tail slots; the hottest records stay, those in the tail move down.

        Sources lie at or above `num_slots`, targets below it, so that moves cannot collide. Call it
        between steps. Raises ValueError if there would be more slots, or none.
        """
        if not 1 <= num_slots <= self._num_slots:
            raise ValueError(f"{self._num_slots} slots cannot shrink to {num_slots}")
        coldest = tuple(self._slots)[: max(0, len(self._slots) - num_slots)]
        for record in coldest:
            self._free.append(self._slots.pop(record))
        targets = sorted((slot for slot in self._free if slot < num_slots), reverse=True)
        moves: list[tuple[SlotId, SlotId]] = []
        for record in reversed(self._slots):
            source = self._slots[record]
            if source >= num_slots:
                target = targets.pop()
                moves.append((source, target))
                self._slots[record] = target
        self._free = targets
        self._num_slots = num_slots
        self._in_use = 0
        return Shrunk(tuple(moves), coldest)


def slots_that_fit(free_bytes: int, record_bytes: int) -> int:
    """Return how many experts fit: floor(free / bytes per expert), never negative."""
    return max(0, free_bytes // record_bytes)


def most_recent(routes: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Return at most `limit` distinct experts of a prompt's routes [T][K], last token's first."""
    found: dict[int, None] = {}
    for token in reversed(routes):
        for expert in token:
            found.setdefault(expert)
            if len(found) >= limit:
                return list(found)
    return list(found)
