"""Text edits of the chat: one that grows with its lines, and a read-only one for reasoning."""

from pathlib import Path

from PySide6.QtCore import QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QTextOption, QWheelEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy

from app.theme import color, follow, font
from app.wording import again


class GrowingEdit(QPlainTextEdit):
    """Grows from one line to `most`; Enter submits, Shift+Enter breaks the line.

    Signals:
        submitted: Enter was pressed.
        cancelled: Esc was pressed.
        asked_last: Up in an empty edit: the person wants to edit the last message.
        dropped: (list of Path) files were dropped or pasted.
    """

    submitted = Signal()
    cancelled = Signal()
    asked_last = Signal()
    dropped = Signal(list)

    def __init__(
        self,
        name: str,
        placeholder: str = "",
        most: int = 8,
        least: int = 1,
        size: str = "read",
        enter_submits: bool = True,
    ) -> None:
        super().__init__()
        self._name, self._placeholder, self._size = name, placeholder, size
        self._most, self._least, self._enter_submits = most, least, enter_submits
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(1)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        follow(self.retheme)

    def set_placeholder(self, text: str) -> None:
        """Show another hint while empty."""
        self._placeholder = text
        self.retheme()

    def retheme(self) -> None:
        """Take font, ink and words from the present theme and language."""
        self.setFont(font(self._size))
        self.viewport().setFont(font(self._size))  # the placeholder is drawn with this one
        palette = self.palette()
        palette.setColor(palette.ColorRole.Text, color("text"))
        palette.setColor(palette.ColorRole.PlaceholderText, color("text3"))
        self.setPalette(palette)
        self.setPlaceholderText(again(self._placeholder))
        self.viewport().update()  # a new hint alone does not repaint an empty edit [M]
        self.setAccessibleName(again(self._name))
        self._fit()

    def _fit(self, _size: object = None) -> None:
        """As high as the lines on screen; the document counts them."""
        lines = max(self._least, min(self._most, round(self.document().size().height())))
        fits = self.document().size().height() <= self._most
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policy.ScrollBarAlwaysOff if fits else policy.ScrollBarAsNeeded
        )
        height = lines * self.fontMetrics().lineSpacing() + 4
        if self.minimumHeight() != height or self.maximumHeight() != height:
            self.setFixedHeight(height)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter, Esc and Up as the class says; everything else is text."""
        key, mods = event.key(), event.modifiers()
        is_enter = key in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and self._enter_submits and not mods & Qt.KeyboardModifier.ShiftModifier:
            self.submitted.emit()
        elif key == Qt.Key.Key_Escape and self.receivers("2cancelled()"):
            self.cancelled.emit()
        elif key == Qt.Key.Key_Up and not mods and not self.toPlainText():
            self.asked_last.emit()
        else:
            super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """Files can be dropped."""
        return source.hasUrls() or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Hand files on; insert anything else as plain text."""
        files = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        if files:
            self.dropped.emit(files)
        elif source.hasText():
            self.insertPlainText(source.text())


class ReadEdit(QPlainTextEdit):
    """Read-only text that grows by appending, up to `most_px`, then scrolls by itself."""

    def __init__(self, name: str, most_px: int) -> None:
        super().__init__()
        self._name, self._most = name, most_px
        self._text = ""
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        # Lines wrap; a bar that came before they did would cover the last one.
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        follow(self.retheme)

    def show_text(self, text: str) -> None:
        """Show a text; what only grew is appended, and the end stays in view."""
        bar = self.verticalScrollBar()
        at_end = bar.value() >= bar.maximum()
        if text.startswith(self._text):
            cursor = self.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            cursor.insertText(text[len(self._text) :])
        else:
            self.setPlainText(text)
        self._text = text
        if at_end:
            bar.setValue(bar.maximum())

    def retheme(self) -> None:
        """Take font, ink and name from the present theme and language."""
        self.setFont(font("body"))
        palette = self.palette()
        palette.setColor(palette.ColorRole.Text, color("text2"))
        self.setPalette(palette)
        self.setAccessibleName(again(self._name))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width has other lines; the document does not always tell that [M]."""
        super().resizeEvent(event)
        self._fit()

    def sizeHint(self) -> QSize:
        """The layout decides the width."""
        return QSize(200, self.minimumHeight())

    def _fit(self, _size: object = None) -> None:
        lines = round(self.document().size().height())
        height = min(self._most, max(1, lines) * self.fontMetrics().lineSpacing() + 2)
        if self.minimumHeight() != height or self.maximumHeight() != height:
            self.setFixedHeight(height)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll here while there is something to scroll, else the page."""
        if self.verticalScrollBar().maximum() > 0:
            super().wheelEvent(event)
        else:
            event.ignore()
