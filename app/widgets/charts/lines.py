"""Lines over time with words at their right end, and stacked areas over time."""

import math
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QMouseEvent, QPainter, QPainterPath, QPolygonF

from app.predict import amounts
from app.theme import base_point, color, draw_text, pen, text_width
from app.widgets.charts.frame import Chart
from app.widgets.charts.hatch import hatch
from app.widgets.charts.series import (
    ANTIALIAS_POINTS,
    Limit,
    Series,
    Table,
    decimate,
    greatest,
    runs,
    spread,
)
from app.wording import again, tr

_HINTS = QPainter.RenderHint


class TimeChart(Chart):
    """What line and area charts share: values at equal distances in time, newest right.

    The pointer reads values: a hairline and the figures at that moment.
    """

    def __init__(
        self,
        title: str,
        unit: str = "",
        empty: str = "",
        margins: tuple[float, float, float, float] = (30, 8, 44, 16),
        least_top: float = 0.0,
    ) -> None:
        super().__init__(title, unit, empty, margins, least_top)
        self.series: tuple[Series, ...] = ()
        self.span_s = 0.0
        self._pointer: float | None = None
        self.setMouseTracking(True)

    def set_series(self, series: Sequence[Series], span_s: float = 0.0) -> None:
        """Show these series; they cover the last `span_s` seconds (0 = unknown)."""
        self.series, self.span_s = tuple(series), span_s
        self.scale_to(self._high())
        self.renew()

    def is_empty(self) -> bool:
        """Whether no series holds a number."""
        return all(math.isnan(s.last) for s in self.series)

    def summary(self) -> str:
        """Each series with its newest value."""
        known = [s for s in self.series if not math.isnan(s.last)]
        return ", ".join(f"{again(s.name)} {self.value_text(s.last)}" for s in known)

    def table(self) -> Table:
        """Seconds before now, and each series."""
        heads = (tr("Seconds ago"), *(f"{again(s.name)} ({again(self.unit)})" for s in self.series))
        count = max((len(s.values) for s in self.series), default=0)
        rows = []
        for i in range(count):
            values = [s.values[i] for s in self.series if i < len(s.values)]
            if any(math.isfinite(v) for v in values):
                ago = self.span_s * (count - 1 - i) / max(1, count - 1)
                rows.append((f"{ago:.0f}", *(self.value_text(v) for v in values)))
        return Table(again(self.title), tuple(str(h) for h in heads), rows)

    def value_text(self, value: float) -> str:
        """A value as a figure."""
        return amounts.number(value)

    def _high(self) -> float:
        return max((greatest(s.values) for s in self.series), default=0.0)

    def _path(self, p: QPainter, run: list[tuple[int, float]], count: int) -> QPolygonF:
        plot = self.plot()
        p.setRenderHint(_HINTS.Antialiasing, len(run) <= ANTIALIAS_POINTS)
        points = decimate(run, max(1, round(plot.width())))
        left, step, base, scale = self.mapping(count)
        return QPolygonF([QPointF(left + i * step, base - v * scale) for i, v in points])

    # --- reading with the pointer ---------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Read the values under the pointer."""
        plot, place = self.plot(), base_point(event.position())
        self._pointer = (place.x() - plot.left()) / plot.width() if plot.contains(place) else None
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        """Stop reading."""
        self._pointer = None
        self.update()
        super().leaveEvent(event)

    def _draw_reading(self, p: QPainter) -> None:
        count = max((len(s.values) for s in self.series), default=0)
        if self._pointer is None or count < 2:
            return
        index = round(self._pointer * (count - 1))
        found = [(s, s.values[index]) for s in self.series if index < len(s.values)]
        lines = [f"{again(s.name)} {self.value_text(v)}" for s, v in found if math.isfinite(v)]
        if not lines:
            return
        plot, x = self.plot(), self.x_at(index, count)
        p.setPen(pen("text3", 1))
        p.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom()))
        width = max(text_width(line, "caption", 500) for line in lines) + 16
        left = x + 8 if x + 8 + width < plot.right() else x - 8 - width
        box = QRectF(left, plot.top(), width, 14 * len(lines) + 8)
        p.setPen(pen("control", 1, alpha=0.7))
        p.setBrush(color("tooltip"))
        p.drawRoundedRect(box, 5, 5)
        for i, line in enumerate(lines):
            row = QRectF(left + 8, plot.top() + 4 + 14 * i, width, 14)
            draw_text(p, row, line, "caption", "onTooltip", 500)


class LineChart(TimeChart):
    """Lines with their name or newest value at the right end, and dashed limits.

    A line that ended before now keeps its word, in a lesser ink, and a hollow dot.
    """

    def __init__(
        self,
        title: str,
        unit: str = "",
        empty: str = "",
        margins: tuple[float, float, float, float] = (30, 8, 44, 16),
        least_top: float = 0.0,
    ) -> None:
        super().__init__(title, unit, empty, margins, least_top)
        self.limits: tuple[Limit, ...] = ()

    def set_limits(self, limits: Sequence[Limit]) -> None:
        """Show dashed levels; they count for the height of the axis."""
        self.limits = tuple(limits)
        self.scale_to(self._high())
        self.renew()

    def _high(self) -> float:
        return max([super()._high(), *(limit.value for limit in self.limits)])

    def draw(self, p: QPainter) -> None:
        """Paint limits, lines, end dots and end words."""
        plot = self.plot()
        ends: list[tuple[float, str, str, int]] = []
        for limit in self.limits:
            y = round(self.y_at(limit.value)) + 0.5
            p.setPen(pen(limit.role, 1.2, (4, 4), 0.9))
            p.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            ends.append((y, again(limit.label), "text2", 500))
        for series in self.series:
            ends.extend(self._line(p, series))
        p.setRenderHint(_HINTS.Antialiasing, True)
        places = spread([end[0] for end in ends], 13, plot.top(), plot.bottom())
        for y, (_, text, role, weight) in zip(places, ends, strict=True):
            box = QRectF(plot.right() + 6, y - 8, self.margins[2] - 6, 16)
            draw_text(p, box, text, "caption", role, weight, elide=True)
        self._draw_reading(p)

    def _line(self, p: QPainter, series: Series) -> list[tuple[float, str, str, int]]:
        """Paint one series; return the word at its end, if it has one."""
        count, plot, last = len(series.values), self.plot(), None
        for run in runs(series.values):
            path = self._path(p, run, count)
            last = path.at(path.size() - 1)
            if len(self.series) == 1 and path.size() > 1:
                under = QPainterPath()
                under.addPolygon(path)
                under.lineTo(last.x(), plot.bottom())
                under.lineTo(path.at(0).x(), plot.bottom())
                p.fillPath(under, color(series.role, 0.12))
            p.setPen(pen(series.role, 1.8, series.dash))
            p.setBrush(Qt.BrushStyle.NoBrush)
            if path.size() > 1:
                p.drawPolyline(path)
            else:
                p.setBrush(color(series.role))
                p.drawEllipse(last, 0.9, 0.9)
        if last is None:
            return []
        p.setRenderHint(_HINTS.Antialiasing, True)
        is_now = math.isfinite(series.values[-1])
        p.setPen(Qt.PenStyle.NoPen if is_now else pen(series.role, 1.4))
        p.setBrush(color(series.role if is_now else "surface"))
        p.drawEllipse(last, 2.8, 2.8)
        text = self.value_text(series.last) if series.label is None else again(series.label)
        return [(last.y(), text, *(("text", 600) if is_now else ("text3", 500)))]


class StackChart(TimeChart):
    """Stacked areas, bottom first; a role "other" is hatched, "free" is left out by the caller."""

    def _high(self) -> float:
        columns = zip(*(s.values for s in self.series), strict=True) if self.series else ()
        return max((sum(v for v in c if math.isfinite(v)) for c in columns), default=0.0)

    def draw(self, p: QPainter) -> None:
        """Paint the areas; a moment without values is a gap."""
        count = len(self.series[0].values)
        whole = [sum(s.values[i] for s in self.series) for i in range(count)]
        for run in runs(whole):
            base = [0.0] * len(run)
            for series in self.series:
                top = [b + series.values[i] for b, (i, _) in zip(base, run, strict=True)]
                self._area(p, series.role, [i for i, _ in run], base, top)
                base = top
        self._draw_reading(p)

    def _area(
        self, p: QPainter, role: str, at: list[int], base: list[float], top: list[float]
    ) -> None:
        left, step, zero, scale = self.mapping(len(self.series[0].values))
        xs = [left + i * step for i in at]
        if len(xs) == 1:  # one moment only: a sliver, so that it is seen at all
            xs, base, top = [xs[0] - 1, xs[0]], base * 2, top * 2
        upper = [QPointF(x, zero - v * scale) for x, v in zip(xs, top, strict=True)]
        lower = [QPointF(x, zero - v * scale) for x, v in zip(xs, base, strict=True)]
        path = QPainterPath()
        path.addPolygon(QPolygonF(upper + lower[::-1]))
        path.closeSubpath()
        p.fillPath(path, color(role, 0.92))
        if role == "other":
            hatch(p, path, "surface", 6, 1.5, 0.5)
        p.setPen(pen("surface", 1.2))
        p.drawPolyline(QPolygonF(upper))
