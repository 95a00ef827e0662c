"""Stop strings in a stream, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops import StopFilter, longest_tail_that_begins


@given(st.text("abcxy", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_stop_filter_under_any_cut_equals_one_push(text: str, stops: list[str]) -> None:
    """What comes out is the text before the first stop string, however it was cut."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    whole = StopFilter(tuple(stops))
    by_letter = StopFilter(tuple(stops))
    out = "".join(by_letter.push(letter) for letter in text) + by_letter.close()
    assert whole.push(text) + whole.close() == (text[: min(found)] if found else text)
    # By letters, the stop string that is complete first wins, which is never later in the text.
    assert text.startswith(out)
    assert by_letter.stopped == bool(found)
    assert not any(stop in out for stop in stops)


def test_stop_filter_when_a_tail_could_become_a_stop_then_only_that_is_held() -> None:
    """Text is never held back longer than it must be, and comes out at the end."""
    stops = StopFilter(("STOP",))
    assert stops.push("hello ST") == "hello "
    assert stops.push("ART S") == "START "
    assert stops.close() == "S"
    assert longest_tail_that_begins("aba", ("abac", "bab")) == 3
    assert longest_tail_that_begins("STOP", ("STOP",)) == 0
