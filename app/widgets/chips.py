"""Small facts: chips, and the pill that says what the engine does."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.theme import (
    CENTER,
    RADIUS,
    area,
    color,
    draw_ring,
    draw_text,
    follow,
    painter,
    pen,
    px,
    text_width,
)
from app.widgets import icons
from app.widgets.focus import FocusRing
from app.wording import again, tr

# tone: ground, ink, icon. Tones carry an icon, so colour is never alone.
TONES: dict[str, tuple[str, str, str]] = {
    "plain": ("raised", "text2", ""),
    "ok": ("accentSoft", "accentText", "check"),
    "warn": ("warnSoft", "warn", "warn"),
    "danger": ("dangerSoft", "danger", "x"),
    "outline": ("", "text3", ""),
}
# state: ink, words. Shape: ring = off, dot = ready, arc = busy, bars = yielded, octagon = error.
STATES: dict[str, tuple[str, str]] = {
    "off": ("text3", tr("Off")),
    "loading": ("link", tr("Loading")),
    "moving": ("link", tr("Moving memory")),
    "ready": ("accentText", tr("Ready")),
    "generating": ("accentText", tr("Generating")),
    "yielded": ("warn", tr("Yielded")),
    "error": ("danger", tr("Engine stopped")),
}


class Chip(QWidget):
    """A small fact. `icon` None = the tone's own, "" = none."""

    def __init__(
        self, text: str, tone: str = "plain", icon: str | None = None, mono: bool = False
    ) -> None:
        super().__init__()
        self._text, self._tone, self._icon, self._mono = text, tone, icon, mono
        follow(self.retheme)

    def set_text(self, text: str, tone: str | None = None) -> None:
        """Say something else, perhaps in another tone."""
        self._text, self._tone = text, tone or self._tone
        self.retheme()

    @property
    def text(self) -> str:
        """What the chip says now."""
        return again(self._text)

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        self.setFixedSize(self.sizeHint())
        self.setAccessibleName(self.text)
        self.update()

    def sizeHint(self) -> QSize:
        """The words, the icon, and room around them."""
        width = text_width(self.text, "caption", 500, self._mono) + 14 + 15 * bool(self._sign())
        return QSize(px(width + 0.5), px(20))

    def _sign(self) -> str:
        return TONES[self._tone][2] if self._icon is None else self._icon

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw ground or outline, icon and words."""
        p, whole = painter(self), area(self)
        fill, ink, _ = TONES[self._tone]
        p.setPen(Qt.PenStyle.NoPen if fill else pen("control"))
        p.setBrush(color(fill) if fill else Qt.BrushStyle.NoBrush)
        p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS["chip"], RADIUS["chip"])
        sign = self._sign()
        if sign:
            icons.draw(p, sign, QRectF(6, 4, 12, 12), ink, 1.8)
            whole = whole.adjusted(15, 0, 0, 0)
        draw_text(p, whole, self.text, "caption", ink, 500, CENTER, self._mono)


class StatePill(FocusRing, QPushButton):
    """The engine's state in words plus a shape; a live region that opens details when clicked."""

    def __init__(self, state: str = "off", text: str = "", share: float | None = None) -> None:
        super().__init__()
        self._state, self._words, self._share = state, text, share
        follow(self.retheme)

    def set_state(self, state: str, text: str = "", share: float | None = None) -> None:
        """Show a state of `STATES`; `text` instead of its own words, `share` done of 1."""
        spoken = (state, text) != (self._state, self._words)
        self._state, self._words, self._share = state, text, share
        self.retheme()
        if spoken:
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, self.text()))

    @property
    def state(self) -> str:
        """The key of the state shown."""
        return self._state

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        self.setText(again(self._words or STATES[self._state][1]))
        self.setFixedSize(self.sizeHint())
        self.setAccessibleName(tr("Engine state: {state}", state=self.text()))
        self.update()

    def sizeHint(self) -> QSize:
        """The shape, the words, and room around them."""
        return QSize(px(text_width(self.text(), "meta", 500) + 35), px(24))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw pill, shape and words."""
        p, whole = painter(self), area(self)
        failed = self._state == "error"
        p.setPen(Qt.PenStyle.NoPen if failed else pen("control" if self.underMouse() else "line"))
        p.setBrush(color("dangerSoft" if failed else "surface"))
        p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
        self._draw_shape(p, QPointF(14, 12), STATES[self._state][0])
        rect = whole.adjusted(24, 0, 0, 0)
        draw_text(p, rect, self.text(), "meta", "danger" if failed else "text", 500)
        if self.ring:
            draw_ring(p, whole, 11)

    def _draw_shape(self, p: QPainter, c: QPointF, role: str) -> None:
        if self._state == "error":
            icons.draw(p, "error", QRectF(8, 6, 12, 12), role, 1.8)
        elif self._state == "off":
            p.setPen(pen(role, 1.5))
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.drawEllipse(c, 3.6, 3.6)
        elif self._state in ("loading", "moving"):
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.setPen(pen("track", 2))
            p.drawEllipse(c, 4.2, 4.2)
            p.setPen(pen(role, 2))
            share = 0.3 if self._share is None else self._share
            p.drawArc(QRectF(c.x() - 4.2, c.y() - 4.2, 8.4, 8.4), 90 * 16, -round(share * 5760))
        elif self._state == "yielded":
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color(role))
            p.drawRoundedRect(QRectF(10.5, 8, 2.4, 8), 1, 1)
            p.drawRoundedRect(QRectF(15, 8, 2.4, 8), 1, 1)
        else:
            p.setPen(Qt.PenStyle.NoPen)
            if self._state == "generating":
                p.setBrush(color(role, 0.28))
                p.drawEllipse(c, 6.2, 6.2)
            p.setBrush(color(role))
            p.drawEllipse(c, 3.4, 3.4)
