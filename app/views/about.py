"""Rows of Settings, About: releases, and the licences of all parts in a dialog."""

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QWidget

from app.services.licences import Licence
from app.theme import follow
from app.viewmodels.about import AboutViewModel
from app.widgets.buttons import Button, Toggle
from app.widgets.cards import Card
from app.widgets.inputs import Combo
from app.widgets.labels import Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.reader import Reader
from app.widgets.setting_rows import Row
from app.wording import tr


class UpdateRow(Row):
    """Whether to look for releases, and what is known."""

    def __init__(self, vm: AboutViewModel) -> None:
        self._vm = vm
        self.toggle = Toggle(name=tr("Look for new versions"))
        self.ask = Button(tr("Look now"), small=True, name=tr("Look for a new version now"))
        super().__init__(
            tr("Look for new versions"),
            tr("At each start, one signed file. Nothing is installed by itself"),
            self.ask,
            self.toggle,
        )
        self.open = Button(tr("Open its page"), "secondary", "globe", small=True)
        self._said = Sentence()
        column = self.layout()
        if column is not None:
            line = hbox((self._said, 1), self.open, gap=10, pad=(16, 0, 16, 11))
            column.addWidget(holder(line))
        self.toggle.toggled.connect(vm.set_on)
        self.ask.clicked.connect(vm.ask)
        self.open.clicked.connect(self._open)
        vm.changed.connect(self._show)
        follow(self._show)

    def _open(self) -> None:
        if self._vm.newer is not None:
            QDesktopServices.openUrl(QUrl(self._vm.newer.page))

    def _show(self) -> None:
        vm = self._vm
        if self.toggle.isChecked() != vm.is_on:
            self.toggle.show_on(vm.is_on)
        self.toggle.setEnabled(vm.can_check)
        self.ask.setEnabled(vm.can_check and not vm.is_asking)
        self._said.show_text(vm.tone, vm.sentence)
        self.open.setVisible(vm.newer is not None)


class LicenceRow(Row):
    """A button that shows the licences."""

    def __init__(self, vm: AboutViewModel) -> None:
        self._vm = vm
        self.show_button = Button(tr("Show"), small=True, name=tr("Show the licences"))
        super().__init__(
            tr("Licences"), tr("Of this program and everything that it brings"), self.show_button
        )
        self.show_button.clicked.connect(self.show_licences)

    def show_licences(self) -> QDialog:
        """Open the dialog."""
        dialog = LicenceDialog(self._vm.licences(), self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        return dialog


class LicenceDialog(QDialog):
    """One part at a time: its licence in short, and the whole text."""

    def __init__(self, licences: tuple[Licence, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dialog")
        self._licences = licences
        self.parts = Combo([entry.name for entry in licences], 0, 300, name=tr("Part"))
        self._short = Label("", "meta", "text2")
        self.text = Reader(tr("Text of the licence"))
        close = Button(tr("Close"), "secondary")
        close.setDefault(True)
        close.clicked.connect(self.accept)
        text = Card(vbox((self.text, 1), pad=(12, 10, 12, 10)), fill="surface")
        self.setLayout(
            vbox(
                Label(tr("Licences"), "section", "text", 600),
                hbox(self.parts, (self._short, 1), gap=12),
                (text, 1),
                hbox(None, close),
                gap=12,
                pad=(20, 16, 20, 16),
            )
        )
        fixed(self, width=680, min_height=520)
        self.parts.activated.connect(self._show)
        self._show(0)
        follow(self.retheme)

    def retheme(self) -> None:
        """Say the title in the present language."""
        self.setWindowTitle(tr("Licences"))

    def _show(self, index: int) -> None:
        entry = self._licences[index]
        facts = (entry.version, entry.licence)
        self._short.set_text("  ·  ".join(fact for fact in facts if fact))
        self.text.setPlainText(entry.read() or tr("See the package's own page."))
