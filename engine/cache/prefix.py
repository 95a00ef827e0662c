"""Pages of ended replies, kept for prompts that begin alike: integers only, no tensors.

A page has one owner: an entry here, or whoever took the entry. Nothing is shared between live
owners; that would need reference counts or copies of pages. Kept pages are free memory: who needs
pages evicts first. Reuse changes time, never logits beyond the table of `tests/parity`: keys and
values that decode or a chunk with other bounds wrote differ in their last bits from those of a
prompt read at once. Called by `engine.scheduler.holdings`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cache.pages import PageAllocator

LEAST_PAGES = 2  # fewer save nothing that a person could notice
# A template may write the last words before a reply otherwise once the reply is a past one.
REPLY_OPENING_TOKENS = 8
MOST_LOST_SHARE = 0.25


@dataclass(eq=False, slots=True)
class Prefix:
    """The beginning of an ended sequence.

    Attributes:
        ids: its tokens; those of an evicted tail may still stand at the end.
        pages: where the keys and values of the first of them are, in order, each page full.
        prompt_tokens: how many tokens of the sequence were its prompt.
    """

    ids: tuple[int, ...]
    pages: tuple[int, ...]
    prompt_tokens: int

    def pages_for(self, ids: Sequence[int], page_tokens: int) -> int:
        """Return how many pages a sequence that begins with `ids` should take; 0 = none.

        At least one id is left to run. A continuation, or another reply to the same prompt, takes
        what it can; both are told by their length, because two first messages may differ in a word
        or two. Any other sequence is a second conversation or an edited one, and takes pages
        only if the entry loses few: two conversations with one system prompt would otherwise rob
        each other in turn.
        """
        common = common_length(ids, self.ids)
        whole = min(common // page_tokens, (len(ids) - 1) // page_tokens, len(self.pages))
        if whole < LEAST_PAGES:
            return 0
        longer = len(ids) > self.prompt_tokens + REPLY_OPENING_TOKENS
        goes_on = longer and common + REPLY_OPENING_TOKENS >= self.prompt_tokens
        goes_on = goes_on or common >= len(ids) - 1
        lost = len(self.pages) - whole
        return whole if goes_on or lost <= MOST_LOST_SHARE * len(self.pages) else 0


class PrefixCache:
    """Kept entries, the longest unused first.

    Invariant: `num_pages` pages of the allocator's used ones are in exactly one entry each.
    """

    def __init__(self, pages: PageAllocator, page_tokens: int) -> None:
        self._pages = pages
        self._page_tokens = page_tokens
        self._entries: list[Prefix] = []
        self._num_pages = 0

    @property
    def num_pages(self) -> int:
        """Pages kept; other threads may ask."""
        return self._num_pages

    @property
    def entries(self) -> tuple[Prefix, ...]:
        """What is kept. Whoever renames pages renames those of the entries too."""
        return tuple(self._entries)

    def keep(self, ids: tuple[int, ...], pages: tuple[int, ...], prompt_tokens: int) -> None:
        """Take over `pages`, which hold `ids` from the first page on; frees what is no whole page.

        The caller must know that nothing writes to them any more.
        """
        whole = len(ids) // self._page_tokens
        if whole < LEAST_PAGES:
            whole = 0
        self._pages.free(pages[whole:])
        if whole:
            kept = ids[: whole * self._page_tokens]
            self._entries.append(Prefix(kept, pages[:whole], prompt_tokens))
            self._num_pages += whole

    def take(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Hand over the pages of the longest beginning that `ids` should take, () if there is none.

        The rest of that entry is freed: nothing can begin in its middle. Among equals the entry
        that loses least is taken.
        """
        offers = [(entry.pages_for(ids, self._page_tokens), entry) for entry in self._entries]
        if not any(count for count, _ in offers):
            return ()
        count, best = max(offers, key=lambda offer: (offer[0], -len(offer[1].pages)))
        self._forget(best)
        self._pages.free(best.pages[count:])
        return best.pages[:count]

    def evict(self, count: int) -> None:
        """Free `count` pages, a few more, or all there are: oldest entry first, from its end.

        What is left of an entry is still the beginning of its sequence.
        """
        while count > 0 and self._entries:
            oldest = self._entries[0]
            left = max(0, len(oldest.pages) - count)
            if left < LEAST_PAGES:
                left = 0
                self._forget(oldest)
            else:
                self._num_pages -= len(oldest.pages) - left
            gone = oldest.pages[left:]
            oldest.pages = oldest.pages[:left]
            self._pages.free(gone)
            count -= len(gone)

    def _forget(self, entry: Prefix) -> None:
        self._entries.remove(entry)
        self._num_pages -= len(entry.pages)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many ids both begin with; slices are compared, which halve at each step."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
