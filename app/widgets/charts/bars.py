"""Bars that carry a judgement: this machine beside others, a predicted range with today in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.predict import amounts
from app.theme import CENTER, RIGHT, area, color, draw_text, follow, painter, pen, px, text_width
from app.widgets.charts.frame import Chart
from app.widgets.charts.series import Table, nice_ticks
from app.wording import again, tr

_ROW, _HEAD = 25.0, 18.0


@dataclass(frozen=True, slots=True)
class PairRow:
    """One machine: two rates in GB/s, NaN = not measured; `mine` = the one at hand."""

    name: str
    fill: float
    cpu: float
    mine: bool = False
    detail: str = ""


class PairBars(Chart):
    """B_P and B_H of this machine above the reference machines: bars left, figures right."""

    def __init__(self, title: str) -> None:
        super().__init__(title, "GB/s")
        self.rows: tuple[PairRow, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)

    def set_rows(self, rows: Sequence[PairRow]) -> None:
        """Show these machines, in this order."""
        self.rows = tuple(rows)
        self._retell()
        self.renew()

    def is_empty(self) -> bool:
        """Whether there is no machine at all."""
        return not self.rows

    def summary(self) -> str:
        """This machine's two rates."""
        own = next((row for row in self.rows if row.mine), None)
        if own is None or math.isnan(own.fill):
            return ""
        return f"B_P {amounts.number(own.fill)} GB/s, B_H {amounts.number(own.cpu)} GB/s"

    def table(self) -> Table:
        """All machines with both rates and their ratio."""
        rows: list[tuple[str, ...]] = [
            (again(row.name), amounts.number(row.fill), amounts.number(row.cpu), _ratio(row))
            for row in self.rows
        ]
        return Table(again(self.title), (tr("Machine"), "B_P GB/s", "B_H GB/s", "B_P/B_H"), rows)

    def _axes(self, p: QPainter) -> None:
        """The grid belongs to the bars; it is drawn with them."""

    def draw(self, p: QPainter) -> None:
        """Paint scale, heads and rows."""
        box = area(self)
        names = max(text_width(again(row.name), "meta", 600) for row in self.rows)
        left = min(max(100.0, names + 20), 0.36 * box.width())
        columns = (
            ("B\u209a", "fill", 46.0),
            ("B\u2095", "cpu", 46.0),
            ("B\u209a/B\u2095", "", 56.0),
        )
        right = box.width() - 8 - sum(width for _, _, width in columns)
        room, end = right - left - 10, _HEAD + len(self.rows) * _ROW
        ticks = nice_ticks(max(v for row in self.rows for v in (row.fill, row.cpu) if v == v))
        for tick in ticks:
            x = round(left + tick / ticks[-1] * room) + 0.5
            p.fillRect(QRectF(x - 0.5, _HEAD, 1, end - _HEAD), color("line"))
            place = QRectF(x - 30, end + 3, 60, 14)
            draw_text(p, place, self.tick_text(tick), "caption", "text3", align=CENTER)
        x = right
        for title, role, width in columns:
            word = text_width(title, "caption", 500)
            draw_text(p, QRectF(x, 0, width, 15), title, "caption", "text2", 500, RIGHT)
            if role:
                p.setPen(Qt.PenStyle.NoPen)
                p.setBrush(color(role))
                p.drawRoundedRect(QRectF(x + width - word - 13, 4, 8, 8), 2, 2)
            x += width
        for i, row in enumerate(self.rows):
            place = QRectF(0, _HEAD + i * _ROW, box.width(), _ROW)
            self._row(p, place, row, (left, room / ticks[-1], right, columns))

    def _row(
        self,
        p: QPainter,
        box: QRectF,
        row: PairRow,
        geometry: tuple[float, float, float, tuple[tuple[str, str, float], ...]],
    ) -> None:
        left, scale, x, columns = geometry
        role, weight = ("text", 600) if row.mine else ("text2", 400)
        p.setPen(Qt.PenStyle.NoPen)
        if row.mine:
            p.setBrush(color("selected"))
            p.drawRoundedRect(box.adjusted(0, 0, 0, -1), 5, 5)
        name = QRectF(8, box.top(), left - 12, _ROW - 1)
        draw_text(p, name, again(row.name), "meta", role, weight, elide=True)
        p.setPen(Qt.PenStyle.NoPen)
        for k, (series, value) in enumerate((("fill", row.fill), ("cpu", row.cpu))):
            if math.isfinite(value):
                p.setBrush(color(series))
                bar = QRectF(left, box.top() + 4 + k * 9, max(1.5, value * scale), 7)
                p.drawRoundedRect(bar, 2, 2)
        figures = (amounts.number(row.fill), amounts.number(row.cpu), _ratio(row))
        for text, (_, _, width) in zip(figures, columns, strict=True):
            cell = QRectF(x, box.top(), width, _ROW - 1)
            draw_text(p, cell, text, "meta", role, weight, RIGHT)
            x += width

    def _retell(self) -> None:
        super()._retell()
        self.setFixedHeight(px(len(self.rows) * _ROW + _HEAD + 20))


def _ratio(row: PairRow) -> str:
    return f"{row.fill / row.cpu:.2f}" if row.cpu and math.isfinite(row.fill / row.cpu) else "–"


@dataclass(frozen=True, slots=True)
class RangeValue:
    """A predicted range, its middle, and the measured value of now."""

    low: float
    middle: float
    high: float
    now: float


class RangeBar(QWidget):
    """Pale = range, stick = middle, hollow dot = now. Without a value an empty track."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        self._value: RangeValue | None = None
        follow(self._measure)

    def set_value(self, value: RangeValue | None) -> None:
        """Show a range; None = nothing predicted."""
        self._value = value
        self._measure()

    def _measure(self) -> None:
        self.setFixedHeight(px(36))
        text = tr("No prediction")
        if self._value:
            low, high, now = map(
                amounts.number, (self._value.low, self._value.high, self._value.now)
            )
            text = tr(
                "Predicted {low} to {high} {unit}, now {now}",
                low=low,
                high=high,
                unit=self._unit,
                now=now,
            )
        self.setAccessibleName(text)
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        p, width, y = painter(self), area(self).width(), 9.0
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(color("track"))
        p.drawRoundedRect(QRectF(0, y - 2, width, 4), 2, 2)
        if self._value:
            self._draw_value(p, self._value, width, y)
        p.end()

    def _draw_value(self, p: QPainter, value: RangeValue, width: float, y: float) -> None:
        low, high = min(value.low, value.now), max(value.high, value.now)
        room = max(high - low, 0.1 * high, 1e-6)
        start = max(0.0, (low + high) / 2 - 0.8 * room)

        def x(v: float) -> float:
            return 5 + min(1.0, (v - start) / (1.6 * room)) * (width - 10)

        p.setBrush(color("accent", 0.38))
        p.drawRoundedRect(
            QRectF(x(value.low), y - 5, max(3.0, x(value.high) - x(value.low)), 10), 5, 5
        )
        p.setBrush(color("accent"))
        p.drawRoundedRect(QRectF(x(value.middle) - 1.5, y - 7, 3, 14), 1.5, 1.5)
        p.setBrush(color("surface"))
        p.setPen(pen("text", 1.6))
        p.drawEllipse(QRectF(x(value.now) - 4, y - 4, 8, 8))
        now = tr("now {value}", value=amounts.number(value.now))
        ends = (amounts.number(value.low), amounts.number(value.high))
        span = ends[0] if ends[0] == ends[1] else "–".join(ends)
        now_w, span_w = text_width(now, "caption"), text_width(span, "caption", 500)
        now_x = min(max(0.0, x(value.now) - now_w / 2), width - now_w)
        span_x = min(max(0.0, (x(value.low) + x(value.high) - span_w) / 2), width - span_w)
        if now_x < span_x + span_w + 8 and span_x < now_x + now_w + 8:  # side by side instead
            if value.now <= value.middle:
                now_x = max(0.0, min(now_x, span_x - now_w - 10))
                span_x = min(max(span_x, now_x + now_w + 10), width - span_w)
            else:
                span_x = max(0.0, min(span_x, now_x - span_w - 10))
                now_x = min(max(now_x, span_x + span_w + 10), width - now_w)
        draw_text(p, QRectF(now_x, 19, now_w + 4, 14), now, "caption", "text2")
        draw_text(p, QRectF(span_x, 19, span_w + 4, 14), span, "caption", "text2", 500)


class Sparkline(QWidget):
    """A small line without axes, beside a figure that names it."""

    def __init__(self, name: str, role: str = "accent", width: int = 96, height: int = 22) -> None:
        super().__init__()
        self._name, self._role, self._size = name, role, (width, height)
        self._values: tuple[float, ...] = ()
        follow(self._measure)

    def set_values(self, values: Sequence[float]) -> None:
        """Show these values, oldest first; NaN are left out."""
        self._values = tuple(v for v in values if math.isfinite(v))
        self.update()

    def _measure(self) -> None:
        self.setFixedSize(px(self._size[0]), px(self._size[1]))
        self.setAccessibleName(again(self._name))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        if len(self._values) < 2:
            return
        p, box = painter(self), area(self).adjusted(2, 3, -3, -2)
        top = max(self._values) or 1.0
        points = [
            (
                box.left() + i / (len(self._values) - 1) * box.width(),
                box.bottom() - v / top * box.height(),
            )
            for i, v in enumerate(self._values)
        ]
        p.setPen(pen(self._role, 1.4))
        p.drawPolyline([QPointF(*q) for q in points])
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(color(self._role))
        p.drawEllipse(QPointF(*points[-1]), 2.2, 2.2)
        p.end()
