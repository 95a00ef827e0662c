"""Kept beginnings: the longest one is found, each page has one owner, the oldest go first."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache.pages import PageAllocator
from engine.cache.prefix import PrefixCache, common_length

PAGE = 4
A, B, SYSTEM = range(100, 1000), range(1000, 2000), range(100)


def make(num_pages: int = 64) -> tuple[PageAllocator, PrefixCache]:
    pages = PageAllocator(num_pages)
    return pages, PrefixCache(pages, PAGE)


def keep(pages: PageAllocator, cache: PrefixCache, ids: tuple[int, ...], prompt: int = 0) -> None:
    """End a sequence of these ids, whose prompt was all of it or the first `prompt`."""
    cache.keep(ids, pages.alloc(-(-len(ids) // PAGE)), prompt or len(ids))


def found(pages: PageAllocator, cache: PrefixCache, ids: tuple[int, ...]) -> int:
    """Tokens that a prompt need not read; its pages are given back."""
    taken = cache.take(ids)
    pages.free(taken)
    return len(taken) * PAGE


@pytest.mark.parametrize("extra", range(2 * PAGE + 1))
def test_take_then_at_least_one_token_is_left_to_run(extra: int) -> None:
    """Around each page boundary; the last id's logits are what a reply begins with."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:20]))
    count = found(pages, cache, tuple(A[: 12 + extra]))
    assert count == min(20, (12 + extra - 1) // PAGE * PAGE)
    assert pages.used == cache.num_pages == 0


def test_keep_when_shorter_than_two_pages_then_nothing_stays() -> None:
    """Eight tokens with pages of four are kept, seven are not; pages behind are freed."""
    pages, cache = make()
    cache.keep(tuple(A[:7]), pages.alloc(5), 7)
    assert pages.used == 0
    cache.keep(tuple(A[:9]), pages.alloc(5), 9)
    assert pages.used == cache.num_pages == 2


def test_take_when_two_chats_share_a_system_prompt_then_neither_robs_the_other() -> None:
    """A, B, A, B: each finds its own last turn, whatever the other began with."""
    pages, cache = make(200)
    a, b = (*SYSTEM[:40], *A[:40]), (*SYSTEM[:40], *B[:40])
    keep(pages, cache, a, prompt=60)
    assert cache.take((*b[:60], 7)) == ()
    keep(pages, cache, b, prompt=60)
    for turn in range(3):
        for number, chat in enumerate((a, b)):
            longer = (*chat, *range(turn * 10, turn * 10 + 9), number)
            taken = cache.take((*longer, 3))
            assert len(taken) * PAGE == len(chat)
            longer = longer[: len(longer) // PAGE * PAGE]
            more = pages.alloc(len(longer) // PAGE - len(taken))
            cache.keep(longer, taken + more, len(longer))
            a, b = (longer, b) if chat is a else (a, longer)


def test_take_when_first_messages_differ_in_a_word_then_the_long_chat_stays_whole() -> None:
    """ "Hi" and "Hello" behind one system prompt: the second is no continuation of the first."""
    pages, cache = make(512)
    keep(pages, cache, (*SYSTEM, *A[:4], *B), prompt=104)
    assert found(pages, cache, (*SYSTEM, *A[500:505])) == 0
    assert cache.num_pages == pages.used > 0
    assert found(pages, cache, (*SYSTEM, *A[:4], *B[:40], *A[:20])) == 144


def test_take_when_a_reply_is_made_anew_then_its_prompt_is_found() -> None:
    """The old reply may be far longer than the prompt; it would not be asked for again."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:100]), prompt=20)
    assert found(pages, cache, tuple(A[:20])) == 16
    assert pages.used == 0


def test_take_when_a_template_writes_the_past_otherwise_then_the_rest_is_found() -> None:
    """The opening of a reply loses a mark once the reply is a past one."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:100]), prompt=24)
    assert found(pages, cache, (*A[:20], *B[:90])) == 20


def test_take_when_the_end_was_edited_then_all_before_it_is_found() -> None:
    """Three quarters in common are worth the rest; less leaves the entry whole."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:80]))
    assert cache.take((*A[:59], *B[:10])) == ()
    assert cache.num_pages == 20
    assert found(pages, cache, (*A[:60], *B[:10])) == 60


def test_take_when_entries_match_equally_then_the_one_that_loses_least() -> None:
    """A longer conversation with the same beginning stays whole."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:40]), prompt=20)
    keep(pages, cache, tuple(A[:24]), prompt=20)
    assert found(pages, cache, (*A[:20], *B[:10])) == 20
    assert [len(entry.pages) for entry in cache.entries] == [10]


def test_evict_then_the_oldest_loses_its_end_and_stays_a_beginning() -> None:
    """Page by page, until too little is left; then the next one."""
    pages, cache = make()
    keep(pages, cache, tuple(A[:40]))
    keep(pages, cache, tuple(B[:40]))
    cache.evict(3)
    assert [len(entry.pages) for entry in cache.entries] == [7, 10]
    assert found(pages, cache, tuple(A[:41])) == 28
    keep(pages, cache, tuple(A[:16]))
    cache.evict(9)
    assert [entry.ids[0] for entry in cache.entries] == [A[0]]
    cache.evict(100)
    assert pages.used == cache.num_pages == 0


class PrefixMachine(RuleBasedStateMachine):
    """Sequences over three ids, so that beginnings are shared all the time, beside a naive cache.

    `naive` mirrors the entries; `memory` says what the keys and values in a page belong to: all
    ids up to the page's end.
    """

    ids = st.lists(st.integers(0, 2), min_size=1, max_size=40).map(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.pages, self.cache = make(24)
        self.memory: dict[int, tuple[int, ...]] = {}

    @rule(ids=ids, computed=st.integers(0, 40), prompt=st.integers(1, 40))
    def serve(self, ids: tuple[int, ...], computed: int, prompt: int) -> None:
        """A request begins, takes what it finds, writes the rest, and ends."""
        entries = [(len(e.pages), e.ids, e.prompt_tokens) for e in self.cache.entries]
        taken = self.cache.take(ids)
        assert len(taken) == max([0, *(naive(ids, *entry) for entry in entries)])
        for number, page in enumerate(taken, 1):
            assert self.memory[page] == ids[: number * PAGE]
        need = -(-len(ids) // PAGE) - len(taken)
        self.cache.evict(need - self.pages.num_free)
        mine = taken + self.pages.alloc(need)
        for number, page in enumerate(mine, 1):
            self.memory[page] = ids[: number * PAGE]
        self.cache.keep(ids[: max(computed, len(taken) * PAGE)], mine, min(prompt, len(ids)))

    @rule(count=st.integers(0, 30))
    def evict(self, count: int) -> None:
        """Somebody needs pages."""
        kept = self.cache.num_pages
        free = self.pages.num_free
        self.cache.evict(count)
        assert self.pages.num_free - free >= min(count, kept)

    @rule(num_pages=st.integers(10, 24))
    def resize(self, num_pages: int) -> None:
        """Pages are renamed in the entries as in any owner."""
        self.cache.evict(self.pages.used - num_pages)
        renamed = dict(self.pages.shrink(num_pages))
        self.memory.update({new: self.memory[old] for old, new in renamed.items()})
        for entry in self.cache.entries:
            entry.pages = tuple(renamed.get(page, page) for page in entry.pages)
        self.pages.grow(num_pages)

    @invariant()
    def one_owner(self) -> None:
        """Every used page is in one entry, and holds what the entry says."""
        owned = [page for entry in self.cache.entries for page in entry.pages]
        assert len(set(owned)) == len(owned) == self.pages.used == self.cache.num_pages
        for entry in self.cache.entries:
            assert len(entry.pages) >= 2
            for number, page in enumerate(entry.pages, 1):
                assert self.memory[page] == entry.ids[: number * PAGE]


def naive(ids: tuple[int, ...], pages: int, other: tuple[int, ...], prompt: int) -> int:
    """The pages that a sequence should take of an entry, counted id by id."""
    common = 0
    while common < min(len(ids), len(other)) and ids[common] == other[common]:
        common += 1
    whole = 0
    while (whole + 1) * PAGE <= min(common, len(ids) - 1) and whole < pages:
        whole += 1
    if whole < 2:
        return 0
    return whole if common >= prompt - 8 or whole >= 0.75 * pages else 0


TestPrefixMachine = PrefixMachine.TestCase
TestPrefixMachine.settings = settings(max_examples=60, deadline=None)


def test_common_length_then_that_of_a_walk_along_both() -> None:
    """All lengths and all places of the first difference."""
    for size in range(20):
        for place in range(size + 1):
            one = tuple(range(size))
            other = (*one[:place], -1, *one[place + 1 :])
            assert common_length(one, other) == place
            assert common_length(one, one[:place]) == place
