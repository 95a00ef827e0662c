"""The frame that all painted charts share: grid, axes, marks, empty sentence, values as a table.

A chart without values keeps its frame and says one sentence. Works in px at 100 %.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.predict import amounts
from app.theme import (
    CENTER,
    LEFT,
    RIGHT,
    area,
    color,
    draw_ring,
    draw_text,
    elided,
    painter,
    pen,
    text_width,
    theme,
)
from app.widgets import icons
from app.widgets.charts.series import Mark, Table, nice_ticks
from app.widgets.charts.table import ValuesDialog
from app.widgets.focus import FocusRing
from app.wording import again, tr


class Mapping(NamedTuple):
    """Index and value to px at 100 %: x = left + index * step, y = base - value * scale."""

    left: float
    step: float
    base: float
    scale: float


class Chart(FocusRing, QWidget):
    """Base of the painted charts; a child class paints inside `plot()`.

    Ctrl+Shift+T on a focused chart shows its values as a table.
    """

    def __init__(
        self,
        title: str,
        unit: str = "",
        empty: str = "",
        margins: tuple[float, float, float, float] = (30, 8, 44, 16),
        least_top: float = 0.0,
    ) -> None:
        """Take name, unit of y, sentence without values, margins (left, top, right, bottom).

        The y axis reaches `least_top` at least, so that noise near zero does not fill the frame.
        """
        super().__init__()
        self.title, self.unit, self.empty = title, unit, empty or tr("Nothing measured yet.")
        self.margins, self.least_top = margins, least_top
        self.ticks: tuple[float, ...] = nice_ticks(0, least_top)
        self.fixed_top = 0.0
        self.x_labels: tuple[str, ...] = ()
        self.marks: tuple[Mark, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(120, 60)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._tell_name()
        theme().changed.connect(self._retell)

    # --- for child classes ------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return True

    def table(self) -> Table:
        """The values in words."""
        return Table(again(self.title), (again(self.title),))

    def draw(self, p: QPainter) -> None:
        """Paint the values; grid and axes are there already."""

    def summary(self) -> str:
        """The newest values in one line, for assistive tools."""
        return ""

    def set_empty(self, sentence: str) -> None:
        """Say something else while there are no values."""
        self.empty = sentence
        self.renew()

    # --- geometry ---------------------------------------------------------------------------

    def plot(self) -> QRectF:
        """The inner rectangle in px at 100 %."""
        left, top, right, bottom = self.margins
        return area(self).adjusted(left, top, -right, -bottom)

    def y_at(self, value: float) -> float:
        """The y place of a value."""
        plot, low, high = self.plot(), self.ticks[0], self.ticks[-1]
        return plot.bottom() - (value - low) / ((high - low) or 1) * plot.height()

    def x_at(self, index: int, count: int) -> float:
        """The x place of one of `count` values at equal distances."""
        plot = self.plot()
        return plot.left() + index / max(1, count - 1) * plot.width()

    def mapping(self, count: int) -> "Mapping":
        """Both axes as plain factors, for loops over many points."""
        plot, low, high = self.plot(), self.ticks[0], self.ticks[-1]
        scale = plot.height() / ((high - low) or 1)
        step = plot.width() / max(1, count - 1)
        return Mapping(plot.left(), step, plot.bottom() + low * scale, scale)

    def scale_to(self, high: float) -> None:
        """Choose ticks that cover `high`; keep taller ones until they are clearly too tall.

        With `fixed_top` (a device's memory) the axis always ends there.
        """
        if self.fixed_top > 0:
            self.ticks = (0.0, self.fixed_top / 2, self.fixed_top)
            return
        wanted = nice_ticks(high, self.least_top)
        if wanted[-1] > self.ticks[-1] or wanted[-1] < 0.7 * self.ticks[-1]:
            self.ticks = wanted

    def set_title(self, title: str) -> None:
        """Say another name to assistive tools and over the table."""
        self.title = title
        self._tell_name()

    def set_x_labels(self, labels: Sequence[str]) -> None:
        """Words at equal distances along the x axis."""
        self.x_labels = tuple(labels)
        self.update()

    def set_marks(self, marks: Sequence[Mark]) -> None:
        """Events along the x axis."""
        self.marks = tuple(marks)
        self.update()

    def renew(self) -> None:
        """Values have changed: say so to assistive tools, and paint if somebody sees it."""
        if self.isVisible():
            self.setAccessibleDescription(self.summary())
            self.update()

    def show_table(self) -> ValuesDialog:
        """Open the values as a table and return the dialog."""
        dialog = ValuesDialog(self.table(), self)
        dialog.open()
        return dialog

    # --- Qt ---------------------------------------------------------------------------------

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint axes, then values or the sentence, then the focus ring."""
        p = painter(self)
        self._axes(p)
        if self.is_empty():
            self._say_empty(p)
        else:
            self.draw(p)
            self._draw_marks(p)
        if self.ring:
            draw_ring(p, area(self))
        p.end()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+Shift+T opens the values."""
        keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if event.key() == Qt.Key.Key_T and event.modifiers() == keys:
            self.show_table()
        else:
            super().keyPressEvent(event)

    # --- parts ------------------------------------------------------------------------------

    def tick_text(self, value: float) -> str:
        """A figure of the y axis."""
        return f"{value:g}" if abs(value) < 10_000 else amounts.number(value)

    def _axes(self, p: QPainter) -> None:
        plot = self.plot()
        for value in self.ticks:
            y = round(self.y_at(value)) + 0.5
            base = value == self.ticks[0]
            p.setPen(pen("control" if base else "line", 1, alpha=0.6 if base else 1))
            p.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            box = QRectF(0, y - 8, plot.left() - 6, 16)
            draw_text(p, box, self.tick_text(value), "caption", "text3", align=RIGHT)
        count = len(self.x_labels)
        for i, text in enumerate(self.x_labels):
            x = self.x_at(i, count)
            align, shift = CENTER, 40.0
            if i == 0:
                align, shift = LEFT, 0.0
            elif i == count - 1:
                align, shift = RIGHT, 80.0
            box = QRectF(x - shift, plot.bottom() + 2, 80, 14)
            draw_text(p, box, again(text), "caption", "text3", align=align)

    def _draw_marks(self, p: QPainter) -> None:
        plot, free_from = self.plot(), -math.inf
        for mark in sorted(self.marks, key=lambda m: m.at):
            x = round(plot.left() + mark.at * plot.width()) + 0.5
            p.setPen(pen("text2", 1, (2, 2)))
            p.drawLine(QPointF(x, plot.top() - 4), QPointF(x, plot.bottom()))
            if x < free_from:
                continue  # the line stays, its word would cover the one before
            icons.draw(p, mark.icon, QRectF(x - 6, plot.top() - 17, 12, 12), mark.role, 1.9)
            words = again(mark.text)
            width = text_width(words, "caption") + 2
            if x + 9 + width <= plot.right() + self.margins[2]:
                place, free_from = QRectF(x + 9, plot.top() - 18, width, 14), x + 16 + width
            elif x - 9 - width >= max(free_from, plot.left()):
                place, free_from = QRectF(x - 9 - width, plot.top() - 18, width, 14), x + 16
            else:
                continue
            draw_text(p, place, words, "caption", "text2")

    def _say_empty(self, p: QPainter) -> None:
        """The one sentence, on the ground of the card so that no grid line crosses it."""
        box = self.plot().adjusted(0, 0, self.margins[2] - 8, 0)
        words = elided(again(self.empty), box.width() - 12, "meta")
        width = text_width(words, "meta") + 12
        middle = QRectF(box.center().x() - width / 2, box.center().y() - 10, width, 20)
        p.fillRect(middle, color("surface"))
        draw_text(p, middle, words, "meta", "text2", align=CENTER)

    def _tell_name(self) -> None:
        name = again(self.title)
        self.setAccessibleName(f"{name}, {again(self.unit)}" if self.unit else name)

    def _retell(self) -> None:
        """Another language, tone or zoom."""
        self._tell_name()
        self.setAccessibleDescription(self.summary())
        self.update()
