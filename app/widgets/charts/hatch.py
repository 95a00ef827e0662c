"""Diagonal lines as a second carrier beside colour: what is not ours, what is not applied yet."""

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QPainter, QPainterPath

from app.theme import pen


def hatch(
    p: QPainter,
    path: QPainterPath,
    role: str,
    pitch: float = 6,
    width: float = 1.5,
    alpha: float = 1.0,
) -> None:
    """Draw diagonals inside `path`, `pitch` px apart; they stand still when it grows."""
    p.save()
    p.setClipPath(path, Qt.ClipOperation.IntersectClip)
    box = path.boundingRect()
    p.setPen(pen(role, width, alpha=alpha))
    x = (box.left() - box.height()) // pitch * pitch
    while x < box.right():
        p.drawLine(QPointF(x, box.bottom()), QPointF(x + box.height(), box.top()))
        x += pitch
    p.restore()
