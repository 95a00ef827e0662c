"""Push buttons, switches and segmented choices."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, QVariantAnimation, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QCheckBox, QPushButton, QSizePolicy, QWidget

from app.theme import (
    CENTER,
    RADIUS,
    SIZE,
    area,
    color,
    draw_ring,
    draw_text,
    duration,
    follow,
    painter,
    pen,
    px,
    text_width,
)
from app.widgets import icons
from app.widgets.focus import FocusRing
from app.widgets.layout import hbox
from app.wording import again

# kind: ground, ground under the pointer, ink
_KINDS: dict[str, tuple[str, str, str]] = {
    "primary": ("accent", "accentHover", "accentInk"),
    "danger": ("dangerFill", "dangerFill", "dangerInk"),
    "secondary": ("raised", "hover", "text"),
    "ghost": ("", "selected", "text2"),
}


class Button(FocusRing, QPushButton):
    """A push button. Kinds: primary (one per view), secondary, ghost, danger.

    `tail` is an icon at the right end ("down" for menus). A button without words needs `name`,
    which is also its tool tip. `tip` is a tool tip beside the words.
    """

    def __init__(  # noqa: PLR0913 - looks, all with defaults
        self,
        text: str = "",
        kind: str = "secondary",
        icon: str = "",
        small: bool = False,
        tail: str = "",
        enabled: bool = True,
        name: str = "",
        tip: str = "",
    ) -> None:
        super().__init__()
        self._words, self._name, self._tip = text, name, tip
        self._kind, self._icon, self._small, self._tail = kind, icon, small, tail
        self.setEnabled(enabled)
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        follow(self.retheme)

    def set_text(self, text: str) -> None:
        """Say something else."""
        self._words = text
        self.retheme()

    def set_icon(self, icon: str) -> None:
        """Show another icon."""
        self._icon = icon
        self.updateGeometry()
        self.update()

    def set_kind(self, kind: str) -> None:
        """Become primary, secondary, ghost or danger."""
        self._kind = kind
        self.update()

    def set_name(self, name: str) -> None:
        """Say something else to assistive tools and, without words, in the tool tip."""
        self._name = name
        self.retheme()

    def set_tip(self, tip: str) -> None:
        """Give another tool tip, such as the reason for being disabled."""
        self._tip = tip
        self.retheme()

    def retheme(self) -> None:
        """Take words and sizes from the present language and zoom."""
        words, name = again(self._words), again(self._name)
        self.setText(words)
        self.setAccessibleName(name or words)
        self.setToolTip(again(self._tip) or ("" if words else name))
        self.updateGeometry()
        self.update()

    @property
    def _size_key(self) -> str:
        return "meta" if self._small else "body"

    def sizeHint(self) -> QSize:
        """Icon, words, tail, and room around them."""
        height = SIZE["controlSmall" if self._small else "control"]
        if not self.text():
            return QSize(px(height), px(height))
        width = text_width(self.text(), self._size_key, 500) + (20 if self._small else 26)
        width += (18 if self._small else 20) * bool(self._icon) + 18 * bool(self._tail)
        return QSize(px(width + 0.5), px(height))

    def minimumSizeHint(self) -> QSize:
        """Words are never cut."""
        return self.sizeHint()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw ground, ring, icon, words and tail."""
        p, whole = painter(self), area(self)
        ground, hovered, ink = _KINDS[self._kind]
        active = self.isEnabled() and (self.underMouse() or self.isDown())
        if self._kind == "ghost" and (active or self.isChecked()):
            ink = "text"
        fill = hovered if active or (self.isChecked() and not ground) else ground
        if not self.isEnabled():
            ink, fill = "text3", "raised" if ground else ""
        outline = self._kind == "secondary" or (not self.isEnabled() and ground)
        p.setPen(pen("control" if self.isEnabled() else "line") if outline else Qt.PenStyle.NoPen)
        p.setBrush(color(fill) if fill else Qt.BrushStyle.NoBrush)
        radius = RADIUS["control"]
        if fill or outline:
            p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        if self.ring:
            draw_ring(p, whole, radius)
        side = 14 if self._small else 16
        top = (whole.height() - side) / 2
        if not self.text():
            icons.draw(p, self._icon, QRectF((whole.width() - side) / 2, top, side, side), ink)
            return
        x = 10.0 if self._small else 13.0
        if self._icon:
            icons.draw(p, self._icon, QRectF(x - 2, top, side, side), ink)
            x += 18 if self._small else 20
        text = QRectF(x, 0, whole.width() - x, whole.height())
        draw_text(p, text, self.text(), self._size_key, ink, 500)
        if self._tail:
            box = QRectF(whole.width() - 24, (whole.height() - 14) / 2, 14, 14)
            icons.draw(p, self._tail, box, "text2")


class Toggle(FocusRing, QCheckBox):
    """A switch; `name` says what it turns on. Use `toggled(bool)`."""

    def __init__(self, on: bool = False, name: str = "") -> None:
        super().__init__()
        self._name = name
        self._place = 1.0 if on else 0.0
        self.setChecked(on)
        self._glide = QVariantAnimation(self)
        self._glide.valueChanged.connect(self._move)
        self.toggled.connect(self._start)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        follow(self.retheme)

    def retheme(self) -> None:
        """Take name and size from the present language and zoom."""
        self.setAccessibleName(again(self._name))
        self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        """The track alone."""
        return QSize(px(34), px(20))

    def show_on(self, on: bool) -> None:
        """Show on or off without a signal and without a glide."""
        self._glide.stop()
        self.blockSignals(True)
        self.setChecked(on)
        self.blockSignals(False)
        self._move(1.0 if on else 0.0)

    def hitButton(self, pos: QPoint) -> bool:
        """The whole track takes the click."""
        return self.rect().contains(pos)

    def _start(self, on: bool) -> None:
        end, time = (1.0 if on else 0.0), duration("base")
        self._glide.stop()
        if not time or not self.isVisible():
            self._move(end)
            return
        self._glide.setStartValue(self._place)
        self._glide.setEndValue(end)
        self._glide.setDuration(time)
        self._glide.start()

    def _move(self, place: float) -> None:
        self._place = place
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw track, knob and ring."""
        p = painter(self)
        on, live = self.isChecked(), self.isEnabled()
        p.setPen(Qt.PenStyle.NoPen if on and live else pen("control" if live else "line", 1.2))
        p.setBrush(color("accent" if on and live else "raised"))
        p.drawRoundedRect(QRectF(1, 1, 32, 18), 9, 9)
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(color("text3" if not live else "accentInk" if on else "text2"))
        p.drawEllipse(QPointF(10 + 14 * self._place, 10), 6, 6)
        if self.ring:
            draw_ring(p, area(self), 9)


class _Segment(FocusRing, QPushButton):
    """One choice of a `Segmented`."""

    def __init__(self, text: str, width: int | None) -> None:
        super().__init__()
        self.words, self._width = text, width
        self.setCheckable(True)
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        follow(self.retheme)

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        self.setText(again(self.words))
        self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        """The words and room around them, or the share of a given width."""
        return QSize(px(self._width or text_width(self.text(), "meta", 500) + 22), px(22))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the picked ground, the words and the ring."""
        p, whole = painter(self), area(self)
        if self.isChecked():  # disabled it has no ground of its own: grey words need the trough's
            p.setBrush(color("segment" if self.isEnabled() else "raised"))
            p.setPen(pen("control"))
            p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        strong = self.isChecked() or self.underMouse()
        ink = "text3" if not self.isEnabled() else "text" if strong else "text2"
        draw_text(p, whole, self.text(), "meta", ink, 500, CENTER)
        if self.ring:
            draw_ring(p, whole, 5)


class Segmented(QWidget):
    """One choice of a few, side by side; arrow keys move.

    Signals:
        picked: the index chosen by the person.
    """

    picked = Signal(int)

    def __init__(
        self, items: Sequence[str], current: int = 0, width: int | None = None, name: str = ""
    ) -> None:
        super().__init__()
        self._name = name
        self._group = QButtonGroup(self)
        each = width // len(items) if width else None
        self.segments = tuple(_Segment(text, each) for text in items)
        for index, segment in enumerate(self.segments):
            self._group.addButton(segment, index)
        self.set_current(current)
        self.setLayout(hbox(*self.segments, gap=0, pad=(2, 2, 2, 2)))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._group.idClicked.connect(self.picked)
        follow(self.retheme)

    @property
    def current(self) -> int:
        """The index of the picked segment."""
        return self._group.checkedId()

    def set_current(self, index: int) -> None:
        """Pick a segment without a signal."""
        self.segments[index].setChecked(True)

    def set_words(self, index: int, text: str) -> None:
        """Call a segment something else, such as its name with a figure."""
        if self.segments[index].words != text:
            self.segments[index].words = text
            self.segments[index].retheme()

    def retheme(self) -> None:
        """Say the name in the present language."""
        self.setAccessibleName(again(self._name))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the trough."""
        p = painter(self)
        p.setBrush(color("raised"))
        p.setPen(pen("line"))
        p.drawRoundedRect(area(self).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
