"""The auto-yield card of the Performance page: switch, state, floor, return time, Yield now."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy

from app.predict.yielding import YieldState
from app.theme import follow
from app.viewmodels.yielding import YieldingViewModel, YieldNow
from app.widgets.buttons import Button, Toggle
from app.widgets.cards import Card, Line
from app.widgets.chips import Chip
from app.widgets.inputs import Field
from app.widgets.labels import Elide, Label
from app.widgets.layout import hbox, vbox
from app.wording import tr

_TONES = {
    YieldState.FULL: "ok",
    YieldState.YIELDING: "warn",
    YieldState.YIELDED: "warn",
    YieldState.RESTORING: "plain",
}


class YieldCard(Card):
    """See the module.

    Signals:
        more_wanted(): the other settings: programs, full-screen, least share.
    """

    more_wanted = Signal()

    def __init__(self, vm: YieldingViewModel) -> None:
        self._vm = vm
        self.chip = Chip("", "ok")
        self.toggle = Toggle(name=tr("Auto-yield"))
        self.more = Button(
            kind="ghost", icon="settings", small=True, name=tr("Programs and other settings")
        )
        self.reason = Label("", "meta", "text2", wrap=True)
        self.floor = Field(0, "GiB", 84, 0, 1024, 0.5, 1, name=tr("Floor: free memory for others"))
        self.after = Field(0, "s", 70, 0, 3600, 5, name=tr("Return after, seconds"))
        self.last = Elide("", "meta", "text3")
        self.act = Button(tr("Yield now"), small=True)
        super().__init__(
            vbox(
                hbox(
                    _tight(Elide(tr("Auto-yield"), "body", "text", 600)),
                    self.chip,
                    None,
                    self.more,
                    self.toggle,
                    gap=8,
                ),
                self.reason,
                None,
                hbox(
                    _tight(Elide(tr("Floor"), "meta", "text2")),
                    self.floor,
                    4,
                    _tight(Elide(tr("Return after"), "meta", "text2")),
                    self.after,
                    None,
                    gap=6,
                ),
                Line(),
                hbox((self.last, 1), self.act, gap=6),
                gap=6,
                pad=(16, 10, 16, 10),
            )
        )
        self.toggle.toggled.connect(vm.set_on)
        self.floor.valueChanged.connect(vm.set_floor)
        self.after.valueChanged.connect(vm.set_return)
        self.more.clicked.connect(self.more_wanted)
        self.act.clicked.connect(self._act)
        vm.changed.connect(self.show_now)
        follow(self.show_now)

    def show_now(self) -> None:
        """Follow the view model."""
        vm, now = self._vm, self._vm.now
        if self.toggle.isChecked() != now.is_on:  # else it may be gliding there
            self.toggle.show_on(now.is_on)
        self._show_chip(now)
        self.reason.set_text(now.reason)
        self.floor.show_value(vm.floor_gib)
        self.after.show_value(vm.return_s)
        self.floor.setEnabled(not now.is_emulated)
        no_floor = tr("Nothing tells how much of an emulated device is free.")
        self.floor.setToolTip(no_floor if now.is_emulated else "")
        self.last.set_text(now.last)
        self.act.setEnabled(now.is_known)
        self.act.set_text(tr("Take back") if now.can_take_back else tr("Yield now"))
        self.act.set_tip("" if now.is_known else tr("No model is loaded."))

    def _show_chip(self, now: YieldNow) -> None:
        self.chip.setVisible(now.is_known or not now.is_on)
        if now.is_on or now.is_yielded:
            self.chip.set_text(now.words, _TONES[now.state])
        else:
            self.chip.set_text(tr("Off"), "plain")

    def _act(self) -> None:
        if self._vm.now.can_take_back:
            self._vm.take_back()
        else:
            self._vm.yield_now()


def _tight(label: Elide) -> Elide:
    """Let a label take what it needs, and less where that is not there."""
    label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
    return label
