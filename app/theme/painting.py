"""Painting in design px: a painter scaled by the zoom, text, pens and the focus ring.

Every painted widget works in px at 100 %: it takes `painter(self)`, the area from `area(self)` and
mouse places from `base_point`; only `setFixedSize` and layouts need `px`.
"""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QWidget

from app.theme.look import base_font, color, theme

LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
CENTER = Qt.AlignmentFlag.AlignCenter


def painter(widget: QWidget) -> QPainter:
    """Return an antialiased painter on `widget`, scaled so that 1 unit is 1 px at 100 %."""
    p = QPainter(widget)
    p.setRenderHint(QPainter.RenderHint.Antialiasing)
    zoom = theme().zoom
    p.scale(zoom, zoom)
    return p


def area(widget: QWidget) -> QRectF:
    """Return the widget's rectangle in px at 100 %."""
    zoom = theme().zoom
    return QRectF(0, 0, widget.width() / zoom, widget.height() / zoom)


def base_point(point: QPointF) -> QPointF:
    """Return a mouse position in px at 100 %."""
    return point / theme().zoom


def text_width(text: str, size: str | int = "body", weight: int = 400, mono: bool = False) -> float:
    """Return the width of a line of text in px at 100 %."""
    return QFontMetricsF(base_font(size, weight, mono)).horizontalAdvance(text)


def elided(
    text: str, width: float, size: str | int = "body", weight: int = 400, mono: bool = False
) -> str:
    """Return `text`, shortened with an ellipsis to `width` px at 100 %."""
    metrics = QFontMetricsF(base_font(size, weight, mono))
    return metrics.elidedText(text, Qt.TextElideMode.ElideRight, width)


def draw_text(  # noqa: PLR0913 - the drawing call of every widget, named arguments at each use
    p: QPainter,
    rect: QRectF | QRect,
    text: str,
    size: str | int = "body",
    role: str | QColor = "text",
    weight: int = 400,
    align: Qt.AlignmentFlag = LEFT,
    mono: bool = False,
    elide: bool = False,
) -> None:
    """Draw one line of text; `role` is a token role or a colour."""
    rect = QRectF(rect)
    p.setFont(base_font(size, weight, mono))
    p.setPen(color(role) if isinstance(role, str) else role)
    if elide:
        text = elided(text, rect.width(), size, weight, mono)
    p.drawText(rect, align.value | Qt.TextFlag.TextSingleLine.value, text)


def pen(
    role: str | QColor,
    width: float = 1.0,
    dash: Sequence[float] | None = None,
    alpha: float | None = None,
) -> QPen:
    """Return a round-capped pen; `dash` in px at 100 %."""
    q = QPen(color(role, alpha) if isinstance(role, str) else role, width)
    q.setCapStyle(Qt.PenCapStyle.FlatCap if dash else Qt.PenCapStyle.RoundCap)
    q.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    if dash:
        q.setDashPattern([step / width for step in dash])
    return q


def draw_ring(p: QPainter, rect: QRectF, radius: float = 6) -> None:
    """Draw the keyboard focus ring on the inner edge of `rect`."""
    p.setBrush(Qt.BrushStyle.NoBrush)
    p.setPen(pen("focus", 2))
    p.drawRoundedRect(rect.adjusted(1, 1, -1, -1), radius, radius)
