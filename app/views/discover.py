"""Discover: the catalogue with search, order and fit, and the lines of models on their way.

Places widgets and binds them to the view models; decides nothing. Parts of the Models page.
"""

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.theme import follow
from app.viewmodels.discover import ORDERS, DiscoverViewModel
from app.viewmodels.flows import Flow, FlowsViewModel
from app.views.discover_parts import (
    ACTION_W,
    CONTEXT_W,
    FIT_W,
    FORMAT_W,
    NARROW_FIT_W,
    SIZE_W,
    SPEED_W,
    DiscoverRowView,
    FlowCard,
)
from app.widgets.buttons import Button, Toggle
from app.widgets.cards import Card, EmptyState
from app.widgets.dialogs import ask
from app.widgets.inputs import Combo, LineField
from app.widgets.labels import Icon, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.rows import arrange_rows
from app.wording import tr, tr_count

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
        self._head = self._header()
        lists = vbox(self._head, self._list_card, self._empty, gap=6)
        self.setLayout(vbox(tools, lists, foot, gap=12))
        self.search.textChanged.connect(vm.search)
        self.only.toggled.connect(vm.show_only_fitting)
        self.order.activated.connect(self._sort)
        vm.changed.connect(self._show)
        follow(self._show)

    def _header(self) -> QWidget:
        def head(text: str, width: int, right: bool = False) -> Label:
            label = Label(text, "caption", "text3", 500)
            if right:
                label.setAlignment(Qt.AlignmentFlag.AlignRight)
            return fixed(label, width)

        self._fit_head = head(tr("Fit on this PC"), FIT_W)
        self._context_head = head(tr("Context"), CONTEXT_W, right=True)
        self._slim_heads = (
            head(tr("Format"), FORMAT_W),
            head(tr("Size"), SIZE_W, right=True),
            head(tr("Predicted"), SPEED_W, right=True),
        )
        form, size, speed = self._slim_heads
        return holder(
            hbox(
                (Label(tr("Model"), "caption", "text3", 500), 1),
                form,
                self._context_head,
                size,
                self._fit_head,
                speed,
                head("", ACTION_W),
                gap=12,
                pad=(16, 0, 12, 0),
            )
        )

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what does not fit."""
        self._is_narrow, self._is_slim = narrow, slim
        self._context_head.setVisible(not narrow)
        for head in self._slim_heads:
            head.setVisible(not slim)
        self._only_words.setVisible(not slim)
        self._sort_words.setVisible(not slim)
        fixed(self._fit_head, NARROW_FIT_W if narrow else FIT_W)
        self._fit_head.set_text(tr("Fit") if narrow else tr("Fit on this PC"))
        for row in self._rows.values():
            row.set_narrow(narrow, slim)

    def _sort(self, index: int) -> None:
        self._vm.sort(ORDERS[index])

    def _show(self) -> None:
        wanted = [row.entry.repo for row in self._vm.rows]
        if wanted != list(self._rows):
            self._rows = arrange_rows(self._list, self._rows, wanted, self._make_row)
        for row in self._vm.rows:
            self._rows[row.entry.repo].show_row(row)
        self._list_card.setVisible(bool(wanted))
        self._head.setVisible(bool(wanted))
        self._empty.setVisible(not wanted)
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


class FlowsBox(QWidget):
    """The lines of models on their way, and the sentence why one did not begin.

    Signals:
        load_asked(Path): a model that became ready.
    """

    load_asked = Signal(object)

    def __init__(self, vm: FlowsViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._cards: dict[str, FlowCard] = {}
        self._is_narrow = self._is_slim = False
        self._problem = Sentence()
        close = Button("", "ghost", "x", small=True, name=tr("Dismiss"))
        close.clicked.connect(vm.dismiss_problem)
        self._band = Card(hbox((self._problem, 1), close, gap=8, pad=(16, 9, 10, 9)), edge="danger")
        self._left = Sentence()
        self.delete_left = Button(tr("Delete them"), "secondary", "trash", small=True)
        self.delete_left.clicked.connect(self._ask_delete)
        self._left_band = Card(hbox((self._left, 1), self.delete_left, gap=8, pad=(16, 9, 10, 9)))
        self._box = vbox(self._band, self._left_band, gap=10)
        self.setLayout(self._box)
        vm.changed.connect(self._show)
        follow(self._show)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Draw the stages closer together."""
        self._is_narrow, self._is_slim = narrow, slim
        for card in self._cards.values():
            card.set_narrow(narrow, slim)

    def _show(self) -> None:
        wanted = {flow.repo: flow for flow in self._vm.flows}
        for repo in [repo for repo in self._cards if repo not in wanted]:
            card = self._cards.pop(repo)
            self._box.removeWidget(card)
            card.deleteLater()
        for repo, flow in wanted.items():
            if repo not in self._cards:
                self._cards[repo] = self._make_card()
                self._box.addWidget(self._cards[repo])
            self._cards[repo].show_flow(flow)
        self._problem.show_text("refused", self._vm.problem)
        self._band.setVisible(bool(self._vm.problem))
        self._left.show_text("info", self._left_words())
        self._left_band.setVisible(bool(self._vm.leftovers))
        self.setVisible(bool(wanted or self._vm.problem or self._vm.leftovers))

    def _left_words(self) -> str:
        left = self._vm.leftovers
        if not left:
            return ""
        return tr_count(
            "{count} download on the disk is not under way: {names}, {size}.",
            "{count} downloads on the disk are not under way: {names}, {size}.",
            len(left),
            names=", ".join(kept.repo for kept in left),
            size=amounts.disk(sum(kept.num_bytes for kept in left)),
        )

    def _make_card(self) -> FlowCard:
        vm, card = self._vm, FlowCard()
        card.set_narrow(self._is_narrow, self._is_slim)
        card.pause_asked.connect(vm.pause)
        card.resume_asked.connect(vm.resume)
        card.free_asked.connect(vm.free_source)
        card.dismiss_asked.connect(vm.dismiss)
        card.token_given.connect(vm.give_token)
        card.settings_asked.connect(vm.settings_wanted)
        card.give_up_asked.connect(self._ask_give_up)
        card.page_asked.connect(self._open_page)
        card.load_asked.connect(self.load_asked)
        return card

    def _ask_give_up(self, job_id: str) -> None:
        flow = next((flow for flow in self._vm.flows if flow.job.id == job_id), None)
        if flow is None:
            return
        ask(
            self,
            tr("Stop fetching {name}?", name=flow.title),
            _loss(flow),
            tr("Keep"),
            tr("Stop and delete"),
            _GiveUp(self._vm, flow.repo),
        )

    def _ask_delete(self) -> None:
        size = amounts.disk(sum(kept.num_bytes for kept in self._vm.leftovers))
        ask(
            self,
            tr("Delete these downloads?"),
            tr("Frees {size}. Converted models stay as they are.", size=size),
            tr("Keep"),
            tr("Delete"),
            self._vm.delete_leftovers,
        )

    def _open_page(self, repo: str) -> None:
        QDesktopServices.openUrl(QUrl(self._vm.page(repo)))


def _loss(flow: Flow) -> str:
    progress = flow.job.progress
    size = flow.job.spec.get("source_bytes", 0) if flow.job.job == "convert" else 0
    if flow.job.job == "download" and progress is not None:
        size = progress.done_bytes
    return tr("{size} that were fetched are deleted. Pausing keeps them.", size=amounts.disk(size))


class _GiveUp:
    """Ends a flow when called; a plain object, so that no closure keeps the page alive."""

    def __init__(self, vm: FlowsViewModel, repo: str) -> None:
        self._vm, self._repo = vm, repo

    def __call__(self) -> None:
        flow = self._vm.flow_of(self._repo)  # it may be another job by now: the conversion
        if flow is not None:
            self._vm.give_up(flow.job.id)
