"""Which KV pages are free: integers only, no tensors, no device.

Knows no sequences: an owner keeps the pages it got and gives them back. Always hands out the lowest
free pages, so that shrinking the pool moves little. Called by `engine.scheduler`.
"""

import heapq
from collections.abc import Iterable

from engine.protocol.errors import BudgetError


class PageAllocator:
    """Hands out the pages [0, num_pages), each to one owner.

    Invariant: a page is either free or used; `used + num_free == num_pages`.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 0:
            raise ValueError(f"num_pages is {num_pages}; it must not be negative")
        self._num_pages = num_pages
        self._free = list(range(num_pages))  # a heap; sorted is one
        self._used: set[int] = set()

    @property
    def num_pages(self) -> int:
        """Pages there are."""
        return self._num_pages

    @property
    def used(self) -> int:
        """Pages that have an owner."""
        return len(self._used)

    @property
    def num_free(self) -> int:
        """Pages that `alloc` can still hand out."""
        return len(self._free)

    def alloc(self, count: int) -> tuple[int, ...] | None:
        """Take the `count` lowest free pages, in rising order; None (and nothing taken) if short.

        Raises: ValueError if count < 0.
        """
        if count < 0:
            raise ValueError(f"count is {count}; it must not be negative")
        if count > len(self._free):
            return None
        pages = tuple(heapq.heappop(self._free) for _ in range(count))
        self._used.update(pages)
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back.

        Raises: ValueError, with nothing freed, if one of them is not in use or given twice.
        """
        given = list(pages)
        wrong = set(given) - self._used
        if wrong or len(set(given)) != len(given):
            raise ValueError(f"pages {sorted(wrong) or given} are not in use, or given twice")
        for page in given:
            self._used.remove(page)
            heapq.heappush(self._free, page)

    def plan_shrink(self, num_pages: int) -> list[tuple[int, int]]:
        """Return the moves (source, destination) that `shrink` would make; changes nothing.

        Raises: BudgetError if more pages are in use than would be left.
        """
        if len(self._used) > num_pages:
            raise BudgetError(
                f"The context in use takes {len(self._used)} pages, {num_pages} were asked for.",
                "Wait for replies to end, or choose a larger context.",
            )
        sources = sorted(page for page in self._used if page >= num_pages)
        targets = heapq.nsmallest(len(sources), self._free)
        return list(zip(sources, targets, strict=True))

    def shrink(self, num_pages: int) -> list[tuple[int, int]]:
        """Keep only the pages [0, num_pages) and return the moves that make room.

        The caller copies each source page to its destination (`KvPool.resize`) and renames it in
        every owner's table; destinations count as used from here on. A size that is not smaller
        changes nothing.

        Raises: BudgetError, with nothing changed, if more pages are in use than would be left.
        """
        if num_pages >= self._num_pages:
            return []
        moves = self.plan_shrink(num_pages)
        for source, target in moves:
            self._used.remove(source)
            self._used.add(target)
        self._num_pages = num_pages
        self._free = [page for page in range(num_pages) if page not in self._used]
        return moves

    def grow(self, num_pages: int) -> None:
        """Add pages up to `num_pages`; a size that is not larger changes nothing."""
        for page in range(self._num_pages, num_pages):
            heapq.heappush(self._free, page)
        self._num_pages = max(self._num_pages, num_pages)
