"""The remote engine in Settings: switch, address, key and model of a server of one's own."""

from PySide6.QtWidgets import QLineEdit

from app.theme import follow
from app.viewmodels.remote import RemoteViewModel
from app.widgets.buttons import Button, Toggle
from app.widgets.inputs import Combo, LineField
from app.widgets.layout import fixed, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.setting_rows import CONTROL_WIDTH, Row
from app.wording import tr

EXAMPLE = "https://host/v1"
WIDTH = 178  # of a field, px at 100 %


class SwitchRow(Row):
    """Whether messages go there, and what that means."""

    def __init__(self, vm: RemoteViewModel) -> None:
        self._vm = vm
        self.toggle = Toggle(name=tr("Answer with a remote engine"))
        super().__init__(
            tr("Answer with a remote engine"),
            tr("Messages then leave this PC. Any OpenAI-compatible server, such as vLLM or SGLang"),
            self.toggle,
        )
        self._sentence = Sentence()
        column = self.layout()
        if column is not None:
            column.addWidget(holder(vbox(self._sentence, pad=(16, 0, 12, 10))))
        self.toggle.toggled.connect(vm.set_on)
        vm.changed.connect(self._show)
        follow(self._show)

    def _show(self) -> None:
        vm = self._vm
        if self.toggle.isChecked() != vm.is_on:
            self.toggle.show_on(vm.is_on)
        tone, words = "info", str(tr("Off: everything stays on this PC."))
        if vm.problem:
            tone, words = "refused", vm.problem
        elif vm.is_asking:
            tone, words = "pending", tr("Asking the server.")
        elif vm.host and vm.is_open:
            tone = "warn"
            words = tr("Messages go to {host}, unencrypted: others may read along.", host=vm.host)
        elif vm.host:
            tone, words = "applied", tr("Messages go to {host}.", host=vm.host)
        self._sentence.show_text(tone, words)


class AddressRow(Row):
    """The server."""

    def __init__(self, vm: RemoteViewModel) -> None:
        self._vm = vm
        self.field = LineField(EXAMPLE, name=tr("Address of the server"))
        fixed(self.field, min_width=WIDTH, max_width=CONTROL_WIDTH - 30)
        super().__init__(
            tr("Address of the server"),
            tr("Nothing is sent before you ask for the models or write a message"),
            (self.field, 1),
        )
        self.field.editingFinished.connect(self._edit)
        vm.changed.connect(self._show)
        follow(self._show)

    def _edit(self) -> None:
        self._vm.set_address(self.field.text())

    def _show(self) -> None:
        if not self.field.hasFocus() and self.field.text() != self._vm.address:
            self.field.setText(self._vm.address)
            self.field.setCursorPosition(0)


class KeyRow(Row):
    """Its key."""

    def __init__(self, vm: RemoteViewModel) -> None:
        self._vm = vm
        self.field = LineField(name=tr("Key of the server"))
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        fixed(self.field, min_width=WIDTH, max_width=CONTROL_WIDTH - 30)
        super().__init__(
            tr("Key of the server"),
            tr("Kept in the system's keyring, else until the app ends; each server has its own"),
            (self.field, 1),
        )
        self.field.editingFinished.connect(self._edit)
        vm.changed.connect(self._show)
        follow(self._show)

    def _edit(self) -> None:
        if self.field.text():
            self._vm.set_key(self.field.text())
            self.field.clear()

    def _show(self) -> None:
        known = tr("A key is known") if self._vm.has_key else tr("None")
        self.field.setPlaceholderText(known)


class ModelRow(Row):
    """Which of its models answers."""

    def __init__(self, vm: RemoteViewModel) -> None:
        self._vm = vm
        self._names: tuple[str, ...] = ()
        self.combo = Combo((), 0, 170, name=tr("Model of the server"))
        self.ask = Button(tr("List"), small=True, name=tr("List the server's models"))
        super().__init__(
            tr("Model of the server"),
            tr("Asked from the server by the button"),
            self.combo,
            self.ask,
        )
        self.combo.activated.connect(self._pick)
        self.ask.clicked.connect(vm.list_models)
        vm.changed.connect(self._show)
        follow(self._show)

    def _pick(self, index: int) -> None:
        self._vm.set_model(self._names[index])

    def _show(self) -> None:
        vm = self._vm
        names = vm.models
        if vm.model and vm.model not in names:
            names = (vm.model, *names)
        self._names = names
        current = names.index(vm.model) if vm.model in names else 0
        self.combo.set_items(names or (tr("None yet"),), current)
        self.combo.setEnabled(bool(names))
        self.ask.setEnabled(not vm.is_asking)


def remote_rows(vm: RemoteViewModel) -> tuple[Row, ...]:
    """Return the rows of the section."""
    return (SwitchRow(vm), AddressRow(vm), KeyRow(vm), ModelRow(vm))
