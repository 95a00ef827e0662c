"""What the model thought, folded: chevron, bulb, time and tokens; the text behind a line."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app.theme import area, color, draw_ring, draw_text, follow, painter, px, text_width
from app.widgets import icons, vbox
from app.widgets.chat.edits import ReadEdit
from app.widgets.focus import FocusRing
from app.wording import again, tr

MOST_PX = 320


class FoldHead(FocusRing, QPushButton):
    """The line that opens and closes."""

    def __init__(self) -> None:
        super().__init__()
        self._words = ""
        self.setCheckable(True)
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        follow(self.retheme)

    def set_text(self, words: str) -> None:
        """Say something else."""
        self._words = words
        self.retheme()

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        words = again(self._words)
        if words != self.text():
            self.setText(words)
            self.setAccessibleName(words)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Chevron, bulb, words."""
        return QSize(px(text_width(self.text(), "meta", 500) + 50), px(22))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw chevron, bulb, words and ring."""
        p, whole = painter(self), area(self)
        ink = "text" if self.underMouse() else "text2"
        chevron = "down" if self.isChecked() else "right"
        icons.draw(p, chevron, QRectF(0, 4, 14, 14), "text3")
        icons.draw(p, "thought", QRectF(20, 3.5, 15, 15), ink)
        draw_text(p, whole.adjusted(41, 0, 0, 0), self.text(), "meta", ink, 500)
        if self.ring:
            draw_ring(p, whole, 5)


class Behind(QWidget):
    """A widget with a 2 px line at its left."""

    def __init__(self, inner: QWidget) -> None:
        super().__init__()
        self.setLayout(vbox(inner, pad=(14, 0, 0, 0)))
        follow(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the line."""
        p, whole = painter(self), area(self)
        p.fillRect(QRectF(6, 0, 2, whole.height()), color("control"))


class ReasoningFold(QWidget):
    """Opens by itself only while reasoning is the sole output; the person's choice holds."""

    def __init__(self) -> None:
        super().__init__()
        self.head = FoldHead()
        self.text = ReadEdit(tr("Reasoning of the model"), px(MOST_PX))
        self._box = Behind(self.text)
        self._chosen = False
        self._full = ""
        self.setLayout(vbox(self.head, self._box, gap=4))
        self._box.hide()
        self.head.clicked.connect(self._choose)
        self.head.toggled.connect(self._open)

    def set_reasoning(self, text: str, words: str, is_sole: bool) -> None:
        """Show what was thought so far; `is_sole` = running, and no answer yet."""
        self.head.set_text(words)
        self._full = text
        if not self._chosen:
            self.head.setChecked(is_sole)
        if self.head.isChecked():
            self.text.show_text(text)

    @property
    def chosen(self) -> bool | None:
        """Open or closed by the person's choice; None = by itself."""
        return self.head.isChecked() if self._chosen else None

    def choose(self, on: bool) -> None:
        """Open or close it as the person did before."""
        self._chosen = True
        self.head.setChecked(on)

    def _choose(self) -> None:
        self._chosen = True

    def _open(self, on: bool) -> None:
        if on:
            self.text.show_text(self._full)
        self._box.setVisible(on)
        self.head.update()
