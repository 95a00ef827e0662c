"""Text that can be selected and holds links: one QTextDocument, painted, as high as it needs.

Lighter than a text edit per paragraph and stricter than a label: long words wrap anywhere, no
resource is ever loaded, links open only on a click and only to the web.
"""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QPointF, QSize, Qt, QUrl
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QContextMenuEvent,
    QDesktopServices,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextCursor,
    QTextDocument,
    QTextOption,
)
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from app.theme import color, follow, font, px
from app.widgets.chat.rich import PADDING
from app.wording import tr

WEB = ("http", "https", "mailto")


class SafeDocument(QTextDocument):
    """A document that loads nothing: no file, no address."""

    def loadResource(self, _kind: int, _name: QUrl | str) -> Any:  # noqa: ANN401 - Qt's variant
        """Refuse every resource."""
        return None


class Prose(QWidget):
    """Shows HTML made by `make`, which is called again when the theme or language changes."""

    def __init__(self, make: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._make = make
        self._doc = SafeDocument(self)
        self._doc.setDocumentMargin(0)
        self._doc.setUndoRedoEnabled(False)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._doc.setDefaultTextOption(option)
        self._cursor = QTextCursor(self._doc)
        self._anchor = -1
        self._pressed_link = ""
        self._heights: dict[int, int] = {}
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCursor(Qt.CursorShape.IBeamCursor)
        follow(self.retheme)

    def set_make(self, make: Callable[[], str]) -> None:
        """Show something else."""
        self._make = make
        self.retheme()

    @property
    def text(self) -> str:
        """The whole text without markup."""
        return _plain(self._doc.toPlainText())

    def selected(self) -> str:
        """Return the selected text."""
        return _plain(self._cursor.selection().toPlainText())

    def retheme(self) -> None:
        """Make the document anew in the present colours and sizes."""
        self._doc.setDefaultFont(font("read"))
        self._doc.setIndentWidth(px(22))
        self._doc.setHtml(self._make())
        self._cursor = QTextCursor(self._doc)
        self._heights.clear()
        self.setAccessibleName(self.text)
        self.updateGeometry()
        self.update()

    # --- size -----------------------------------------------------------------------------------

    def heightForWidth(self, width: int) -> int:
        """Lines at this width; remembered, for layouts ask often."""
        if width not in self._heights:
            self._doc.setTextWidth(width)
            self._heights[width] = int(self._doc.size().height() + 0.99)
        return self._heights[width]

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        width = max(self.width(), 240)
        return QSize(width, self.heightForWidth(width))

    def minimumSizeHint(self) -> QSize:
        """Any width will do; one line at least."""
        return QSize(40, font("read").pixelSize())

    def _laid_out(self) -> QAbstractTextDocumentLayout:
        """Return the layout at the present width; asking for heights may have left another."""
        if self._doc.textWidth() != self.width():
            self._doc.setTextWidth(self.width())
        return self._doc.documentLayout()

    # --- painting -------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the document and the selection."""
        p = QPainter(self)
        context = QAbstractTextDocumentLayout.PaintContext()
        context.palette.setColor(QPalette.ColorRole.Text, color("text"))
        context.clip = event.rect().toRectF()
        if self._cursor.hasSelection():
            selection = QAbstractTextDocumentLayout.Selection()
            selection.cursor = self._cursor
            selection.format.setBackground(color("accent"))
            selection.format.setForeground(color("accentInk"))
            context.selections = [selection]
        self._laid_out().draw(p, context)

    # --- selecting and links --------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin a selection, or note the link under the pointer."""
        if event.button() != Qt.MouseButton.LeftButton:
            return
        self._pressed_link = self._laid_out().anchorAt(event.position())
        self._anchor = self._place(event.position())
        self._select(self._anchor, self._anchor)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Select a word."""
        self._cursor.setPosition(self._place(event.position()))
        self._cursor.select(QTextCursor.SelectionType.WordUnderCursor)
        self._anchor = -1
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Extend the selection; show where a link leads."""
        if event.buttons() & Qt.MouseButton.LeftButton and self._anchor >= 0:
            self._select(self._anchor, self._place(event.position()))
            return
        link = self._laid_out().anchorAt(event.position())
        shape = Qt.CursorShape.PointingHandCursor if link else Qt.CursorShape.IBeamCursor
        self.setCursor(shape)
        self.setToolTip(link)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Open a link that was pressed and released without selecting."""
        link = self._laid_out().anchorAt(event.position())
        if link and link == self._pressed_link and not self._cursor.hasSelection():
            open_link(link)
        self._pressed_link = ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copy and select all."""
        if event.matches(QKeySequence.StandardKey.Copy) and self._cursor.hasSelection():
            QGuiApplication.clipboard().setText(self.selected())
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self._cursor.select(QTextCursor.SelectionType.Document)
            self.update()
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """A selection elsewhere ends this one."""
        super().focusOutEvent(event)
        if event.reason() not in (
            Qt.FocusReason.PopupFocusReason,
            Qt.FocusReason.ActiveWindowFocusReason,
        ):
            self._cursor.clearSelection()
            self.update()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer to copy the selection or a link."""
        menu = QMenu(self)
        link = self._laid_out().anchorAt(QPointF(event.pos()))
        clipboard = QGuiApplication.clipboard()
        if self._cursor.hasSelection():
            menu.addAction(tr("Copy"), lambda: clipboard.setText(self.selected()))
        if link:
            menu.addAction(tr("Copy link address"), lambda: clipboard.setText(link))
        menu.addAction(tr("Copy paragraph"), lambda: clipboard.setText(self.text))
        menu.exec(event.globalPos())

    def _place(self, point: QPointF) -> int:
        return self._laid_out().hitTest(point, Qt.HitTestAccuracy.FuzzyHit)

    def _select(self, start: int, end: int) -> None:
        self._cursor.setPosition(max(0, start))
        self._cursor.setPosition(max(0, end), QTextCursor.MoveMode.KeepAnchor)
        self.update()


def _plain(shown: str) -> str:
    """Return text as it was written: no padding of inline code, ordinary spaces."""
    return shown.replace(PADDING, "").replace("\u00a0", " ")


def open_link(address: str) -> bool:
    """Open a web or mail address in the person's browser. Anything else is refused."""
    url = QUrl(address, QUrl.ParsingMode.StrictMode)
    if url.scheme().lower() not in WEB:
        return False
    return QDesktopServices.openUrl(url)
