"""The window comes back where it can be seen (case G-16)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PySide6.QtCore import QRect, QSize

from app.views.geometry import WindowPlace, on_screen, read_place

LEAST = QSize(900, 600)
MAIN = QRect(0, 0, 1920, 1040)
SIDE = QRect(1920, 0, 2560, 1400)


@pytest.mark.parametrize(
    ("wanted", "screens", "place"),
    [
        (QRect(100, 80, 1180, 760), [MAIN], QRect(100, 80, 1180, 760)),
        (QRect(5000, 50, 1180, 760), [MAIN], QRect(370, 140, 1180, 760)),
        (QRect(2200, 100, 1180, 760), [MAIN], QRect(370, 140, 1180, 760)),
        (QRect(2200, 100, 1180, 760), [MAIN, SIDE], QRect(2200, 100, 1180, 760)),
        (QRect(1850, 100, 1180, 760), [MAIN], QRect(740, 100, 1180, 760)),
        (QRect(100, -300, 1180, 760), [MAIN], QRect(100, 0, 1180, 760)),
        (QRect(0, 0, 4000, 3000), [MAIN], QRect(0, 0, 1920, 1040)),
        (QRect(10, 10, 200, 100), [MAIN], QRect(10, 10, 900, 600)),
    ],
)
def test_on_screen_then_the_window_can_be_seen(
    wanted: QRect, screens: list[QRect], place: QRect
) -> None:
    """Off the screen, on a screen that was taken away, above the top, too large, too small."""
    assert on_screen(wanted, screens, LEAST) == place


numbers = st.integers(-20_000, 20_000)
sizes = st.integers(1, 8000)


@given(numbers, numbers, sizes, sizes)
@example(0, 1021, 2040, 600)  # low on one screen, high on the other
def test_on_screen_from_anywhere_then_its_head_can_be_grabbed(
    x: int, y: int, width: int, height: int
) -> None:
    """Whatever stands in the settings file."""
    found = on_screen(QRect(x, y, width, height), [MAIN, SIDE], LEAST)
    head = QRect(found.x(), found.y(), found.width(), 40)
    seen = [head.intersected(screen) for screen in (MAIN, SIDE)]
    assert any(part.width() >= 120 and part.height() >= 20 for part in seen)


def test_on_screen_without_a_screen_then_nothing_changes() -> None:
    """A headless platform."""
    assert on_screen(QRect(1, 2, 3, 4), [], LEAST) == QRect(1, 2, 3, 4)


@pytest.mark.parametrize("text", ["", "abc", "1,2,3", "1,2,0,5,0", "1,2,3,4,5,6", "a,b,c,d,e"])
def test_read_place_when_damaged_then_none(text: str) -> None:
    """A settings file may hold anything."""
    assert read_place(text) is None


@given(numbers, numbers, sizes, sizes, st.booleans())
def test_place_then_text_and_back(x: int, y: int, width: int, height: int, full: bool) -> None:
    """What is written is what is read."""
    place = WindowPlace(QRect(x, y, width, height), full)
    assert read_place(place.text()) == place
