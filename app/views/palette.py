"""The palette over the window (Ctrl+K): type, choose with the arrows, Enter.

Esc or a click beside it leaves. The keyboard stays in the field; the list shows what Enter does.
"""

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.services.settings_schema import fields
from app.theme import RIGHT, color, draw_text, follow, px, text_width, theme
from app.viewmodels.palette import Entry, PaletteViewModel
from app.viewmodels.settings import SECTIONS
from app.views.shortcuts import PAGES, SHORTCUTS, shown_keys
from app.widgets import Card, Label, LineField, fixed, hbox, holder, icons, vbox
from app.wording import Phrase, again, tr

Index = QModelIndex | QPersistentModelIndex
EntryRole = Qt.ItemDataRole.UserRole + 1
HEAD, ROW, WIDTH, TOP, MOST_HEIGHT = 28, 32, 560, 84, 420
_ICONS = {
    "page": "right",
    "action": "bolt",
    "setting": "settings",
    "model": "models",
    "chat": "chat",
    "text": "search",
}
_STEPS = {
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_Up: -1,
    Qt.Key.Key_PageDown: 8,
    Qt.Key.Key_PageUp: -8,
}


def fixed_entries() -> tuple[Entry, ...]:
    """Return pages and actions from the table of shortcuts, and all settings."""
    keys = {shortcut.id: shown_keys(shortcut) for shortcut in SHORTCUTS}
    pages = [Entry("page", text, keys[f"page_{name}"], name) for name, text in PAGES]
    actions = [
        Entry("action", shortcut.text, keys[shortcut.id], shortcut.id)
        for shortcut in SHORTCUTS
        if not shortcut.listed_only and shortcut.id != "palette" and shortcut.id[:5] != "page_"
    ]
    titles = {key: text for key, text, _ in SECTIONS}
    sections = [Entry("setting", text, tr("Settings"), key) for key, text in titles.items()]
    settings = [Entry("setting", f.label, titles[f.section], f.section) for f in fields()]
    return (*pages, *actions, *sections, *settings)


class PaletteItems(QAbstractListModel):
    """Heads (phrases) and entries, one below the other."""

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Phrase | Entry] = []

    def show_groups(self, groups: tuple[tuple[Phrase, tuple[Entry, ...]], ...]) -> None:
        """Show other entries."""
        self.beginResetModel()
        self._items = []
        for head, entries in groups:
            self._items += [head, *entries]
        self.endResetModel()

    def entry(self, row: int) -> Entry | None:
        """Return the entry of a row; None for a head or beyond the ends."""
        item = self._items[row] if 0 <= row < len(self._items) else None
        return item if isinstance(item, Entry) else None

    def rowCount(self, parent: Index | None = None) -> int:
        """Return heads and entries together."""
        return 0 if parent is not None and parent.isValid() else len(self._items)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return the entry, or words for assistive tools."""
        if not 0 <= index.row() < len(self._items):
            return None
        entry = self.entry(index.row())
        if role == EntryRole:
            return entry
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return again(entry.title if entry is not None else str(self.head(index.row())))
        return None

    def head(self, row: int) -> str:
        """Return the head of a row in the language in use, or ""."""
        item = self._items[row]
        return again(item) if isinstance(item, Phrase) else ""

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Heads cannot be chosen."""
        if self.entry(index.row()) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable


class PaletteDelegate(QStyledItemDelegate):
    """Draws heads and entries in the tokens."""

    def sizeHint(self, _option: QStyleOptionViewItem, index: Index) -> QSize:
        """Return the height of a head or an entry."""
        return QSize(px(200), px(HEAD if index.data(EntryRole) is None else ROW))

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw one row."""
        zoom, entry = theme().zoom, index.data(EntryRole)
        p.save()
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.translate(option.rect.topLeft())
        p.scale(zoom, zoom)
        whole = QRectF(0, 0, option.rect.width() / zoom, option.rect.height() / zoom)
        if isinstance(entry, Entry):
            is_on = bool(option.state & QStyle.StateFlag.State_Selected)
            self._paint_entry(p, whole, entry, is_on)
        else:
            words = str(index.data(Qt.ItemDataRole.DisplayRole))
            draw_text(p, whole.adjusted(12, 6, 0, 0), words, "caption", "text3", 500)
        p.restore()

    def _paint_entry(self, p: QPainter, whole: QRectF, entry: Entry, is_on: bool) -> None:
        if is_on:
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("selected"))
            p.drawRoundedRect(whole.adjusted(0, 1, 0, -1), 6, 6)
        icons.draw(p, _ICONS[entry.kind], QRectF(12, 9, 14, 14), "text2")
        detail, title = again(entry.detail), again(entry.title)
        room = whole.width() - 36 - 12
        wanted = text_width(title, "body", 500) + 2
        kept = min(text_width(detail, "meta") + 2, room * 0.6) if detail else 0
        line = QRectF(36, 0, min(wanted, room - kept - 12 * bool(detail)), whole.height())
        draw_text(p, line, title, "body", "text", 500, elide=True)
        if detail:
            rest = QRectF(line.right() + 12, 0, whole.width() - line.right() - 24, whole.height())
            draw_text(p, rest, detail, "meta", "text2", align=RIGHT, elide=True)


class Palette(QWidget):
    """Covers the window while it is open.

    Signals:
        page_chosen(name), action_chosen(id), setting_chosen(section), model_chosen(path),
        chat_chosen(id, message or 0).
    """

    page_chosen = Signal(str)
    setting_chosen = Signal(str)
    action_chosen = Signal(str)
    model_chosen = Signal(str)
    chat_chosen = Signal(int, int)

    def __init__(self, window: QWidget, vm: PaletteViewModel) -> None:
        super().__init__(window)
        self._vm = vm
        self._before: QWidget | None = None
        self.field = LineField(tr("Find a page, action, model, chat or setting"), "search")
        self.items = PaletteItems()
        self.list = QListView()
        self.list.setModel(self.items)
        self.list.setItemDelegate(PaletteDelegate(self.list))
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # for assistive tools; Tab chooses
        self.list.setMouseTracking(True)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setStyleSheet("QListView { background: transparent; border: none; }")
        self.list.viewport().setAutoFillBackground(False)
        self.none = holder(
            hbox(Label(tr("Nothing has these words."), "meta", "text2"), None, pad=(12, 4, 0, 4))
        )
        self.card = Card(
            vbox(self.field, self.none, self.list, gap=8, pad=(10, 10, 10, 10)), border="control"
        )
        self.card.setParent(self)
        fixed(self.field, height=34)
        self.field.installEventFilter(self)
        window.installEventFilter(self)
        self.field.textChanged.connect(vm.set_query)
        self.field.returnPressed.connect(self.run_current)
        self.list.clicked.connect(self._run)
        self.list.activated.connect(self._run)
        self.list.entered.connect(self.list.setCurrentIndex)
        vm.changed.connect(self._show_results)
        follow(self.retheme)
        self.hide()

    def retheme(self) -> None:
        """Say names in the present language; take sizes from the present zoom."""
        self.list.setAccessibleName(tr("Results"))
        self.list.scheduleDelayedItemsLayout()
        self._place()

    def toggle(self) -> None:
        """Open it, or put it away."""
        if self.isVisible():
            self.put_away()
            return
        self._before = QApplication.focusWidget()
        self.field.clear()
        self._vm.set_query("")
        self.show()
        self._place()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def put_away(self) -> None:
        """Close it; the keyboard goes back where it was."""
        self.hide()
        before, self._before = self._before, None
        if before is not None:
            before.setFocus(Qt.FocusReason.OtherFocusReason)

    def run_current(self) -> None:
        """Do what is chosen."""
        self._run(self.list.currentIndex())

    def _run(self, index: QModelIndex) -> None:
        entry = self.items.entry(index.row())
        if entry is None or self.isHidden():  # a click may be told as two
            return
        self.put_away()
        match entry.kind:
            case "page":
                self.page_chosen.emit(entry.target)
            case "action":
                self.action_chosen.emit(entry.target)
            case "setting":
                self.setting_chosen.emit(entry.target)
            case "model":
                self.model_chosen.emit(entry.target)
            case _:
                self.chat_chosen.emit(int(entry.target), entry.message)

    def _show_results(self) -> None:
        """Show what was found; the first entry is chosen, or still the one that was."""
        kept = self.items.entry(self.list.currentIndex().row())
        self.items.show_groups(self._vm.groups)
        rows = [row for row in range(self.items.rowCount()) if self.items.entry(row) is not None]
        same = [row for row in rows if self.items.entry(row) == kept and self._vm.query]
        self.none.setVisible(not rows)
        self.list.setVisible(bool(rows))
        if rows:
            self._choose((same or rows)[0])
        self.list.scrollToTop()
        self._place()

    def _move(self, step: int) -> None:
        """Choose another entry; over the ends it goes on at the other one."""
        rows = [row for row in range(self.items.rowCount()) if self.items.entry(row) is not None]
        now = self.list.currentIndex().row()
        if not rows:
            return
        place = rows.index(now) if now in rows else 0
        if abs(step) == 1:
            place = (place + step) % len(rows)
        else:
            place = min(max(0, place + step), len(rows) - 1)
        self._choose(rows[place])
        if place == 0:
            self.list.scrollToTop()  # with its head

    def _choose(self, row: int) -> None:
        self.list.setCurrentIndex(self.items.index(row))
        entry = self.items.entry(row)
        if entry is not None and self.isVisible():
            words = " ".join(text for text in (again(entry.title), again(entry.detail)) if text)
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self.field, words))

    # --- room and keys --------------------------------------------------------------------------

    def _place(self) -> None:
        """Cover the window; the card stands in its upper middle, as high as its rows."""
        window = self.parentWidget()
        if window is None:
            return
        self.setGeometry(window.rect())
        rows = sum(
            px(ROW if self.items.entry(row) is not None else HEAD)
            for row in range(self.items.rowCount())
        )
        room = max(px(ROW), self.height() - px(TOP) - px(80))
        self.list.setFixedHeight(min(rows, px(MOST_HEIGHT), room))
        width = min(px(WIDTH), self.width() - px(32))
        top = min(px(TOP), self.height() // 8)
        self.card.setGeometry((self.width() - width) // 2, top, width, 0)
        self.card.resize(width, self.card.sizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Arrows of the field move in the list; the window's size is ours."""
        if watched is self.field and isinstance(event, QKeyEvent):
            is_press = event.type() == QEvent.Type.KeyPress
            key = Qt.Key(event.key())
            if is_press and key in _STEPS:
                self._move(_STEPS[key])
                return True
            if is_press and key == Qt.Key.Key_Escape:
                self.put_away()
                return True
            if is_press and key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
                self._move(1 if key == Qt.Key.Key_Tab else -1)
                return True
        if watched is self.parentWidget() and event.type() == QEvent.Type.Resize:
            self._place()
        return super().eventFilter(watched, event)

    def hideEvent(self, event: QHideEvent) -> None:
        """Search no more, also when the window is closed with the palette open: the app may end."""
        self._vm.close()
        super().hideEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A click beside the card leaves."""
        if not self.card.geometry().contains(event.position().toPoint()):
            self.put_away()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Dim what is behind."""
        p = QPainter(self)
        p.fillRect(self.rect(), color("scrim"))
