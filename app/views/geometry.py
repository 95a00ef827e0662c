"""Where the window was, and whether that is still a place one can see (case G-16). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRect, QSize

_MIN_VISIBLE = 120  # px of the head that must lie on a screen


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """A remembered place: normal rectangle in desktop px, and whether it filled the screen."""

    rect: QRect
    maximized: bool = False

    def text(self) -> str:
        """Return it as text for the settings file."""
        r = self.rect
        return f"{r.x()},{r.y()},{r.width()},{r.height()},{int(self.maximized)}"


def read_place(text: str) -> WindowPlace | None:
    """Return the place written by `WindowPlace.text`; None if it is empty or no place."""
    try:
        x, y, width, height, maximized = (int(part) for part in text.split(","))
    except ValueError:
        return None
    if width <= 0 or height <= 0:
        return None
    return WindowPlace(QRect(x, y, width, height), bool(maximized))


def on_screen(wanted: QRect, screens: Sequence[QRect], least: QSize) -> QRect:
    """Return `wanted` moved and shrunk so that it lies on a screen.

    Units: desktop px. `screens` are the usable areas, the main one first; with none, `wanted` is
    returned. The window stays where it is if enough of its head can be seen and grabbed.
    Returns: a rectangle inside one screen, at least `least` where the screen is that large.
    """
    if not screens:
        return wanted
    home = max(screens, key=lambda screen: _overlap(wanted, screen))
    head = QRect(wanted.x(), wanted.y(), wanted.width(), 40)
    seen = head.intersected(home)
    width = min(max(wanted.width(), least.width()), home.width())
    height = min(max(wanted.height(), least.height()), home.height())
    if _overlap(wanted, home) == 0:
        home = screens[0]
        width, height = min(width, home.width()), min(height, home.height())
        x = home.x() + (home.width() - width) // 2
        y = home.y() + (home.height() - height) // 2
        return QRect(x, y, width, height)
    if (
        seen.width() >= _MIN_VISIBLE
        and seen.height() >= 20
        and wanted.size() == QSize(width, height)
    ):
        return wanted
    x = min(max(wanted.x(), home.x()), home.x() + home.width() - width)
    y = min(max(wanted.y(), home.y()), home.y() + home.height() - height)
    return QRect(x, y, width, height)


def _overlap(a: QRect, b: QRect) -> int:
    both = a.intersected(b)
    return both.width() * both.height() if both.isValid() else 0
