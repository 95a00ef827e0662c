"""Jobs: everything that runs, waits, rests, failed or is over, under one head each.

Places cards and binds them to the view model; decides nothing. Part of the Models page.
"""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.theme import follow
from app.viewmodels.jobs import JobLine, JobsViewModel, Section
from app.views.discover_flows import BoundCard
from app.views.jobs_parts import JobRowView
from app.widgets.buttons import Button
from app.widgets.cards import Card, EmptyState
from app.widgets.labels import Label
from app.widgets.layout import hbox, holder, vbox
from app.wording import Phrase, tr

_HEADS: dict[Section, Phrase] = {
    Section.RUNNING: tr("Running"),
    Section.WAITING: tr("Waiting"),
    Section.PAUSED: tr("Paused"),
    Section.FAILED: tr("Failed"),
    Section.OVER: tr("Finished"),
}
_Line = BoundCard | JobRowView


class JobsPanel(QWidget):
    """The tab.

    Signals:
        load_asked(Path): a model that became ready.
        discover_asked(): show what can be fetched.
    """

    load_asked = Signal(object)
    discover_asked = Signal()

    def __init__(self, vm: JobsViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._cards: dict[str, _Line] = {}
        self._order: list[tuple[Section, str]] = []
        self._is_narrow = self._is_slim = False
        self.clear = Button(tr("Clear the list"), "ghost", small=True)
        self.clear.clicked.connect(vm.clear)
        self._heads = {section: self._head(section) for section in Section}
        self._box = vbox(gap=10)
        self.discover = Button(tr("Discover models"), "secondary", "search")
        self.discover.clicked.connect(self.discover_asked)
        empty = EmptyState(
            tr("No jobs yet."),
            self.discover,
            icon="clock",
            help_text=tr("Downloads, conversions, checks and measurements are listed here."),
        )
        self._empty = Card(vbox(empty))
        self.setLayout(vbox(self._box, self._empty, gap=0))
        vm.changed.connect(self._show)
        follow(self._show)

    def _head(self, section: Section) -> QWidget:
        label = Label(_HEADS[section], "caption", "text3", 500)
        row = hbox(label, None, pad=(16, 2, 0, 0))
        if section is Section.OVER:
            row.put(self.clear)
        head = holder(row)
        head.setParent(self)
        head.hide()
        return head

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Draw the stages closer together."""
        self._is_narrow, self._is_slim = narrow, slim
        for card in self._cards.values():
            card.set_narrow(narrow, slim)

    def _show(self) -> None:
        lines = self._vm.lines
        order = [(line.section, line.key) for line in lines]
        if order != self._order:
            self._order = order
            self._arrange(lines)
        for line in lines:
            card = self._cards[line.key]
            if isinstance(card, BoundCard) and line.flow is not None:
                card.show_flow(line.flow)
            elif isinstance(card, JobRowView):
                card.show_row(line.row)
        self._empty.setVisible(not lines)
        self.clear.setVisible(self._vm.can_clear)

    def _arrange(self, lines: tuple[JobLine, ...]) -> None:
        """Put cards under their heads; what stays keeps its widget, and with it the focus."""
        while self._box.takeAt(0) is not None:
            continue
        kept = {line.key for line in lines}
        for key in [key for key in self._cards if key not in kept]:
            card = self._cards.pop(key)
            card.hide()  # it lies in no layout any more
            card.deleteLater()
        for section, head in self._heads.items():
            found = [line for line in lines if line.section is section]
            head.setVisible(bool(found))
            if found:
                self._box.addWidget(head)
            for line in found:
                if line.key not in self._cards:
                    self._cards[line.key] = self._make(line)
                self._box.addWidget(self._cards[line.key])

    def _make(self, line: JobLine) -> _Line:
        vm = self._vm
        card: _Line
        if line.flow is not None:
            card = BoundCard(vm.flows)
            card.load_asked.connect(self.load_asked)
        else:
            card = JobRowView(line.row.job)
            card.cancel_asked.connect(vm.cancel)
            card.retry_asked.connect(vm.retry)
            card.dismiss_asked.connect(vm.dismiss)
        card.set_narrow(self._is_narrow, self._is_slim)
        return card
