"""The lines of models on their way, and what lies on the disk without one.

Places widgets and binds them to the view model; decides nothing. Parts of the Models page.
"""

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.theme import follow
from app.viewmodels.flows import Flow, FlowsViewModel
from app.views.discover_flow_card import FlowCard
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.dialogs import ask
from app.widgets.layout import hbox, vbox
from app.widgets.meters import Sentence
from app.wording import tr, tr_count


class BoundCard(FlowCard):
    """A card that does what is pressed; it asks before something is lost."""

    def __init__(self, vm: FlowsViewModel) -> None:
        super().__init__()
        self._vm = vm
        self.pause_asked.connect(vm.pause)
        self.resume_asked.connect(vm.resume)
        self.free_asked.connect(vm.free_source)
        self.fetch_asked.connect(vm.fetch_again)
        self.dismiss_asked.connect(vm.dismiss)
        self.token_given.connect(vm.give_token)
        self.settings_asked.connect(vm.settings_wanted)
        self.give_up_asked.connect(self._ask_give_up)
        self.page_asked.connect(self._browse)

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

    def _browse(self, repo: str) -> None:
        QDesktopServices.openUrl(QUrl(self._vm.page(repo)))


class FlowsBox(QWidget):
    """The lines of models on their way, and the sentence why one did not begin.

    Signals:
        load_asked(Path): a model that became ready.
    """

    load_asked = Signal(object)

    def __init__(self, vm: FlowsViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._cards: dict[str, BoundCard] = {}
        self._is_narrow = self._is_slim = False
        self._is_wanted = True
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

    def set_wanted(self, wanted: bool) -> None:
        """Stand aside where the page shows the same lines elsewhere."""
        self._is_wanted = wanted
        self._show()

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
                card = self._cards[repo] = BoundCard(self._vm)
                card.set_narrow(self._is_narrow, self._is_slim)
                card.load_asked.connect(self.load_asked)
                self._box.addWidget(card)
            self._cards[repo].show_flow(flow)
        self._problem.show_text("refused", self._vm.problem)
        self._band.setVisible(bool(self._vm.problem))
        self._left.show_text("info", self._left_words())
        several = len(self._vm.leftovers) > 1
        self.delete_left.set_text(tr("Delete them") if several else tr("Delete it"))
        self._left_band.setVisible(bool(self._vm.leftovers))
        has_any = bool(wanted or self._vm.problem or self._vm.leftovers)
        self.setVisible(has_any and self._is_wanted)

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

    def _ask_delete(self) -> None:
        left = self._vm.leftovers
        size = amounts.disk(sum(kept.num_bytes for kept in left))
        ask(
            self,
            tr("Delete these downloads?") if len(left) > 1 else tr("Delete this download?"),
            tr("Frees {size}. Converted models stay as they are.", size=size),
            tr("Keep"),
            tr("Delete"),
            self._vm.delete_leftovers,
        )


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
