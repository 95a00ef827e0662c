"""The device of models in Settings."""

from app.theme import follow
from app.viewmodels.device import DeviceViewModel
from app.widgets.inputs import Combo
from app.widgets.labels import Elide
from app.widgets.layout import hbox, holder
from app.widgets.setting_rows import Row
from app.wording import tr

WIDTH = 178  # px at 100 %


class DeviceRow(Row):
    """A row of the Engine section."""

    def __init__(self, vm: DeviceViewModel) -> None:
        self._vm = vm
        self.combo = Combo(width=WIDTH, name=tr("Device of models"))
        super().__init__(
            tr("Device of models"),
            tr("Automatic takes the card with the most memory. Counts from the next load"),
            self.combo,
        )
        self.fact = Elide("", "meta", "text2")
        column = self.layout()
        self._place = holder(hbox((self.fact, 1), pad=(16, 0, 12, 10)))
        if column is not None:
            column.addWidget(self._place)
        self.combo.activated.connect(vm.choose)
        vm.changed.connect(self._show)
        follow(self._show)

    def _show(self) -> None:
        self.combo.set_items([words for _, words in self._vm.choices], self._vm.chosen)
        self.fact.set_text(self._vm.sentence)
        self._place.setVisible(bool(self._vm.sentence))
