"""Discover: the catalogue with search, order and fit.

Places widgets and binds them to the view models; decides nothing. Parts of the Models page.
"""

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.theme import follow
from app.viewmodels.discover import ORDERS, DiscoverViewModel
from app.views.discover_hub import HubBox
from app.views.discover_parts import ColumnHeads, DiscoverRowView
from app.widgets.buttons import Toggle
from app.widgets.cards import Card, EmptyState
from app.widgets.inputs import Combo, LineField
from app.widgets.labels import Icon, Label
from app.widgets.layout import Item, hbox, vbox
from app.widgets.rows import arrange_rows
from app.wording import tr

_ORDER_WORDS = (tr("Fit"), tr("Predicted speed"), tr("Size"), tr("Name"))


class DiscoverPanel(QWidget):
    """The tab."""

    def __init__(self, vm: DiscoverViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._rows: dict[str, DiscoverRowView] = {}
        self._is_narrow = self._is_slim = False
        self.search = LineField(tr("Search, or paste OWNER/NAME"), "search")
        self.only = Toggle(False, tr("Only what fits"))
        self.order = Combo(_ORDER_WORDS, 0, 150, name=tr("Sort"))
        self._only_words = Label(tr("Only what fits"), "meta", "text2")
        self._sort_words = Label(tr("Sort"), "meta", "text2")
        self._list = vbox(gap=0)
        self._list_card = Card(self._list)
        self._empty = Card(
            vbox(
                EmptyState(
                    tr("No model has these words."),
                    icon="search",
                    help_text=tr("A model of the hub is fetched by its name, OWNER/NAME."),
                )
            )
        )
        self._foot = Label("", "meta", "text3", wrap=True)
        top = Qt.AlignmentFlag.AlignTop
        foot = hbox(
            (vbox(Icon("info", 14, "text3"), pad=(0, 1, 0, 0)), 0, top), (self._foot, 1), gap=6
        )
        tools = hbox(
            (self.search, 1), 6, self._only_words, self.only, 6, self._sort_words, self.order, gap=8
        )
        self._head = ColumnHeads()
        lists = vbox(self._head, self._list_card, self._empty, gap=6)
        self.hub = HubBox(vm, vm.hub) if vm.hub is not None else None
        more: tuple[Item, ...] = (self.hub,) if self.hub is not None else ()
        self.setLayout(vbox(tools, lists, *more, foot, gap=12))
        self.search.textChanged.connect(self._search)
        self.search.returnPressed.connect(vm.ask_hub)
        self.only.toggled.connect(vm.show_only_fitting)
        self.order.activated.connect(self._sort)
        vm.changed.connect(self._show)
        follow(self._show)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what does not fit."""
        self._is_narrow, self._is_slim = narrow, slim
        self._head.set_narrow(narrow, slim)
        self._only_words.setVisible(not slim)
        self._sort_words.setVisible(not slim)
        for row in self._rows.values():
            row.set_narrow(narrow, slim)
        if self.hub is not None:
            self.hub.set_narrow(narrow, slim)

    def _search(self, text: str) -> None:
        self._vm.search(text)
        if self.hub is not None:
            self.hub.show_query()

    def _sort(self, index: int) -> None:
        self._vm.sort(ORDERS[index])

    def showEvent(self, event: QShowEvent) -> None:
        """Build and fill the rows when somebody looks, not before."""
        super().showEvent(event)
        self._show()

    def _show(self) -> None:
        if not self.isVisible():
            return
        wanted = [row.entry.repo for row in self._vm.rows]
        if wanted != list(self._rows):
            self._rows = arrange_rows(self._list, self._rows, wanted, self._make_row)
        for row in self._vm.rows:
            self._rows[row.entry.repo].show_row(row)
        self._list_card.setVisible(bool(wanted))
        self._head.setVisible(bool(wanted))
        self._empty.setVisible(not wanted and not self._vm.found)
        self._foot.set_text(self._basis())

    def _basis(self) -> str:
        """What fit and speed rest on."""
        machine = self._vm.machine
        parts = []
        if machine.vram_total:
            parts.append(tr("{size} VRAM", size=amounts.memory(machine.vram_total)))
        if machine.ram_total:
            parts.append(tr("{size} RAM", size=amounts.memory(machine.ram_total)))
        if machine.fill_gbps and machine.vram_total:
            parts.append(tr("{rate} GB/s PCIe", rate=amounts.number(machine.fill_gbps)))
        if machine.cpu_gbps:
            parts.append(tr("{rate} GB/s CPU", rate=amounts.number(machine.cpu_gbps)))
        if machine.disk_free >= 0:
            parts.append(tr("{size} of disk free", size=amounts.disk(machine.disk_free)))
        if not parts:
            return tr("Sizes are approximate.")
        known = ", ".join(str(part) for part in parts)
        if not machine.cpu_gbps:
            return tr("Fit is judged for this PC: {parts}. Sizes are approximate.", parts=known)
        return tr(
            "Fit and speed are predicted for this PC: {parts}. Sizes are approximate.", parts=known
        )

    def _make_row(self, repo: str) -> DiscoverRowView:
        row = DiscoverRowView(repo)
        row.set_narrow(self._is_narrow, self._is_slim)
        row.get_asked.connect(self._vm.get)
        return row
