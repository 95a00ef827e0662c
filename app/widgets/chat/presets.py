"""The preset row of the inspector: choose one, see whether the chat differs, save, delete.

A name is typed in place; no dialog opens.
"""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QWidget

from app.widgets import Button, Chip, Combo, LineField, hbox, holder, vbox
from app.widgets.chat.wrap import Wrap
from app.wording import tr

NONE = tr("No preset")


class NameField(LineField):
    """A name; Enter keeps it, Esc leaves.

    Signals:
        left: Esc was pressed.
    """

    left = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc leaves, whatever is typed."""
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
            return
        super().keyPressEvent(event)


class PresetRow(QWidget):
    """Presets of all chats, and the one of this chat.

    Signals:
        chosen(name): another preset, "" = none.
        saved_as(name): keep the values of this chat under a name.
        saved(): give the preset the values of this chat.
        deleted(): remove the preset of this chat.
    """

    chosen = Signal(str)
    saved_as = Signal(str)
    saved = Signal()
    deleted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._names: tuple[str, ...] = ()
        self.combo = Combo((NONE,), width=None, name=tr("Preset"))
        self.changed = Chip(tr("Changed"), "warn")
        self.save = Button(tr("Save"), "ghost", "save", small=True, tip=tr("Save into the preset"))
        self.save_as = Button(tr("Save as…"), "ghost", "plus", small=True)
        self.delete = Button("", "ghost", "trash", small=True, name=tr("Delete the preset"))
        self.name = NameField(tr("Name of the preset"))
        self.keep = Button(tr("Save"), "primary", small=True)
        self._naming = holder(hbox((self.name, 1), self.keep, gap=6))
        acts = Wrap()
        for part in (self.changed, self.save, self.save_as, self.delete):
            acts.addWidget(part)
        self.setLayout(vbox(self.combo, acts, self._naming, gap=4))
        self._naming.hide()
        self.set_state((), "", False)
        self.combo.activated.connect(self._choose)
        self.save.clicked.connect(self.saved)
        self.delete.clicked.connect(self.deleted)
        self.save_as.clicked.connect(self._begin_name)
        self.name.returnPressed.connect(self._keep)
        self.name.left.connect(self._end_name)
        self.keep.clicked.connect(self._keep)

    def set_state(self, names: Sequence[str], current: str, is_changed: bool) -> None:
        """Show all names, the chosen one, and whether the chat differs from it."""
        self._names = tuple(names)
        place = self._names.index(current) + 1 if current in self._names else 0
        self.combo.set_items((NONE, *self._names), place)
        self.changed.setVisible(is_changed)
        self.save.setVisible(is_changed)
        self.delete.setVisible(place > 0)

    def _choose(self, place: int) -> None:
        self._end_name()
        self.chosen.emit(self._names[place - 1] if place else "")

    def _begin_name(self) -> None:
        self._naming.show()
        self.name.clear()
        self.name.setFocus(Qt.FocusReason.OtherFocusReason)

    def _end_name(self) -> None:
        if not self._naming.isHidden():
            had_focus = self.name.hasFocus()
            self._naming.hide()
            if had_focus:
                self.save_as.setFocus(Qt.FocusReason.OtherFocusReason)

    def _keep(self) -> None:
        name = self.name.text().strip()
        if name:
            self._end_name()
            self.saved_as.emit(name)
