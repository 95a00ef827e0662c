"""Who holds the pages of the KV pool: open requests, and beginnings kept for later prompts.

What is kept counts as free everywhere: it is evicted before anything is refused, preempted or made
to wait. Integers only. Called by `engine.scheduler.scheduler` and, in a resize, by
`engine.scheduler.pools`.
"""

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefix, PrefixCache
from engine.memory.budget import PAGE_TOKENS
from engine.scheduler.admission import num_pages
from engine.scheduler.request import Request


class Holdings:
    """Hands pages to requests and takes them back.

    Args:
        pages: of the pool.
        reuse: keep pages of ended requests. Only for models whose whole state of a sequence is its
            keys and values.

    Attributes:
        pages: the allocator; kept pages are used ones there.
    """

    def __init__(self, pages: PageAllocator, reuse: bool) -> None:
        self.pages = pages
        self._reuse = reuse
        self._kept = PrefixCache(pages, PAGE_TOKENS)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that all pages hold."""
        return self.pages.num_pages * PAGE_TOKENS

    @property
    def num_free(self) -> int:
        """Pages that `reserve` can still hand out."""
        return self.pages.num_free + self._kept.num_pages

    @property
    def reserved_tokens(self) -> int:
        """Tokens of the pages that requests hold; other threads may ask."""
        return max(0, self.pages.used - self._kept.num_pages) * PAGE_TOKENS

    @property
    def kept(self) -> tuple[Prefix, ...]:
        """Beginnings of ended requests."""
        return self._kept.entries

    def find_beginning(self, request: Request) -> None:
        """Give a request that holds nothing the pages of a beginning it shares, if one is kept."""
        request.pages = self._kept.take(request.ids[: request.fill_tokens])
        request.computed = len(request.pages) * PAGE_TOKENS
        is_first = request.row < 0
        # After a preemption: what was lost meanwhile is read for this reply after all.
        others = request.computed if is_first else min(request.computed, request.reused_tokens)
        request.reused_tokens = others

    def missing_tokens(self, request: Request, tokens: int) -> int:
        """Return what free pages lack so that `reserve` succeeds; below 1 = nothing."""
        return (num_pages(tokens) - len(request.pages) - self.num_free) * PAGE_TOKENS

    def reserve(self, request: Request, tokens: int) -> bool:
        """Make sure that `tokens` of a request have a page; False, and nothing changed, if not."""
        missing = num_pages(tokens) - len(request.pages)
        if missing <= 0:
            return True
        if missing <= self.num_free:
            self._kept.evict(missing - self.pages.num_free)
        pages = self.pages.alloc(missing)
        if pages is None:
            return False
        request.pages += pages
        return True

    def give_back(self, request: Request) -> None:
        """Take a request's pages; only when no step in flight writes to them."""
        pages, request.pages = request.pages, ()
        if self._reuse and not request.has_failed:
            self._kept.keep(request.ids[: request.computed], pages, len(request.prompt))
        else:
            self.pages.free(pages)

    def fit(self, size: int) -> None:
        """Evict until at most `size` pages are in use, if that is possible."""
        self._kept.evict(self.pages.used - size)

    def drop(self) -> None:
        """Free everything that is kept."""
        self._kept.evict(self._kept.num_pages)
