"""The elastic pools at a safe point: resized together, whole or not at all.

Adapters over pages and experts that keep the truth of their contents. Integers only; the pools
themselves move the bytes. Called by `engine.service` through the safe point.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from engine.cache.prefix import Prefix
from engine.memory.budget import PAGE_TOKENS, Division
from engine.scheduler.holdings import Holdings
from engine.scheduler.request import Request


class Resizable(Protocol):
    """A pool with a size in units."""

    @property
    def units(self) -> int:
        """Size now: tokens or slots."""
        ...

    def resize(self, units: int) -> int:
        """Change the size, keeping contents; returns how many entries were evicted.

        Raises: BudgetError, or the device's own error, with the old size and contents kept.
        """
        ...


class KvMemory(Protocol):
    """What a resize needs of `engine.cache.kv.KvPool`."""

    def resize(self, num_pages: int, moves: Sequence[tuple[int, int]]) -> None:
        """Copy each (source, destination) page, then change the size; whole or not at all."""
        ...


class ResizeCount(Protocol):
    """What an expert resize reports."""

    @property
    def evicted(self) -> int:
        """Experts that lost their slot."""
        ...


class ExpertMemory(Protocol):
    """What a resize needs of `engine.moe.executor.MoeExecutor`."""

    @property
    def num_slots(self) -> int:
        """Slots now."""
        ...

    def resize(self, slots: int) -> ResizeCount:
        """Change the number of slots; whole or not at all."""
        ...


class KvSide:
    """The KV pool in tokens; pages follow their owners, kept ones as far as they fit."""

    def __init__(
        self, holdings: Holdings, memory: KvMemory, requests: Callable[[], Iterable[Request]]
    ) -> None:
        self._holdings = holdings
        self._pages = holdings.pages
        self._memory = memory
        self._requests = requests

    @property
    def units(self) -> int:
        """Capacity in tokens."""
        return self._pages.num_pages * PAGE_TOKENS

    def resize(self, units: int) -> int:
        """Move pages out of the way, then change the pool; nothing is evicted.

        Raises: BudgetError if more pages are in use, the device's error if memory is refused.
        """
        num_pages = units // PAGE_TOKENS
        if num_pages >= self._pages.num_pages:
            self._memory.resize(num_pages, [])
            self._pages.grow(num_pages)
            return 0
        self._holdings.fit(num_pages)
        # The targets are free pages, so a refusal after the copies leaves every owner intact.
        self._memory.resize(num_pages, self._pages.plan_shrink(num_pages))
        renamed = dict(self._pages.shrink(num_pages))
        owners: tuple[Request | Prefix, ...] = (*self._requests(), *self._holdings.kept)
        for owner in owners:
            owner.pages = tuple(renamed.get(page, page) for page in owner.pages)
        return 0


class ExpertSide:
    """The expert cache in slots."""

    def __init__(self, memory: ExpertMemory) -> None:
        self._memory = memory

    @property
    def units(self) -> int:
        """Slots now."""
        return self._memory.num_slots

    def resize(self, units: int) -> int:
        """Change the number of slots; returns the evicted experts."""
        return self._memory.resize(units).evicted


def apply_division(kv: Resizable, experts: Resizable, wanted: Division) -> int:
    """Bring both pools to their sizes; shrink before growing, so that the sum is never exceeded.

    Returns: evicted experts.
    Raises: whatever a pool raised; the sizes are then the old ones (case M-01).
    """
    steps = [(kv, wanted.kv_tokens, kv.units), (experts, wanted.expert_slots, experts.units)]
    steps.sort(key=lambda step: step[1] > step[2])
    evicted = 0
    done: list[tuple[Resizable, int]] = []
    try:
        for pool, units, before in steps:
            if units != before:
                evicted += pool.resize(units)
                done.append((pool, before))
    except BaseException:
        for pool, before in reversed(done):
            pool.resize(before)
        raise
    return evicted
