"""The expert cache as one picture: a row per layer, a cell per expert, brightness = uses.

Within a row the resident experts stand left, each group by uses; the stair line is therefore
exactly the edge of what lies on the device now.
"""

import base64
import binascii
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPolygonF
from PySide6.QtWidgets import QWidget

from app.theme import (
    CENTER,
    RIGHT,
    draw_text,
    follow,
    heat_stops,
    painter,
    pen,
    px,
    text_width,
    theme,
)
from app.widgets.charts.frame import Chart
from app.widgets.charts.series import Table
from app.wording import again, tr


@dataclass(frozen=True, slots=True)
class HeatRows:
    """Decoded map: per layer the uses (0..255), residents first, and how many are resident."""

    rows: tuple[bytes, ...]
    resident: tuple[int, ...]
    max_hits: int


def read_map(
    num_layers: int, num_experts: int, hits: str, resident: str, max_hits: int
) -> HeatRows:
    """Decode and sort a CacheMap (base64 of uint8 [num_layers, num_experts]).

    Raises: ValueError if the sizes do not match or the text is no base64.
    """
    try:
        uses, inside = (
            base64.b64decode(hits, validate=True),
            base64.b64decode(resident, validate=True),
        )
    except binascii.Error as problem:
        raise ValueError(f"Not a cache map: {problem}.") from problem
    if not len(uses) == len(inside) == num_layers * num_experts:
        raise ValueError("Not a cache map: the sizes differ.")
    rows, counts = [], []
    for start in range(0, len(uses), num_experts):
        row = list(
            zip(inside[start : start + num_experts], uses[start : start + num_experts], strict=True)
        )
        row.sort(reverse=True)
        rows.append(bytes(use for _, use in row))
        counts.append(sum(1 for held, _ in row if held))
    return HeatRows(tuple(rows), tuple(counts), max_hits)


def ramp() -> list[int]:
    """256 colours from "no uses" to the most, as Qt's RGB numbers."""
    stops = heat_stops()
    return [_mix(stops, i / 255).rgb() for i in range(256)]


def _mix(stops: tuple[QColor, ...], share: float) -> QColor:
    place = min(share, 0.9999) * (len(stops) - 1)
    a, b, f = stops[int(place)], stops[int(place) + 1], place % 1
    red = round(a.red() + (b.red() - a.red()) * f)
    green = round(a.green() + (b.green() - a.green()) * f)
    return QColor(red, green, round(a.blue() + (b.blue() - a.blue()) * f))


class HeatMap(Chart):
    """Layer x expert; kept as one indexed image, so that a new theme only changes its colours."""

    def __init__(self, title: str, empty: str = "") -> None:
        super().__init__(title, tr("layer × expert"), empty, (24, 2, 2, 16))
        self._map: HeatRows | None = None
        self._image = QImage()
        theme().changed.connect(self._recolour)

    def set_rows(self, rows: HeatRows | None) -> None:
        """Show a decoded map; None = nothing."""
        self._map = rows
        if rows is not None and rows.rows:
            width, height = len(rows.rows[0]), len(rows.rows)
            cells = b"".join(rows.rows)
            shape = QImage.Format.Format_Indexed8
            self._image = QImage(cells, width, height, width, shape).copy()  # owns its bytes
            self._image.setColorTable(ramp())
        self.renew()

    def is_empty(self) -> bool:
        """Whether no map came yet."""
        return self._map is None or not self._map.rows

    def summary(self) -> str:
        """How many experts are on the device, of how many."""
        if self._map is None or not self._map.rows:
            return ""
        total = len(self._map.rows) * len(self._map.rows[0])
        return tr(
            "{held} of {total} experts are in the cache", held=sum(self._map.resident), total=total
        )

    def table(self) -> Table:
        """Per layer: how many are resident, and the uses of the busiest expert."""
        heads = (tr("Layer"), tr("In cache"), tr("Uses of the busiest expert"))
        rows: list[tuple[str, ...]] = []
        if self._map is not None:
            top = max(1, self._map.max_hits)
            for i, (row, held) in enumerate(zip(self._map.rows, self._map.resident, strict=True)):
                rows.append((str(i), f"{held:,}", f"{max(row, default=0) * top // 255:,}"))
        return Table(again(self.title), heads, rows)

    def _axes(self, p: QPainter) -> None:
        """No grid: the frame of the picture, and what its edges mean."""
        box = self.plot()
        p.setPen(pen("line"))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawRect(box)
        if self._map is None or not self._map.rows:
            return
        layers, experts = len(self._map.rows), len(self._map.rows[0])
        for share, value in ((0.0, 0), (0.5, (layers - 1) // 2), (1.0, layers - 1)):
            y = box.top() + share * (box.height() - 12) - 2
            draw_text(p, QRectF(0, y, 18, 16), str(value), "caption", "text3", align=RIGHT)
        foot = QRectF(box.left(), box.bottom() + 2, box.width(), 14)
        draw_text(p, foot, "0", "caption", "text3")
        draw_text(p, foot, str(experts - 1), "caption", "text3", align=RIGHT)
        words = tr("by hits; left of line: in the cache")
        draw_text(
            p, foot.adjusted(26, 0, -26, 0), words, "caption", "text3", align=CENTER, elide=True
        )

    def draw(self, p: QPainter) -> None:
        """Paint the image, then the stair line with its casing."""
        if self._map is None:
            return
        box = self.plot()
        smooth = self._image.width() > box.width()  # a cell stays a cell while it has a pixel
        p.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, smooth)
        p.drawImage(box, self._image)
        height, width = box.height() / len(self._map.rows), box.width() / len(self._map.rows[0])
        stairs = QPolygonF()
        for y, held in enumerate(self._map.resident):
            x = box.left() + held * width
            stairs.append(QPointF(x, box.top() + y * height))
            stairs.append(QPointF(x, box.top() + (y + 1) * height))
        p.setBrush(Qt.BrushStyle.NoBrush)
        for role, line in (("surface", 3.4), ("text", 1.4)):
            p.setPen(pen(role, line))
            p.drawPolyline(stairs)
        p.setPen(pen("line"))
        p.drawRect(box)

    def _recolour(self) -> None:
        if not self._image.isNull():
            self._image.setColorTable(ramp())
        self.update()


class HeatScale(QWidget):
    """The ramp with its two ends in figures."""

    def __init__(self) -> None:
        super().__init__()
        self._high = ""
        follow(self._measure)

    def set_high(self, text: str) -> None:
        """Name the bright end, such as "40 / min"."""
        if str(text) != str(self._high):
            self._high = text
            self._measure()

    def _measure(self) -> None:
        words = again(self._high)
        self.setFixedSize(px(round(text_width("0" + words, "caption")) + 62), px(14))
        self.setAccessibleName(tr("Brightness from 0 to {most}", most=words or "0"))
        self.update()

    def paintEvent(self, _event: object) -> None:
        """Draw it."""
        p = painter(self)
        left = text_width("0", "caption") + 5
        stops = heat_stops()
        for i in range(48):
            p.fillRect(QRectF(left + i, 3, 1.2, 8), _mix(stops, i / 48))
        draw_text(p, QRectF(0, 0, left, 14), "0", "caption", "text3")
        draw_text(p, QRectF(left + 53, 0, 90, 14), again(self._high), "caption", "text3")
        p.end()
