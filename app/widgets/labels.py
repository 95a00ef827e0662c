"""Text and small signs: labels, eliding lines, icons, dots, legends."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.theme import (
    area,
    color,
    draw_text,
    elided,
    follow,
    font,
    line_height,
    painter,
    pen,
    px,
    text_width,
)
from app.widgets import icons
from app.widgets.layout import Box, hbox
from app.wording import again


class Label(QLabel):
    """Text in a step of the type scale and one of the inks; follows theme and language."""

    def __init__(
        self,
        text: str = "",
        size: str | int = "body",
        role: str = "text",
        weight: int = 400,
        mono: bool = False,
        wrap: bool = False,
    ) -> None:
        super().__init__()
        self._text, self._role = text, role
        self._face = (size, weight, mono)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setForegroundRole(QPalette.ColorRole.WindowText)  # a scroll area's viewport has Text
        self.setWordWrap(wrap)
        follow(self.retheme)

    def set_text(self, text: str) -> None:
        """Show another phrase or datum."""
        self._text = text
        self.setText(again(text))

    def set_role(self, role: str) -> None:
        """Take another ink."""
        self._role = role
        self.retheme()

    def retheme(self) -> None:
        """Take font, ink and words from the present theme and language."""
        self.setFont(font(*self._face))
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, color(self._role))
        self.setPalette(palette)
        self.setText(again(self._text))


class Elide(QLabel):
    """One line that ends in an ellipsis instead of being cut; the whole is in its tool tip."""

    def __init__(
        self, text: str = "", size: str = "body", role: str = "text", weight: int = 400
    ) -> None:
        super().__init__()
        self._text, self._role, self._tip = text, role, ""
        self._face = (size, weight)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        follow(self.retheme)

    def set_text(self, text: str) -> None:
        """Show another phrase or datum."""
        self._text = text
        self.retheme()

    def set_tip(self, tip: str) -> None:
        """Say more in the tool tip."""
        self._tip = tip
        self._tell()

    def retheme(self) -> None:
        """Take font, words and height from the present theme and language."""
        self.setFont(font(*self._face))
        self.setFixedHeight(px(line_height(self._face[0])))
        self.setText(again(self._text))
        self._tell()

    def _tell(self) -> None:
        whole = text_width(self.text(), *self._face) <= area(self).width()
        parts = ("" if whole else self.text(), again(self._tip))
        self.setToolTip("\n".join(part for part in parts if part))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Offer the whole text as a tool tip where it is shortened."""
        super().resizeEvent(event)
        self._tell()

    def minimumSizeHint(self) -> QSize:
        """Any width will do; no wider than the words."""
        return QSize(min(px(24), self.sizeHint().width()), self.height())

    def sizeHint(self) -> QSize:
        """The width of the whole line."""
        return QSize(px(text_width(self.text(), *self._face) + 1), self.height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the shortened line."""
        size, weight = self._face
        text = elided(self.text(), area(self).width(), size, weight)
        draw_text(painter(self), area(self), text, size, self._role, weight, self.alignment())


class Icon(QWidget):
    """An icon beside a text that says the same; alone it needs `name` for assistive tools."""

    def __init__(self, icon: str, size: int = 16, role: str = "text2", name: str = "") -> None:
        super().__init__()
        self._icon, self._size, self._role, self._name = icon, size, role, name
        follow(self.retheme)

    def set_icon(self, icon: str, role: str | None = None) -> None:
        """Show another icon, perhaps in another ink."""
        self._icon, self._role = icon, role or self._role
        self.update()

    def retheme(self) -> None:
        """Take size and name from the present zoom and language."""
        self.setFixedSize(px(self._size), px(self._size))
        self.setAccessibleName(again(self._name))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the icon."""
        icons.draw(painter(self), self._icon, area(self), self._role)


class Dot(QWidget):
    """The key of a series in a legend: a square, or a ring."""

    def __init__(self, role: str, size: int = 8, ring: bool = False) -> None:
        super().__init__()
        self._role, self._size, self._ring = role, size, ring
        follow(self.retheme)

    def retheme(self) -> None:
        """Take the size from the present zoom."""
        self.setFixedSize(px(self._size), px(self._size))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the key; free memory is hollow."""
        p, rect = painter(self), area(self)
        if self._ring:
            p.setPen(pen(self._role, 1.5))
            p.drawEllipse(rect.adjusted(1, 1, -1, -1))
            return
        p.setPen(pen("control") if self._role == "free" else Qt.PenStyle.NoPen)
        p.setBrush(color(self._role))
        p.drawRoundedRect(_inside(rect) if self._role == "free" else rect, 2, 2)


def legend(*pairs: Sequence[str], size: str = "caption") -> Box:
    """Return a row of keys: pairs of series role and phrase."""
    keys = [hbox(Dot(role), Label(text, size, "text2"), gap=5) for role, text in pairs]
    return hbox(*keys, None, gap=12)


def _inside(rect: QRectF) -> QRectF:
    return rect.adjusted(0.5, 0.5, -0.5, -0.5)


def draw_dot(p: QPainter, rect: QRectF, role: str) -> None:
    """Draw a series key for painted widgets."""
    p.setPen(Qt.PenStyle.NoPen)
    p.setBrush(color(role))
    p.drawRoundedRect(rect, 2, 2)
