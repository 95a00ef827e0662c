"""Settings: sections left, one form right; a value that differs from its default can be reset.

The rows come from the schema through the view model; each has a name, help and a control.
"""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QSize, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QWidget

from app.services.settings_schema import Value
from app.theme import px
from app.viewmodels.settings import SECTIONS, Fact, SettingsViewModel
from app.views.shortcuts import SHORTCUTS, shown_keys
from app.widgets.buttons import Button
from app.widgets.cards import EmptyState, page_head
from app.widgets.chips import Chip
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Label
from app.widgets.layout import Scroll, fixed, hbox, holder, vbox
from app.widgets.rail import NavItem
from app.widgets.setting_rows import Group, Row, SettingRow
from app.wording import tr

SIDE, SIDE_FOLDED, NARROW_BELOW = 196, 40, 700  # px at 100 %
_LONG = 36  # letters of a fact that do not fit beside its name


class _FactRow(Row):
    """A line of About: name and value; long ones below the name, folders with a button."""

    def __init__(self, fact: Fact) -> None:
        self._fact = fact
        if fact.path is None:
            if len(fact.value) > _LONG:
                super().__init__(fact.name, fact.value)
                return
            value = Elide(fact.value, "meta", "text2")
            value.setAlignment(Qt.AlignmentFlag.AlignRight)
            super().__init__(fact.name, "", (value, 1))
            return
        button = Button(tr("Open"), small=True, name=tr("Open: {name}", name=fact.name))
        button.clicked.connect(self._open)
        super().__init__(fact.name, fact.value, button)

    def _open(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._fact.path)))


class SettingsView(QWidget):
    """The page.

    Args:
        vm: rows and values.
        extra: rows with a life of their own, by section; they come first.

    Attributes:
        rows: by key of the schema, of the sections that are built.
        groups: the sections that are built; each is when it is first shown or searched.
    """

    def __init__(
        self, vm: SettingsViewModel, extra: Mapping[str, Sequence[Row]] | None = None
    ) -> None:
        super().__init__()
        self._vm = vm
        self._extra = extra or {}
        self.rows: dict[str, SettingRow] = {}
        self.groups: dict[str, Group] = {}
        self._is_narrow = False
        self._section = "general"
        self.items = {key: NavItem(icon, text) for key, text, icon in SECTIONS}
        self._keys = list(self.items)
        self._buttons = QButtonGroup(self)
        for index, item in enumerate(self.items.values()):
            self._buttons.addButton(item, index)
        self.search = LineField(tr("Search settings"), "search")
        self.said = Label(tr("Saved automatically"), "meta", "text3")
        self._nothing = EmptyState(tr("No setting has these words."), icon="search")
        self._build()
        self._buttons.idClicked.connect(self._choose)
        self.search.textChanged.connect(self._search)
        vm.changed.connect(self._show)
        vm.notice.connect(self._say)
        vm.restart_needed.connect(self._say_restart)
        self.open_section("general")

    def _build(self) -> None:
        self._column = vbox(self._nothing, None, gap=16, pad=(0, 0, 16, 0))
        column = holder(self._column)
        fixed(column, max_width=776)
        self._search_place = vbox(self.search, pad=(0, 0, 0, 6))
        self._side = holder(vbox(self._search_place, *self.items.values(), None, gap=2))
        self._body = hbox(fixed(self._side, width=SIDE), (Scroll(column), 1), gap=24)
        self._head_place = hbox()
        head = page_head(tr("Settings"), self._head_place, self.said, 16)
        self.setLayout(vbox(head, (self._body, 1), gap=14, pad=(20, 12, 4, 14)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fold the sections to their icons where the form needs the room."""
        super().resizeEvent(event)
        narrow = self.width() < px(NARROW_BELOW)
        if narrow == self._is_narrow:
            return
        self._is_narrow = narrow
        for item in self.items.values():
            item.set_folded(narrow)
        fixed(self._side, width=SIDE_FOLDED if narrow else SIDE)
        fixed(self.search, max_width=SIDE)
        (self._head_place if narrow else self._search_place).addWidget(self.search)
        self.search.retheme()  # Qt gives a widget that moves its first font again
        for group in self.groups.values():
            for row in group.rows:
                row.set_narrow(narrow)

    def minimumSizeHint(self) -> QSize:
        """Narrow windows fold the sections."""
        return QSize(px(400), px(240))

    def build(self, section: str) -> Group:
        """Return a section, which is built at the first call, hidden and at its place."""
        if section in self.groups:
            return self.groups[section]
        title = next(text for key, text, _ in SECTIONS if key == section)
        group = Group(title, self._rows_of(section))
        group.hide()
        for row in group.rows:
            row.set_narrow(self._is_narrow)
        self.groups[section] = group
        place = [key for key in self._keys if key in self.groups].index(section)
        self._column.insertWidget(place, group)
        return group

    def _rows_of(self, section: str) -> list[Row]:
        rows: list[Row] = []
        if section == "shortcuts":
            rows = [
                Row(entry.text, entry.group, Chip(shown_keys(entry), mono=True))
                for entry in SHORTCUTS
            ]
        elif section == "about":
            rows = [_FactRow(fact) for fact in self._vm.facts()]
        rows += self._extra.get(section, ())
        for field in self._vm.rows(section):
            row = SettingRow(field)
            row.edited.connect(self._edit)
            row.reset_wanted.connect(self._vm.reset)
            self.rows[field.key] = row
            rows.append(row)
            row.show_value(self._vm.value(field.key), self._vm.is_changed(field.key))
        if section == "about":
            rows += [_FactRow(fact) for fact in self._vm.kernels()]
        return rows

    def open_section(self, key: str) -> None:
        """Show a section by its key; ends a search."""
        self._section = key
        self.search.clear()
        self._show_section(key)

    def shortcut(self, name: str) -> bool:
        """Ctrl+K searches here."""
        if name != "search":
            return False
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()
        return True

    def _choose(self, index: int) -> None:
        self.open_section(self._keys[index])

    def _mark(self, key: str) -> None:
        """Mark a section as the one that is shown; "" = none, as in a search."""
        self._buttons.setExclusive(False)
        for name, item in self.items.items():
            item.setChecked(name == key)
        self._buttons.setExclusive(True)

    def _show_section(self, key: str) -> None:
        self._mark(key)
        self.build(key)
        for name, group in self.groups.items():
            group.show_matching("")
            group.setVisible(name == key)
        self._nothing.hide()

    def _search(self, text: str) -> None:
        if not text.strip():
            self._show_section(self._section)
            return
        self._mark("")
        found = False
        for group in [self.build(key) for key in self._keys]:
            has = group.show_matching(text)
            group.setVisible(has)
            found = found or has
        self._nothing.setVisible(not found)

    def _edit(self, key: str, value: Value) -> None:
        row = self.rows[key]
        self.said.set_role("text3")  # what was said of an earlier change is over
        self.said.set_text(tr("Saved automatically"))
        sentence = self._vm.set(key, value)
        row.say(sentence)
        if sentence:
            self._show(key)

    def _show(self, key: str) -> None:
        row = self.rows.get(key)
        if row is not None:
            row.show_value(self._vm.value(key), self._vm.is_changed(key))

    def _say(self, sentence: str) -> None:
        self.said.set_role("danger")
        self.said.set_text(sentence)

    def _say_restart(self, label: str) -> None:
        self.said.set_role("warn")
        self.said.set_text(tr("Takes effect when the engine is restarted: {name}", name=label))
