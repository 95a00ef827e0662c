"""The pyqtgraph side of the curve chart; imported only when one is shown.

x is log2 of bytes, y GB/s from 0. Styled from the tokens, so that a grab looks like the painted
charts.
"""

import math
from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QMouseEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.predict import amounts
from app.theme import color, font, pen, px, text_width
from app.widgets.charts.series import Curve, greatest, nice_ticks, spread
from app.wording import again

_MOST_ROOM = 0.45  # of the width, for words right of the last point
_HALF = 8  # px above the line of the highest figure: half of it, else the axis leaves it out
_WORD = 21  # px above that line, for the word over the working point
_EDGE = 0.1  # of the width
_KEEP = 1.35  # axis may be this much taller than needed before it shrinks


class _SizeAxis(pg.AxisItem):  # type: ignore[misc]
    """Sizes as words at powers of two, thinned to what has room.

    Attributes:
        greatest: log2 of the last size; right of it stand the end words.
    """

    greatest = math.inf

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        """Whole powers of two in view, at least 64 px apart."""
        step = max(1, math.ceil((high - low) / max(1.0, size / px(64))))
        first = math.ceil(low / step) * step
        return [
            (step, [float(v) for v in range(first, math.floor(min(high, self.greatest)) + 1, step)])
        ]

    def tickStrings(self, values: Sequence[float], _scale: float, _spacing: float) -> list[str]:
        """Sizes such as "64 KiB"."""
        return [amounts.memory(2.0**v).replace(".0 ", " ") for v in values]


class _RateAxis(pg.AxisItem):  # type: ignore[misc]
    """Round figures from 0, three or four of them; more when zoomed in.

    Attributes:
        roof: the upper end of the axis over the highest figure, of which it bears the line.
    """

    roof = 1.0

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        """Round steps in view."""
        step = nice_ticks((high - max(low, 0.0)) / (self.roof + 0.005))[1]
        first = math.ceil(low / step - 1e-9)
        return [(step, [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)])]

    def tickStrings(self, values: Sequence[float], _scale: float, _spacing: float) -> list[str]:
        """Plain figures."""
        return [f"{value + 0.0:g}" for value in values]


class Plot(QWidget):
    """Curves with points, end words and the band of the working point."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._curves: tuple[Curve, ...] = ()
        self._point: tuple[float, str] | None = None
        self._labels: list[tuple[pg.TextItem, float, float]] = []
        self._extent = (0.0, 1.0, 1.0)
        self._last = 0.0  # bytes at the end of the longest curve
        self._height = 0
        self._sizes, self._rates = _SizeAxis("bottom"), _RateAxis("left")
        axes = {"bottom": self._sizes, "left": self._rates}
        self._view = pg.PlotWidget(parent=self, axisItems=axes)
        self._view.setMenuEnabled(False)
        self._view.hideButtons()
        self._view.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the chart around it is the stop
        self._view.viewport().setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._view.setFrameShape(pg.QtWidgets.QFrame.Shape.NoFrame)
        item = self._view.getPlotItem()
        item.showGrid(x=False, y=True, alpha=1.0)
        item.getViewBox().setDefaultPadding(0.0)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self._view)

    def draw(self, curves: Sequence[Curve], point: tuple[float, str] | None) -> None:
        """Draw all anew; a profile has some dozens of points, so nothing is kept."""
        fresh = not self._curves or {c.name for c in curves} != {c.name for c in self._curves}
        self._curves, self._point = tuple(curves), point
        self._style()
        item = self._view.getPlotItem()
        item.clear()
        self._labels.clear()
        drawn = [c for c in self._curves if c.points]
        if not drawn:
            return
        self._last = max(curve.points[-1][0] for curve in drawn)
        self._measure(drawn, fresh)
        base = pg.InfiniteLine(0, angle=0, pen=pg.mkPen(color("control", 0.6)))
        self._view.addItem(base)
        if point is not None:
            self._draw_band(point)
        for curve in drawn:
            self._draw_curve(curve)
        self._place_labels()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Show everything again."""
        self._show_all()
        super().mouseDoubleClickEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the end words their room at the new size."""
        super().resizeEvent(event)
        if self._curves:
            self.draw(self._curves, self._point)

    def _style(self) -> None:
        self._view.setBackground(color("surface"))
        for name in ("bottom", "left"):
            axis = self._view.getPlotItem().getAxis(name)
            axis.setPen(color("line", 0.0))
            axis.setTickPen(color("line"))
            axis.setTextPen(color("text3"))
            axis.setTickFont(font("caption"))
            axis.setStyle(tickLength=0, tickTextOffset=px(6), hideOverlappingLabels=False)
        self._view.getPlotItem().getAxis("left").setWidth(px(34))

    def _measure(self, drawn: Sequence[Curve], fresh: bool) -> None:
        sizes = [math.log2(x) for c in drawn for x, _ in c.points]
        if self._point is not None:
            sizes.append(math.log2(max(1.0, self._point[0])))
        low, high = min(sizes), max(sizes)
        span = max(high - low, 4.0)
        self._sizes.greatest = high + 0.01
        top = nice_ticks(greatest([y for c in drawn for _, y in c.points]) * 1.05)[-1]
        if not fresh and self._extent[2] > top > self._extent[2] / _KEEP:
            top = self._extent[2]
        words = max(text_width(again(c.name), "caption", 500) for c in drawn)
        room = min(_MOST_ROOM, px(words + 20) / max(1, self._view.width() - px(34)))
        height = self._view.height()
        wanted = (low - 0.03 * span, low + span / (1 - room), top)
        if wanted != self._extent or height != self._height or fresh:
            self._extent, self._height = wanted, height
            self._show_all()

    def _show_all(self) -> None:
        low, high, top = self._extent
        view = self._view.getPlotItem().getViewBox()
        self._rates.roof = self._roof()
        roof = top * self._rates.roof
        # Below 0 there is room for half a figure: the axis leaves out what would be cut.
        floor = -roof * px(8) / max(px(60), self._view.height())
        view.setLimits(
            xMin=low, xMax=high, yMin=floor, yMax=roof, minXRange=1.0, minYRange=top / 50
        )
        view.setRange(xRange=(low, high), yRange=(floor, roof), padding=0)

    def _roof(self) -> float:
        """The height of the axis over that of its highest line, with room for what is above it."""
        above = _HALF if self._point is None else _WORD
        room = float(max(px(60), self._view.height() - px(24)))  # the sizes stand below
        return 1 + px(above) / (room - px(above))

    def _draw_band(self, point: tuple[float, str]) -> None:
        at = math.log2(max(1.0, point[0]))
        half = 0.012 * (self._extent[1] - self._extent[0])
        brush = color("accent", 0.13)
        item = pg.LinearRegionItem((at - half, at + half), movable=False, brush=brush)
        for line in item.lines:
            line.setPen(pg.mkPen(None))
        self._view.addItem(item)
        low, high, _ = self._extent
        at_edge = (at - low) / (high - low) < _EDGE  # a centred word would be cut there
        word = self._text(again(point[1]), "accentText", (0.0 if at_edge else 0.5, 0.0))
        word.setPos(at - half if at_edge else at, self._extent[2] * self._rates.roof)

    def _draw_curve(self, curve: Curve) -> None:
        xs = [math.log2(x) for x, _ in curve.points]
        ys = [y for _, y in curve.points]
        item = pg.PlotDataItem(
            xs,
            ys,
            pen=_line(curve),
            symbol="o",
            symbolSize=px(6),
            symbolBrush=color(curve.role),
            symbolPen=pg.mkPen(color("surface")),
            antialias=True,
        )
        self._view.addItem(item)
        label = self._text(again(curve.name), "text", (0.0, 0.5))
        if curve.points[-1][0] < self._last:  # it ends among the others
            label.fill = pg.mkBrush(color("surface", 0.85))
        self._labels.append((label, xs[-1], ys[-1]))

    def _text(self, words: str, role: str, anchor: tuple[float, float]) -> pg.TextItem:
        item = pg.TextItem(words, color=color(role), anchor=anchor)
        item.setFont(font("caption", 500))
        self._view.addItem(item)
        return item

    def _place_labels(self) -> None:
        if not self._labels:
            return
        low, high, top = self._extent
        per_pixel = top / max(1, self._view.height() - px(24))
        places = spread([y for _, _, y in self._labels], px(14) * per_pixel, 0.0, top)
        shift = (high - low) * px(8) / max(1, self._view.width())
        for (label, x, _), y in zip(self._labels, places, strict=True):
            label.setPos(x + shift, y)


def _line(curve: Curve) -> QPen:
    line = pen(curve.role, 1.8, curve.dash)
    line.setCosmetic(True)  # the width is in pixels, not in GB/s
    return line
