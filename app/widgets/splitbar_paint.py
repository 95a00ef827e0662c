"""How the split bar is drawn. Works in px at 100 % on a finished description; decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath

from app.predict import amounts
from app.predict.split import ORDER, Divider, PartName, Phase
from app.theme import CENTER, LEFT, RIGHT, SIZE, color, draw_text, pen, text_width
from app.widgets import icons
from app.widgets.charts.hatch import hatch
from app.widgets.splitbar_words import NAMES
from app.wording import again, tr

RULER, BAR, LABELS = 26.0, float(SIZE["splitBar"]), 40.0
HEIGHT = RULER + BAR + LABELS
_LEFT_GROUP: tuple[PartName, ...] = ("weights", "kv", "experts")
_RIGHT_GROUP: tuple[PartName, ...] = ("other", "free", "runtime")
_OPTIONAL = ("runtime", "other")  # without a label when there are none
_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

Sizes = Mapping[PartName, float]


@dataclass(slots=True)
class Picture:
    """Everything one drawing needs; sizes in bytes.

    Attributes:
        width: px at 100 %.
        shown, applied: what is drawn, and what holds in the engine.
        asked: what was refused, drawn until the next input.
        hot: the divider under the pointer or the keyboard.
        turn: 0..1, place of the arc while something is pending.
    """

    width: float
    total: float
    shown: Sizes
    applied: Sizes
    phase: Phase = Phase.IDLE
    active: Divider = Divider.KV
    hot: Divider | None = None
    movable: bool = True
    asked: Sizes | None = None
    bubble: str = ""
    inside: Mapping[str, str] = field(default_factory=dict)
    ring: bool = False
    turn: float = 0.0

    def x(self, size_bytes: float) -> float:
        """The place of a size on the bar."""
        return size_bytes / self.total * self.width if self.total else 0.0

    def spans(self, sizes: Sizes) -> dict[PartName, tuple[float, float]]:
        """Left and right edge of every part."""
        found: dict[PartName, tuple[float, float]] = {}
        at = 0.0
        for name in ORDER:
            found[name] = (self.x(at), self.x(at + sizes[name]))
            at += sizes[name]
        return found

    def divider_x(self, sizes: Sizes, divider: Divider) -> float:
        """The place of a divider: the right edge of its left part."""
        return self.spans(sizes)["kv" if divider is Divider.KV else "experts"][1]

    @property
    def is_moved(self) -> bool:
        """Whether a ghost is due."""
        return self.phase in (Phase.PREVIEW, Phase.PENDING)


def paint(p: QPainter, picture: Picture) -> None:
    """Draw the whole bar."""
    _ruler(p, picture)
    _segments(p, picture)
    _inside(p, picture)
    if picture.is_moved:
        _land(p, picture)
    if picture.movable:
        for divider in Divider:
            _handle(p, picture, divider)
    if picture.is_moved:
        _ghosts(p, picture)
    if picture.phase is Phase.REFUSED and picture.asked is not None:
        _asked(p, picture, picture.asked)
    _labels(p, picture)
    if picture.bubble:
        _bubble(p, picture)


def ruler_step(total: float) -> tuple[float, int, str]:
    """Return the distance of ticks in bytes, every how many get a figure, and the unit's name."""
    unit, name = amounts.memory_unit(total)
    step = next((s for s in _STEPS if total / unit / s <= 9), _STEPS[-1])
    return float(step * unit), 2, name


def _ruler(p: QPainter, picture: Picture) -> None:
    step, every, name = ruler_step(picture.total)
    unit, _ = amounts.memory_unit(picture.total)
    end = f"{amounts.in_unit(picture.total, unit).removesuffix('.0')} {name}"
    limit = picture.width - text_width(end, "caption") - 10
    tick = 0
    while tick * step <= picture.total:
        x = min(max(picture.x(tick * step), 0.5), picture.width - 0.5)
        p.setPen(pen("control", 1, alpha=0.8))
        p.drawLine(QPointF(x, RULER - 6), QPointF(x, RULER - 3))
        figure = f"{tick * step / unit:g}"
        if tick == 0:
            draw_text(p, QRectF(0, 0, 60, 18), figure, "caption", "text3")
        elif tick % every == 0 and x + text_width(figure, "caption") / 2 < limit:
            draw_text(p, QRectF(x - 40, 0, 80, 18), figure, "caption", "text3", align=CENTER)
        tick += 1
    draw_text(p, QRectF(0, 0, picture.width, 18), end, "caption", "text3", align=RIGHT)


def _segments(p: QPainter, picture: Picture) -> None:
    clip = QPainterPath()
    clip.addRoundedRect(QRectF(0, RULER, picture.width, BAR), 6, 6)
    p.save()
    p.setClipPath(clip)
    p.fillRect(QRectF(0, RULER, picture.width, BAR), color("surface"))
    for name, (a, b) in picture.spans(picture.shown).items():
        if picture.shown[name] <= 0:
            continue
        box = QRectF(a, RULER, max(1.0, b - a - 2), BAR)
        if name == "free":
            p.fillRect(box, color("track"))
            p.setPen(pen("control", 1))
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            continue
        p.fillRect(box, color(name))
        if name == "other":
            path = QPainterPath()
            path.addRect(box)
            hatch(p, path, "surface", 7, 2, 0.45)
    p.restore()


def _inside(p: QPainter, picture: Picture) -> None:
    """Words inside a part, where they fit with 36 px to spare."""
    spans = picture.spans(picture.shown)
    inks: tuple[tuple[PartName, str], ...] = (("weights", "onWeights"), ("experts", "onExperts"))
    for name, ink in inks:
        text = again(picture.inside.get(name, ""))
        a, b = spans[name]
        x = a + 12
        if name == "weights":
            x = a + 29
        elif picture.is_moved:  # keep clear of the handle and of the ghost
            x = max(x + 6, picture.divider_x(picture.applied, Divider.KV) + 12)
            b = min(b, picture.divider_x(picture.applied, Divider.EXPERTS))
        else:
            x += 6
        if not text or b - x < text_width(text, "meta", 600) + 18:
            continue
        if name == "weights":
            lock = QRectF(a + 10, RULER + 13, 14, 14)
            icons.draw(p, "lock", lock, ink, 1.7)
        draw_text(p, QRectF(x, RULER, b - x, BAR), text, "meta", ink, 600)


def _land(p: QPainter, picture: Picture) -> None:
    """Hatch what changes hands, in the new owner's colour."""
    for divider in Divider:
        here = picture.divider_x(picture.shown, divider)
        there = picture.divider_x(picture.applied, divider)
        if divider is Divider.EXPERTS and here < there:  # the graphs move along, free memory gains
            here = picture.spans(picture.shown)["free"][0]
            there = picture.spans(picture.applied)["free"][0]
        a, b = sorted((here, there))
        if b - a > 3:
            path = QPainterPath()
            path.addRect(QRectF(a + 2, RULER, b - a - 2, BAR))
            hatch(p, path, "surface", 7, 2.4, 0.55)


def _handle(p: QPainter, picture: Picture, divider: Divider) -> None:
    active = divider is picture.active
    hot = divider is picture.hot or (active and (picture.ring or picture.phase is not Phase.IDLE))
    x = picture.divider_x(picture.shown, divider) - 1
    top, height, width = (RULER - 5, BAR + 10, 8.0) if hot else (RULER - 2, BAR + 4, 6.0)
    x = min(max(x, width / 2), picture.width - width / 2)
    body = QRectF(x - width / 2 - 1, top - 1, width + 2, height + 2)
    p.setPen(pen("surface", 2))
    p.setBrush(color("text"))
    p.drawRoundedRect(body, width / 2 + 1, width / 2 + 1)
    p.setPen(pen("surface", 1, alpha=0.9))
    middle = QPointF(x, RULER + BAR / 2)
    for dy in (-4, 0, 4):
        at = middle + QPointF(0, dy)
        p.drawLine(at - QPointF(1.2, 0), at + QPointF(1.2, 0))
    ringed = picture.ring or picture.phase is Phase.PREVIEW or divider is picture.hot
    if hot and ringed and (active or divider is picture.hot):
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.setPen(pen("focus", 2))
        p.drawRoundedRect(body.adjusted(-2, -2, 2, 2), width / 2 + 3, width / 2 + 3)
    if active and picture.phase is Phase.PENDING:
        _badge(p, middle, "surface", "control")
        p.setPen(pen("track", 2))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawEllipse(middle, 5, 5)
        p.setPen(pen("link", 2))
        start = round((90 - 360 * picture.turn) * 16)
        p.drawArc(QRectF(x - 5, middle.y() - 5, 10, 10), start, -120 * 16)
    elif active and picture.phase is Phase.APPLIED:
        _badge(p, middle, "accentSoft", "accent")
        icons.draw(p, "check", QRectF(x - 6, middle.y() - 6, 12, 12), "accentText", 2)


def _badge(p: QPainter, middle: QPointF, fill: str, edge: str) -> None:
    p.setBrush(color(fill))
    p.setPen(pen(edge, 1))
    p.drawEllipse(middle, 10, 10)


def _ghosts(p: QPainter, picture: Picture) -> None:
    """Where the engine's division still stands."""
    for divider in Divider:
        x = picture.divider_x(picture.applied, divider) - 1
        if abs(x + 1 - picture.divider_x(picture.shown, divider)) < 2:
            continue
        p.setPen(pen("text", 1.5, (3, 3)))
        p.drawLine(QPointF(x, RULER - 2), QPointF(x, RULER + BAR + 2))
        p.setPen(pen("text", 1.6))
        p.setBrush(color("surface"))
        p.drawEllipse(QPointF(x, RULER + BAR + 6), 3.6, 3.6)


def _asked(p: QPainter, picture: Picture, asked: Sizes) -> None:
    x = picture.divider_x(asked, picture.active)
    p.setPen(pen("danger", 2, (3, 3)))
    p.drawLine(QPointF(x, RULER - 4), QPointF(x, RULER + BAR + 4))
    p.setPen(Qt.PenStyle.NoPen)
    p.setBrush(color("surface"))
    p.drawEllipse(QPointF(x, RULER + BAR / 2), 9, 9)
    icons.draw(p, "error", QRectF(x - 8, RULER + BAR / 2 - 8, 16, 16), "danger", 1.8)


def _labels(p: QPainter, picture: Picture) -> None:
    """The left group flows right, the right group flows left, so that none overlap."""
    spans = picture.spans(picture.shown)
    texts = {name: _label_text(picture, name) for name in ORDER}
    places: dict[PartName, float] = {}
    edge = 0.0
    for name in _LEFT_GROUP:
        places[name] = max(spans[name][0], edge)
        edge = places[name] + texts[name][0] + 14
    left_end, edge = edge, picture.width
    for name in _RIGHT_GROUP:
        if name in _OPTIONAL and picture.shown[name] <= 0:
            continue
        middle = sum(spans[name]) / 2 - texts[name][0] / 2
        place = min(middle, edge - texts[name][0])
        if place < left_end:
            place = edge - texts[name][0]  # as far right as its neighbour lets it
        if place < left_end - 6 and name != "free":
            continue  # no room: its tool tip says it
        places[name] = max(place, left_end - 6) if name == "runtime" else place
        edge = places[name] - 14
    y = RULER + BAR + 8
    for name, x in places.items():
        _, value, delta = texts[name]
        p.setPen(pen("control", 1) if name == "free" else Qt.PenStyle.NoPen)
        p.setBrush(color("track" if name == "free" else name))
        p.drawRoundedRect(QRectF(x + 0.5, y + 3.5, 7, 7), 2, 2)
        draw_text(p, QRectF(x + 12, y, 200, 14), again(NAMES[name]), "caption", "text2")
        draw_text(p, QRectF(x, y + 15, 200, 17), value, "meta", "text", 600)
        if delta:
            box = QRectF(x + text_width(value, "meta", 600) + 6, y + 15, 90, 17)
            draw_text(p, box, delta, "meta", "link", 600)


def _label_text(picture: Picture, name: PartName) -> tuple[float, str, str]:
    """Width, size and change of one label."""
    size, before = picture.shown[name], picture.applied[name]
    unit, unit_name = amounts.memory_unit(max(size, before) if picture.is_moved else size)
    delta = amounts.signed_memory(size - before, unit) if picture.is_moved else ""
    value = f"{amounts.in_unit(size, unit)} {unit_name}"
    title = text_width(again(NAMES[name]), "caption") + 14
    figures = text_width(value + "  " + delta, "meta", 600)
    return max(title, figures), value, delta


def _bubble(p: QPainter, picture: Picture) -> None:
    text = again(picture.bubble)
    x = picture.divider_x(picture.shown, picture.active) - 1
    width = text_width(text, "meta", 600) + 20
    left = min(max(x - width / 2, 0.5), picture.width - width - 0.5)
    p.setPen(pen("control", 1, alpha=0.7))
    p.setBrush(color("tooltip"))
    box = QRectF(left, 0.5, width, 20)
    p.drawRoundedRect(box, 5, 5)
    draw_text(p, box, text, "meta", "onTooltip", 600, CENTER)


def paint_empty(p: QPainter, width: float, title: str) -> None:
    """Draw the bar of a device without a model: the frame stays, one sentence in its middle."""
    box = QRectF(0.5, RULER + 0.5, width - 1, BAR - 1)
    p.setPen(pen("control", 1, (4, 4)))
    p.setBrush(color("canvas"))
    p.drawRoundedRect(box, 6, 6)
    draw_text(p, box, again(title) or tr("No model is loaded."), "meta", "text2", align=CENTER)


__all__ = ["BAR", "HEIGHT", "LEFT", "RULER", "Picture", "paint", "paint_empty", "ruler_step"]
