"""The page allocator: every page has at most one owner, whatever the order of calls."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.pages import PageAllocator
from engine.protocol.errors import BudgetError


def test_alloc_when_pages_are_free_then_lowest_first() -> None:
    """Low pages first keeps the pool compact, so that shrinking moves little."""
    pages = PageAllocator(6)
    assert pages.alloc(3) == (0, 1, 2)
    assert pages.alloc(2) == (3, 4)
    pages.free((3, 1))
    assert pages.alloc(3) == (1, 3, 5)


def test_alloc_when_short_then_nothing_is_taken() -> None:
    """A request that must wait leaves the pages to others."""
    pages = PageAllocator(3)
    pages.alloc(2)
    assert pages.alloc(2) is None
    assert (pages.used, pages.num_free) == (2, 1)
    assert pages.alloc(0) == ()


@pytest.mark.parametrize("wrong", [(2,), (0, 0), (0, 9)])
def test_free_when_a_page_is_not_in_use_then_refused_whole(wrong: tuple[int, ...]) -> None:
    """A double free is a bug of the owner, and never gives one page to two of them."""
    pages = PageAllocator(4)
    pages.alloc(2)
    with pytest.raises(ValueError, match="not in use"):
        pages.free(wrong)
    assert pages.used == 2


def test_shrink_when_high_pages_are_used_then_moved_below() -> None:
    """Used pages above the border move to free ones below; the rest stay."""
    pages = PageAllocator(8)
    pages.alloc(8)
    pages.free((0, 2, 5, 6))
    assert pages.plan_shrink(4) == [(4, 0), (7, 2)]
    assert pages.shrink(4) == [(4, 0), (7, 2)]
    assert (pages.num_pages, pages.used, pages.num_free) == (4, 4, 0)
    pages.free((0, 1, 2, 3))
    assert pages.alloc(4) == (0, 1, 2, 3)


def test_shrink_when_too_much_is_used_then_refused_and_unchanged() -> None:
    """The refusal names both numbers."""
    pages = PageAllocator(8)
    pages.alloc(5)
    with pytest.raises(BudgetError, match="takes 5 pages, 4 were asked for"):
        pages.shrink(4)
    assert (pages.num_pages, pages.used) == (8, 5)


def test_shrink_when_not_smaller_then_nothing_changes() -> None:
    """Growing is `grow`'s; the other direction never adds pages."""
    pages = PageAllocator(2)
    assert pages.shrink(5) == []
    pages.grow(1)
    assert pages.num_pages == 2


class PageMachine(RuleBasedStateMachine):
    """Owners with data in their pages, through any order of alloc, free, shrink and grow."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageAllocator(6)
        self.tables: list[list[int]] = []
        self.memory: dict[int, tuple[int, int]] = {}
        self.names = 0

    @rule(count=st.integers(0, 4))
    def alloc(self, count: int) -> None:
        """Take pages and write to them."""
        free = self.pages.num_free
        got = self.pages.alloc(count)
        assert (got is None) == (count > free)
        if got is not None:
            self.names += 1
            self.tables.append(list(got))
            self.memory.update({page: (self.names, i) for i, page in enumerate(got)})

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Give one owner's pages back."""
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pages.free(table)

    @rule(num_pages=st.integers(0, 12))
    def resize(self, num_pages: int) -> None:
        """Shrink or grow, and carry the moves out as the pool does."""
        if num_pages >= self.pages.num_pages:
            self.pages.grow(num_pages)
            return
        if self.pages.used > num_pages:
            with pytest.raises(BudgetError):
                self.pages.shrink(num_pages)
            return
        before = [[self.memory[page] for page in table] for table in self.tables]
        moves = dict(self.pages.shrink(num_pages))
        for source, target in moves.items():
            self.memory[target] = self.memory[source]
        self.tables = [[moves.get(page, page) for page in table] for table in self.tables]
        assert [[self.memory[page] for page in table] for table in self.tables] == before

    @invariant()
    def one_owner(self) -> None:
        """No page has two owners, and the sums hold."""
        owned = [page for table in self.tables for page in table]
        assert len(set(owned)) == len(owned) == self.pages.used
        assert all(page < self.pages.num_pages for page in owned)
        assert self.pages.used + self.pages.num_free == self.pages.num_pages


TestPageMachine = PageMachine.TestCase
