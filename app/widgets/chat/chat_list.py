"""The list of chats: search, new chat, sections; pin, rename and delete in a menu.

One list view with a painted delegate, so that thousands of chats cost no widgets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.services.chat_records import ChatId, ChatRow, Section
from app.theme import color, draw_ring, draw_text, follow, font, px, theme
from app.widgets import Button, Label, LineField, hbox, holder, icons, vbox
from app.wording import again, tr

HEAD, ROW, ROW_FOUND = 27, 31, 46
Index = QModelIndex | QPersistentModelIndex
ChatRole = Qt.ItemDataRole.UserRole + 1


@dataclass(frozen=True, slots=True)
class Head:
    """A head between the rows; an object, for Qt would turn a phrase into a plain text."""

    title: str


class ChatListItems(QAbstractListModel):
    """Heads and rows of all sections, one below the other.

    Signals:
        renamed: (chat id, title) an edit was accepted.
    """

    renamed = Signal(int, str)

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Head | ChatRow] = []

    def set_sections(self, sections: Sequence[Section]) -> None:
        """Show other chats."""
        self.beginResetModel()
        self._items = []
        for section in sections:
            if section.title:
                self._items.append(Head(section.title))
            self._items += section.rows
        self.endResetModel()

    def item(self, row: int) -> Head | ChatRow | None:
        """Return a head, a chat row, or None."""
        return self._items[row] if 0 <= row < len(self._items) else None

    def row_of(self, chat_id: ChatId) -> int:
        """Return the row of a chat, or -1."""
        for row, item in enumerate(self._items):
            if isinstance(item, ChatRow) and item.chat.id == chat_id:
                return row
        return -1

    def rowCount(self, parent: Index | None = None) -> int:
        """Return heads and rows together."""
        return 0 if parent is not None and parent.isValid() else len(self._items)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return title, tool tip or words for assistive tools."""
        item = self.item(index.row())
        if item is None:
            return None
        if role == ChatRole:
            return item
        shown = (
            Qt.ItemDataRole.DisplayRole,
            Qt.ItemDataRole.EditRole,
            Qt.ItemDataRole.AccessibleTextRole,
        )
        if role in shown:
            return again(item.title) if isinstance(item, Head) else item.chat.title
        if role == Qt.ItemDataRole.ToolTipRole and isinstance(item, ChatRow):
            return item.chat.title
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Heads cannot be chosen; titles can be edited."""
        if isinstance(self.item(index.row()), ChatRow):
            flag = Qt.ItemFlag
            return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable
        return Qt.ItemFlag.NoItemFlags

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Take a new title."""
        item = self.item(index.row())
        if role != Qt.ItemDataRole.EditRole or not isinstance(item, ChatRow):
            return False
        title = str(value)
        if title.strip() and title != item.chat.title:
            self.renamed.emit(item.chat.id, title)
        return True


class ChatDelegate(QStyledItemDelegate):
    """Draws heads and rows in the tokens."""

    def sizeHint(self, _option: QStyleOptionViewItem, index: Index) -> QSize:
        """Return the height of a head, a row, or a row with its excerpt."""
        item = index.data(ChatRole)
        found = isinstance(item, ChatRow) and item.excerpt
        height = HEAD if isinstance(item, Head) else ROW_FOUND if found else ROW
        return QSize(px(120), px(height))

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw one entry."""
        item = index.data(ChatRole)
        zoom = theme().zoom
        p.save()
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.translate(option.rect.topLeft())
        p.scale(zoom, zoom)
        whole = QRectF(0, 0, option.rect.width() / zoom, option.rect.height() / zoom)
        if isinstance(item, Head):
            rect = whole.adjusted(10, 6, 0, 0)
            draw_text(p, rect, again(item.title), "caption", "text3", 500)
        elif isinstance(item, ChatRow):
            self._paint_row(p, whole, item, option)
        p.restore()

    def _paint_row(
        self, p: QPainter, whole: QRectF, item: ChatRow, option: QStyleOptionViewItem
    ) -> None:
        state = QStyle.StateFlag
        on = bool(option.state & state.State_Selected)
        hover = bool(option.state & state.State_MouseOver)
        ground = whole.adjusted(0, 0.5, 0, -0.5)
        if on or hover:
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("selected" if on else "hover"))
            p.drawRoundedRect(ground, 6, 6)
        shows_more = on or hover
        line = QRectF(10, 0, whole.width() - (38 if shows_more else 18), min(whole.height(), ROW))
        ink, weight = ("text", 500) if on else ("text2", 400)
        draw_text(p, line, item.chat.title, "body", ink, weight, elide=True)
        if item.excerpt:
            below = QRectF(10, 24, whole.width() - 20, 18)
            draw_text(p, below, item.excerpt, "caption", "text3", elide=True)
        if shows_more:
            icons.draw(p, "more", QRectF(whole.width() - 25, 8, 16, 16), "text2")
        if bool(option.state & state.State_HasFocus) and bool(
            option.state & state.State_KeyboardFocusChange
        ):
            draw_ring(p, ground, 6)

    def createEditor(
        self, parent: QWidget, _option: QStyleOptionViewItem, _index: Index
    ) -> QWidget:
        """Return a line edit for the title."""
        editor = QLineEdit(parent)
        editor.setFont(font("body"))
        editor.setFrame(False)
        editor.setAutoFillBackground(True)
        editor.setAccessibleName(tr("Title of the chat"))
        return editor

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        """Hand the title on."""
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text(), Qt.ItemDataRole.EditRole)


class ChatListView(QListView):
    """The list itself: click or Enter opens, Del deletes, F2 renames, "..." opens the menu.

    Signals:
        opened(id), delete_wanted(id), menu_wanted(id, global point).
    """

    opened = Signal(int)
    delete_wanted = Signal(int)
    menu_wanted = Signal(int, QPoint)

    def __init__(self) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setItemDelegate(ChatDelegate(self))
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._on_context)
        self.viewport().setAutoFillBackground(False)
        self.setStyleSheet("QListView { background: transparent; border: none; outline: none; }")

    def _chat_at(self, index: QModelIndex) -> int:
        item = index.data(ChatRole)
        return int(item.chat.id) if isinstance(item, ChatRow) else 0

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Open a chat, or its menu where "..." stands."""
        super().mouseReleaseEvent(event)
        index = self.indexAt(event.position().toPoint())
        chat = self._chat_at(index)
        if event.button() != Qt.MouseButton.LeftButton or not chat:
            return
        if event.position().x() > self.visualRect(index).right() - px(30):
            self.menu_wanted.emit(chat, event.globalPosition().toPoint())
        else:
            self.opened.emit(chat)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Act on the chat that has the focus."""
        chat = self._chat_at(self.currentIndex())
        if chat and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit(chat)
        elif chat and event.key() == Qt.Key.Key_Delete:
            self.delete_wanted.emit(chat)
        elif chat and event.key() == Qt.Key.Key_Menu:
            self._on_context(self.visualRect(self.currentIndex()).center())
        else:
            super().keyPressEvent(event)

    def _on_context(self, point: QPoint) -> None:
        chat = self._chat_at(self.indexAt(point))
        if chat:
            self.menu_wanted.emit(chat, self.viewport().mapToGlobal(point))


class ChatListPanel(QWidget):
    """Search, new chat, and the list.

    Signals:
        searched(text), new_wanted(), opened(id), deleted(id), renamed(id, title), pinned(id, on),
        exported(id, "md" or "json"), import_wanted(), dropped(list of Path).
    """

    searched = Signal(str)
    new_wanted = Signal()
    opened = Signal(int)
    deleted = Signal(int)
    renamed = Signal(int, str)
    pinned = Signal(int, bool)
    exported = Signal(int, str)
    import_wanted = Signal()
    dropped = Signal(list)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("canvas")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.search = LineField(tr("Search chats"), "search")
        self.new = Button("", "secondary", "plus", name=tr("New chat"))
        self.items = ChatListItems()
        self.view = ChatListView()
        self.view.setModel(self.items)
        self.empty = Label("", "meta", "text3", wrap=True)
        self._hint = holder(vbox(self.empty, pad=(10, 6, 0, 0)))  # as the heads of the list
        self._current = ChatId(0)
        top = hbox((self.search, 1), self.new, gap=6)
        self.bring = Button(tr("Import chats…"), "ghost", "download", small=True)
        foot = hbox(self.bring, None)
        self.setLayout(vbox(top, self._hint, (self.view, 1), foot, gap=4, pad=(10, 10, 10, 8)))
        self.setAcceptDrops(True)
        self.search.textChanged.connect(self.searched)
        self.new.clicked.connect(self.new_wanted)
        self.bring.clicked.connect(self.import_wanted)
        self.view.opened.connect(self.opened)
        self.view.delete_wanted.connect(self.deleted)
        self.view.menu_wanted.connect(self._menu)
        self.items.renamed.connect(self.renamed)
        follow(self.retheme)

    def retheme(self) -> None:
        """Say the name in the present language and lay rows out at the present zoom."""
        self.view.setAccessibleName(tr("Chats"))
        self.view.setFont(font("body"))
        self.view.scheduleDelayedItemsLayout()
        self.view.viewport().update()

    def set_sections(self, sections: Sequence[Section], query: str) -> None:
        """Show other chats; the one on screen stays chosen."""
        self.items.set_sections(sections)
        none = tr("No chat holds these words.") if query else tr("Chats appear here.")
        self.empty.set_text(none)
        self._hint.setVisible(not sections)
        self.set_current(self._current)

    def set_current(self, chat_id: ChatId) -> None:
        """Choose the chat on screen."""
        self._current = chat_id
        row = self.items.row_of(chat_id)
        if row < 0:
            self.view.clearSelection()
        else:
            self.view.setCurrentIndex(self.items.index(row))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Files can be dropped."""
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Hand chat files on."""
        urls = event.mimeData().urls()
        self.dropped.emit([Path(url.toLocalFile()) for url in urls if url.isLocalFile()])
        event.acceptProposedAction()

    def menu_for(self, chat_id: int) -> QMenu:
        """Return the menu of one chat."""
        menu = QMenu(self)
        row = self.items.row_of(ChatId(chat_id))
        item = self.items.item(row)
        if isinstance(item, ChatRow):
            on = item.chat.pinned
            pin = tr("Unpin") if on else tr("Pin")
            index = self.items.index(row)
            menu.addAction(icons.icon("pin"), pin, lambda: self.pinned.emit(chat_id, not on))
            menu.addAction(icons.icon("edit"), tr("Rename"), lambda: self.view.edit(index))
            menu.addSeparator()
            for kind, words in (
                ("md", tr("Export as Markdown…")),
                ("json", tr("Export as JSON…")),
            ):
                menu.addAction(
                    icons.icon("save"), words, partial(self.exported.emit, chat_id, kind)
                )
            menu.addSeparator()
            menu.addAction(
                icons.icon("trash"), tr("Delete chat"), lambda: self.deleted.emit(chat_id)
            )
        return menu

    def _menu(self, chat_id: int, point: QPoint) -> None:
        menu = self.menu_for(chat_id)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(point)
