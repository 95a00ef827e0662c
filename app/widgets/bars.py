"""A stacked bar for shares of memory or time."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainterPath, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.theme import area, color, follow, painter
from app.widgets.layout import fixed
from app.wording import again


class Bar(QWidget):
    """Parts = (series role, share of 1). Gaps of 1 px keep neighbours apart without colour.

    `mark` is a share with a tick through the bar; `name` says for assistive tools what it shows.
    """

    def __init__(
        self,
        parts: Sequence[tuple[str, float]] = (),
        height: int = 6,
        width: int | None = None,
        mark: float | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        self._parts, self._mark, self._name = tuple(parts), mark, name
        self._height = height
        fixed(self, width, height + (6 if mark is not None else 0))
        follow(self.retheme)

    def set_parts(self, parts: Sequence[tuple[str, float]], mark: float | None = None) -> None:
        """Show other shares."""
        self._parts, self._mark = tuple(parts), mark if mark is not None else self._mark
        self.update()

    def set_name(self, name: str) -> None:
        """Say something else to assistive tools."""
        self._name = name
        self.setAccessibleName(again(name))

    def retheme(self) -> None:
        """Take colours and name from the present theme and language."""
        self.setAccessibleName(again(self._name))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw track, parts and mark."""
        p, whole = painter(self), area(self)
        top = 3 if self._mark is not None else 0
        radius = min(3.0, self._height / 2)
        path = QPainterPath()
        path.addRoundedRect(QRectF(0, top, whole.width(), self._height), radius, radius)
        p.save()
        p.setClipPath(path)
        p.fillRect(whole, color("track"))
        x = 0.0
        for role, share in self._parts:
            width = share * whole.width()
            if width > 0:
                p.fillRect(QRectF(x, top, max(1.0, width - 1), self._height), color(role))
            x += width
        p.restore()
        if self._mark is not None:
            p.fillRect(
                QRectF(self._mark * whole.width() - 1, 0, 2, self._height + 6), color("text")
            )
