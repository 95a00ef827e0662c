"""Sums of heights: whatever is changed, they are those of a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.widgets.chat.heights import FRAME, LINE, Heights, estimate

SIZES = st.lists(st.integers(1, 900), min_size=1, max_size=40)
CHANGES = st.lists(
    st.tuples(st.sampled_from(("set", "tail")), st.integers(0, 39), st.integers(1, 900)),
    max_size=12,
)


@given(SIZES, CHANGES, st.integers(-50, 40_000))
def test_heights_when_changed_at_random_then_sums_and_places_are_those_of_a_list(sizes, changes, y):
    """`top`, `total` and `at` after every change, with sums taken in between or not."""
    kept, plain = Heights(sizes), list(sizes)
    for kind, where, size in changes:
        index = where % len(plain)
        if kind == "set":
            kept.set(index, size)
            plain[index] = size
        else:
            kept.replace_from(index, [size] * (where % 5 + 1))
            plain[index:] = [size] * (where % 5 + 1)
        if where % 2:
            assert kept.total == sum(plain)
    covering = [i for i in range(len(plain)) if sum(plain[:i]) <= max(0, y)]
    assert kept.at(y) == covering[-1]
    assert [kept.top(i) for i in range(len(plain) + 1)] == [
        sum(plain[:i]) for i in range(len(plain) + 1)
    ]
    assert kept.total == sum(plain)
    assert len(kept) == len(plain)


def test_heights_when_the_last_of_thousands_grows_then_those_above_are_not_summed_again():
    """A reply that grows at the end of a long chat costs one sum, not thousands."""
    kept = Heights([100] * 5_000)
    assert kept.total == 500_000
    kept.set(4_999, 150)
    assert len(kept._tops) == 5_000
    assert kept.total == 500_050


def test_heights_when_empty_then_nothing_covers_a_place():
    """An empty column has a height of 0 and no item to name."""
    assert Heights().total == 0
    with pytest.raises(IndexError):
        Heights().at(0)


@given(st.text("ab \n", max_size=400), st.integers(60, 900))
def test_estimate_then_it_grows_with_lines_and_never_hides_a_message(text, width):
    """At least one line with its frame; a line more is never lower."""
    assert estimate(text, width) >= FRAME + LINE
    assert estimate(text + "\n", width) >= estimate(text, width)
