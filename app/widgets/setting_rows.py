"""One row of the settings page: name and help at the left, the control and reset at the right.

Made from a `SettingField`; it stores nothing and says what the person did by signals.
"""

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.services.settings_schema import SettingField, Value
from app.theme import follow
from app.widgets.buttons import Button, Toggle
from app.widgets.cards import Card, Line
from app.widgets.inputs import Combo, Field, LineField
from app.widgets.labels import Elide, Label
from app.widgets.layout import Item, fixed, hbox, holder, vbox
from app.wording import Phrase, again, tr

CONTROL_WIDTH, NARROW_WIDTH = 300, 210


class Row(QWidget):
    """Name, help, control; a hairline above it that the first row of a card hides.

    Controls that stretch, such as a field for an address, share one width in all rows; others take
    what they need, and the words have the rest.
    """

    def __init__(
        self, name: str, help_text: str, *control: Item, reset: QWidget | None = None
    ) -> None:
        super().__init__()
        self.line = Line()
        self._name, self._help = name, help_text
        self.note = Label("", "meta", "danger", wrap=True)
        self.note.hide()
        help_label: QWidget = Elide(help_text, "meta", "text3")  # a path has no place to wrap at
        if isinstance(help_text, Phrase):
            help_label = Label(help_text, "meta", "text3", wrap=True)
        words = vbox(None, Label(name, "body", "text", 500, wrap=True), gap=2)
        if help_text:
            words.put(help_label)
        words.put(self.note)
        words.put(None)
        slot = fixed(holder(hbox(*([reset] if reset else []), gap=0)), width=24)
        self._stretches = any(isinstance(item, tuple) for item in control)
        lead = [] if self._stretches else [None]
        self._right = holder(hbox(*lead, *control, slot, gap=6))
        self.set_narrow(False)
        body = fixed(
            holder(hbox((words, 1), self._right, gap=16, pad=(16, 7, 8, 7))), min_height=55
        )
        self.setLayout(vbox(self.line, body, gap=0))

    def set_narrow(self, narrow: bool) -> None:
        """Leave less room for the control."""
        if self._stretches:
            fixed(self._right, width=NARROW_WIDTH if narrow else CONTROL_WIDTH)

    def contains(self, text: str) -> bool:
        """Whether name or help contain a text, in the language in use."""
        wanted = text.strip().casefold()
        return wanted in f"{again(self._name)} {again(self._help)}".casefold()

    def say(self, sentence: str) -> None:
        """Show why a value was not taken, or nothing."""
        self.note.set_text(sentence)
        self.note.setVisible(bool(sentence))


class SettingRow(Row):
    """A row for one field of the schema.

    Signals:
        edited(str, object): key and the value the person chose.
        reset_wanted(str): key.
    """

    edited = Signal(str, object)
    reset_wanted = Signal(str)

    def __init__(self, field: SettingField) -> None:
        self.field = field
        self.reset = Button(
            kind="ghost", icon="undo", small=True, name=tr("Reset {name}", name=field.label)
        )
        self.reset.set_tip(tr("Back to the default"))
        parts = self._make_control()
        super().__init__(field.label, field.help, *parts, reset=self.reset)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keep)
        self.reset.clicked.connect(self._reset)

    def show_value(self, value: Value, changed: bool) -> None:
        """Show the stored value; `changed` = it differs from its default."""
        self.reset.setVisible(changed)
        control, field = self.control, self.field
        if isinstance(control, Toggle) and control.isChecked() == bool(value):
            return  # it may be gliding there
        control.blockSignals(True)
        if isinstance(control, Combo):
            values = [choice for choice, _ in field.choices]
            control.setCurrentIndex(values.index(str(value)) if value in values else 0)
        elif isinstance(control, Toggle):
            control.show_on(bool(value))
        elif isinstance(control, Field):
            control.setValue(float(value) * field.scale)
        elif isinstance(control, LineField):
            control.setText(str(value))
        elif isinstance(control, Elide):
            control.set_text(str(value) or tr("Default"))
        control.blockSignals(False)

    def _make_control(self) -> tuple[Item, ...]:
        field = self.field
        self.control: QWidget
        if field.kind == "choice":
            combo = Combo([text for _, text in field.choices], width=170, name=field.label)
            combo.activated.connect(self._chosen)
            self.control = combo
        elif field.kind == "switch":
            toggle = Toggle(name=field.label)
            toggle.toggled.connect(self._switched)
            self.control = toggle
        elif field.kind == "number":
            self.control = self._make_number()
        elif field.kind == "text":
            line = fixed(LineField(name=field.label), min_width=120, max_width=CONTROL_WIDTH - 30)
            line.editingFinished.connect(self._typed)
            self.control = line
            return ((line, 1),)
        else:
            self.control = Elide("", "meta", "text2")
            self.control.setAlignment(Qt.AlignmentFlag.AlignRight)
            choose = Button(tr("Choose"), small=True, name=tr("Choose: {name}", name=field.label))
            choose.clicked.connect(self._browse)
            return ((self.control, 1), choose)
        return (self.control,)

    def _make_number(self) -> Field:
        field = self.field
        step = field.step * field.scale
        number = Field(
            0,
            field.unit,
            124,
            field.minimum * field.scale,
            field.maximum * field.scale or 1e9,
            step,
            name=field.label,
            least=field.least,
        )
        number.setDecimals(0 if step >= 1 else 2)
        number.valueChanged.connect(self._numbered)
        return number

    def _chosen(self, index: int) -> None:
        self.edited.emit(self.field.key, self.field.choices[index][0])

    def _switched(self, on: bool) -> None:
        self.edited.emit(self.field.key, on)

    def _numbered(self, number: float) -> None:
        value = number / self.field.scale
        whole = isinstance(self.field.default, int)
        self.edited.emit(self.field.key, round(value) if whole else round(value, 4))

    def _typed(self) -> None:
        control = self.control
        if isinstance(control, LineField):
            self.edited.emit(self.field.key, control.text())

    def _browse(self) -> None:
        if self.field.kind == "folder":
            path = QFileDialog.getExistingDirectory(self, again(self.field.label))
        else:
            path, _ = QFileDialog.getOpenFileName(self, again(self.field.label))
        if path:
            self.edited.emit(self.field.key, str(Path(path)))  # with the system's separators

    def _reset(self) -> None:
        self.reset_wanted.emit(self.field.key)


class Group(QWidget):
    """A head and a card of rows; rows that a search leaves out are hidden."""

    def __init__(self, title: str, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows
        head = Label(title, "meta", "text2", 600)
        self.setLayout(vbox(head, Card(vbox(*rows, gap=0)), gap=7))
        follow(self.update)
        self.show_matching("")

    def show_matching(self, text: str) -> bool:
        """Show the rows that contain `text`; returns whether there are any."""
        first = True
        for row in self.rows:
            wanted = row.contains(text)
            row.setVisible(wanted)
            row.line.setVisible(not first)
            first = first and not wanted
        return not first
