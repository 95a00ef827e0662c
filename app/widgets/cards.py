"""Surfaces: cards, hairlines, card titles, empty states."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainterPath, QPaintEvent
from PySide6.QtWidgets import QFrame, QLayout, QWidget

from app.theme import RADIUS, area, color, follow, painter, pen
from app.widgets.labels import Icon, Label
from app.widgets.layout import Box, Item, Pad, fixed, hbox, vbox


class Card(QFrame):
    """A surface with a hairline; `edge` is the role of a 3 px bar at the left, for failures."""

    def __init__(
        self,
        layout: QLayout | None = None,
        fill: str = "surface",
        border: str = "line",
        radius: float = RADIUS["card"],
        pad: Pad | None = None,
        edge: str = "",
    ) -> None:
        super().__init__()
        self._fill, self._border, self._radius, self._edge = fill, border, radius, edge
        if layout is not None:
            if pad is not None and isinstance(layout, Box):
                layout.set_pad(pad)
            self.setLayout(layout)
        follow(self.update)

    def set_look(
        self, fill: str | None = None, border: str | None = None, edge: str | None = None
    ) -> None:
        """Take another ground, outline or edge; None keeps one."""
        self._fill = self._fill if fill is None else fill
        self._border = self._border if border is None else border
        self._edge = self._edge if edge is None else edge
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw ground, edge and outline."""
        p, whole = painter(self), area(self)
        path = QPainterPath()
        path.addRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), self._radius, self._radius)
        p.fillPath(path, color(self._fill))
        if self._edge:
            p.save()
            p.setClipPath(path)
            p.fillRect(QRectF(0, 0, 3, whole.height()), color(self._edge))
            p.restore()
        if self._border:
            p.setPen(pen(self._border))
            p.drawPath(path)


class Line(QWidget):
    """A hairline between rows."""

    def __init__(self, vertical: bool = False, length: int | None = None) -> None:
        super().__init__()
        if vertical:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)
        if length is not None:
            fixed(self, height=length)
        follow(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Fill with the line colour."""
        p = painter(self)
        p.fillRect(area(self), color("line"))


def card_title(text: str, *right: Item, sub: str = "", icon: str = "") -> Box:
    """Return the head row of a card: icon, title, second text; controls at the right."""
    left: list[Item] = [Icon(icon)] if icon else []
    left.append(Label(text, "body", "text", 600))
    if sub:
        left.append(Label(sub, "meta", "text3"))
    return hbox(*left, None, *right, gap=8)


def page_head(text: str, *right: Item, sub: str = "") -> Box:
    """Return the head row of a page: its one title, a second text, controls at the right."""
    left: list[Item] = [Label(text, "title", "text", 600)]
    if sub:
        left += [4, (Label(sub, "meta", "text3"), Qt.AlignmentFlag.AlignBottom)]
    return hbox(*left, None, *right, gap=8)


class EmptyState(QWidget):
    """Nothing here yet: an icon, one sentence, one button (or none), and a line of help."""

    def __init__(
        self, sentence: str, button: QWidget | None = None, icon: str = "", help_text: str = ""
    ) -> None:
        super().__init__()
        center = Qt.AlignmentFlag.AlignHCenter
        self.sentence = Label(sentence, "read", "text2", wrap=True)
        self.sentence.setAlignment(Qt.AlignmentFlag.AlignCenter)
        items: list[Item] = [None]
        if icon:
            items += [(Icon(icon, 28, "text3"), center), 4]
        items.append(self.sentence)
        if help_text:
            note = Label(help_text, "meta", "text3", wrap=True)
            note.setAlignment(Qt.AlignmentFlag.AlignCenter)
            fixed(note, max_width=560)
            items.append(hbox(None, (note, 8), None))
        if button is not None:
            items += [4, (button, center)]
        self.setLayout(vbox(*items, None, gap=8, pad=(24, 24, 24, 24)))
