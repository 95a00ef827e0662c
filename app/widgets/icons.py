"""The icon set: 20 x 20 grid, 1.5 px stroke, drawn in the ink of the text beside it.

The drawings are SVG files in `resources/icons`, with `currentColor` and a stroke width that are
filled in here, so that they stay sharp at every scale and follow the theme.
"""

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.theme import color, px, theme
from engine.protocol.places import resources_dir


@lru_cache(maxsize=256)
def _source(name: str) -> str:
    return (resources_dir() / "icons" / f"{name}.svg").read_text("utf-8")


def _renderer(name: str, ink: str, width: float) -> QSvgRenderer:
    """Return the renderer for an icon in one ink, kept with the theme."""
    key = (name, ink, width)
    cache = theme().renderers
    found = cache.get(key)
    if not isinstance(found, QSvgRenderer):
        svg = _source(name).replace("currentColor", ink)
        svg = svg.replace('stroke-width="1.5"', f'stroke-width="{width}"')
        found = QSvgRenderer(QByteArray(svg.encode()))
        cache[key] = found
    return found


def draw(
    p: QPainter, name: str, rect: QRectF, role: str | QColor = "text2", width: float = 1.5
) -> None:
    """Draw an icon into `rect`; strokes of 1.8-2 suit sizes below 13 px.

    Raises:
        FileNotFoundError: there is no icon of that name.
    """
    ink = color(role) if isinstance(role, str) else role
    _renderer(name, ink.name(), width).render(p, rect)


def icon(name: str, role: str = "text2", size: int = 16) -> QIcon:
    """Return a QIcon for Qt's own parts (menus, actions); made for the present theme."""
    side, ratio = px(size), 2
    found = _renderer(name, color(role).name(), 1.5)  # before a painter is open: it may raise
    pixmap = QPixmap(QSize(side, side) * ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    p = QPainter(pixmap)
    found.render(p, QRectF(0, 0, side * ratio, side * ratio))
    p.end()
    pixmap.setDevicePixelRatio(ratio)
    return QIcon(pixmap)
