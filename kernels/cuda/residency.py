"""Which expert lies in which slot, between decode steps: arithmetic on NumPy copies, no device.

The decode kernels change residency themselves (`source/moe_plan.cuh`); this is the same policy for
what only the host does: shrink, grow, take over a prompt's experts. `worth` is that of the kernels.
Read from and written back to `kernels.cuda.moe_state.MoeState`; the caller makes the copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

NO_SLOT = -1
FREE = -1
_MAX_AGE = 0x7FFFFFFF
_TICKS = 1 << 32
_ALL = slice(None)
Which = NDArray[np.integer] | slice


class Eviction(IntEnum):
    """What makes an expert worth its slot."""

    LRU = 0
    FREQUENCY = 1


@dataclass(frozen=True, slots=True)
class Ranking:
    """How experts are compared.

    Attributes:
        eviction: by last use, or by uses of which old ones count less.
        growth: log2 of what a use loses in one step; `frequency` only.
        num_layers: MoE layers, which are the ticks of a step.
    """

    eviction: Eviction
    growth: float
    num_layers: int

    def worth(self, ages: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return how much experts are worth a slot, from 1 on; free slots count 0.

        `ages` are ticks since the last use, `scores` as of then.
        """
        if self.eviction is Eviction.LRU:
            return 0x80000000 - np.minimum(ages, _MAX_AGE)
        with np.errstate(divide="ignore"):
            level = np.log2(scores, dtype=np.float32)
        level = level - np.float32(self.growth) * (ages.astype(np.float32) / self.num_layers)
        bits = level.astype(np.float32).view(np.uint32).astype(np.int64)
        return np.where(bits & 0x80000000, ~bits & 0xFFFFFFFF, bits | 0x80000000)


@dataclass(frozen=True, slots=True)
class Copy:
    """A record's units from `first` on, to be copied from host memory into a slot."""

    record: int
    slot: int
    first: int


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a shrink demands: slots to copy, (source, target), and the records that lost theirs."""

    moves: tuple[tuple[int, int], ...]
    evicted: tuple[int, ...]


@dataclass(slots=True)
class Residency:
    """The tables of one moment.

    Attributes:
        num_slots: slots in use or free; `owner` is longer, and free behind them.
        num_units: units of a record.
        tick: the kernels' clock: layers planned so far, modulo 2^32.
        ranking: who is worth more.
        slot_of: by record, slot or -1. valid: by record, units [0, valid) lie in the slot.
        owner: by slot, record or -1.
        score, stamp: by record, what `ranking` looks at; float32 and int32 (bits of a uint32).
    """

    num_slots: int
    num_units: int
    tick: int
    ranking: Ranking
    slot_of: NDArray[np.int32]
    valid: NDArray[np.int32]
    owner: NDArray[np.int32]
    score: NDArray[np.float32]
    stamp: NDArray[np.int32]

    def worth(self, records: Which = _ALL) -> NDArray[np.int64]:
        """Return what records are worth now; all of them by record, if none are named."""
        return self.ranking.worth(self.ages(records), self.score[records])

    def ages(self, records: Which = _ALL) -> NDArray[np.int64]:
        """Return the ticks since records' last use; all of them by record, if none are named."""
        return (self.tick - self.stamp[records].astype(np.int64)) % _TICKS

    def resident(self) -> list[int]:
        """Return the records that own a slot, those of least worth first; ties by slot."""
        slots = np.flatnonzero(self.owner[: self.num_slots] != FREE)
        records = self.owner[slots]
        order = np.argsort(self.worth(records), kind="stable")
        return [int(record) for record in records[order]]

    def grow(self, num_slots: int) -> None:
        """Add free slots at the tail. Raises ValueError for fewer, or more than there can be."""
        if not self.num_slots <= num_slots <= len(self.owner):
            raise ValueError(f"{self.num_slots} of {len(self.owner)} slots, asked for {num_slots}")
        self.num_slots = num_slots

    def shrink(self, num_slots: int) -> Shrunk:
        """Give up the tail slots; the experts of most worth stay, those in the tail move down.

        Sources lie at or above `num_slots`, targets below it, so moves cannot collide. Raises
        ValueError for more slots, or none.
        """
        if not 1 <= num_slots <= self.num_slots:
            raise ValueError(f"{self.num_slots} slots cannot shrink to {num_slots}")
        resident = self.resident()
        lost = resident[: max(0, len(resident) - num_slots)]
        for record in lost:
            self._evict(record)
        free = iter(np.flatnonzero(self.owner[:num_slots] == FREE).tolist())
        moves: list[tuple[int, int]] = []
        for record in reversed(resident[len(lost) :]):
            source = int(self.slot_of[record])
            if source >= num_slots:
                target = next(free)
                moves.append((source, target))
                self.owner[source] = FREE
                self._own(target, record)
        self.num_slots = num_slots
        return Shrunk(tuple(moves), tuple(lost))

    def admit(self, records: Iterable[int]) -> list[Copy]:
        """Make records whole; who has no slot gets a free one, or that of the least worthy expert.

        None of `records` loses its slot; those that find none are left out. Returns the copies to
        make before the tables are written back.
        """
        wanted = list(dict.fromkeys(records))
        keep = set(wanted)
        free = np.flatnonzero(self.owner[: self.num_slots] == FREE).tolist()
        coldest = iter([record for record in self.resident() if record not in keep])
        copies = []
        for record in wanted:
            slot = int(self.slot_of[record])
            if slot == NO_SLOT:
                if free:
                    slot = free.pop(0)
                elif (victim := next(coldest, FREE)) != FREE:
                    slot = int(self.slot_of[victim])
                    self._evict(victim)
                else:
                    continue
                self._own(slot, record)
                self.valid[record] = 0
            if self.valid[record] < self.num_units:
                copies.append(Copy(record, slot, int(self.valid[record])))
                self.valid[record] = self.num_units
        return copies

    def credit(self, uses: NDArray[np.float32]) -> None:
        """Count uses that no decode step saw, such as a prompt's: an amount by record or 0."""
        used = np.flatnonzero(uses > 0)
        lost = self.ranking.growth * self.ages(used) / self.ranking.num_layers
        self.score[used] = self.score[used] * np.exp2(-lost).astype(np.float32) + uses[used]
        self.stamp[used] = np.uint32(self.tick % _TICKS).astype(np.int32)

    def faults(self) -> list[str]:
        """Return what the tables contradict each other in; empty if they are sound."""
        slots, records = np.flatnonzero(self.owner != FREE), np.flatnonzero(self.slot_of != NO_SLOT)
        most = np.where(self.slot_of == NO_SLOT, 0, self.num_units)
        unlike_units = np.flatnonzero((self.valid < 0) | (self.valid > most))
        return [
            *(
                f"slot {slot} of {self.num_slots} has an owner"
                for slot in slots[slots >= self.num_slots]
            ),
            *(
                f"slot {slot} is owned by {self.owner[slot]}, which is elsewhere"
                for slot in slots[self.slot_of[self.owner[slots]] != slots]
            ),
            *(
                f"record {record} is in slot {self.slot_of[record]}, which it does not own"
                for record in records[self.owner[self.slot_of[records]] != records]
            ),
            *(
                f"record {record} has {self.valid[record]} units in slot {self.slot_of[record]}"
                for record in unlike_units
            ),
        ]

    def _own(self, slot: int, record: int) -> None:
        self.owner[slot] = record
        self.slot_of[record] = slot

    def _evict(self, record: int) -> None:
        self.owner[self.slot_of[record]] = FREE
        self.slot_of[record] = NO_SLOT
        self.valid[record] = 0
