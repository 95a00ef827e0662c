"""What the hub has beside the catalogue: the question, its answer, or why there is none.

Places widgets and binds them to the view models; decides nothing. Part of the Discover tab.
"""

from PySide6.QtWidgets import QWidget

from app.theme import follow
from app.viewmodels.discover import DiscoverViewModel
from app.viewmodels.discover_hub import HubSearch
from app.views.discover_parts import ColumnHeads, DiscoverRowView
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.labels import Label
from app.widgets.layout import hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.rows import arrange_rows
from app.wording import tr, tr_count
from engine.protocol.errors import ErrorCode


class HubBox(QWidget):
    """The part below the catalogue."""

    def __init__(self, vm: DiscoverViewModel, hub: HubSearch) -> None:
        super().__init__()
        self._vm, self._hub = vm, hub
        self._rows: dict[str, DiscoverRowView] = {}
        self._is_narrow = self._is_slim = False
        self.ask = Button(tr("Search the hub"), "secondary", "globe", small=True)
        self.stop = Button(tr("Cancel"), "secondary", small=True)
        self.settings = Button(tr("Hub and proxy settings"), "secondary", small=True)
        self._sentence = Sentence()
        self._hint = Label("", "meta", "text3", wrap=True)
        self._tools = holder(hbox((self._hint, 1), self.ask, gap=8, pad=(16, 9, 12, 9)))
        self._state = holder(
            hbox((self._sentence, 1), self.settings, self.stop, gap=8, pad=(16, 9, 12, 9))
        )
        self._list = vbox(gap=0)
        self._list_card = Card(self._list)
        self._head = Label("", "meta", "text2", 600)
        self._heads = ColumnHeads()
        self._head_row = holder(vbox(hbox(self._head, None, pad=(16, 0, 0, 0)), self._heads, gap=6))
        self.setLayout(
            vbox(
                Card(vbox(self._tools, self._state, gap=0)),
                vbox(self._head_row, self._list_card, gap=6),
                gap=12,
            )
        )
        self.ask.clicked.connect(vm.ask_hub)
        self.stop.clicked.connect(hub.stop)
        self.settings.clicked.connect(vm.flows.settings_wanted)
        vm.changed.connect(self._show)
        hub.changed.connect(self._show)
        follow(self._show)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what does not fit."""
        self._is_narrow, self._is_slim = narrow, slim
        self._heads.set_narrow(narrow, slim)
        for row in self._rows.values():
            row.set_narrow(narrow, slim)

    def show_query(self) -> None:
        """The words in the search field are others."""
        self._show()

    def _show(self) -> None:
        vm, hub = self._vm, self._hub
        wanted = [row.entry.repo for row in vm.found]
        if wanted != list(self._rows):
            self._rows = arrange_rows(self._list, self._rows, wanted, self._make_row)
        for row in vm.found:
            self._rows[row.entry.repo].show_row(row)
        self._list_card.setVisible(bool(wanted))
        self._head_row.setVisible(bool(wanted))
        self._head.set_text(
            tr_count(
                "On the hub: {count} model for “{query}”",
                "On the hub: {count} models for “{query}”",
                len(wanted),
                query=hub.asked,
            )
        )
        self._tools.setVisible(not hub.is_busy)
        self.ask.setEnabled(bool(vm.query))
        self._hint.set_text(
            tr("Type what you look for; the hub is asked only when you press the button.")
            if not vm.query
            else tr("Not in the list? Ask the hub for “{query}”.", query=vm.query)
        )
        self._show_state()

    def _show_state(self) -> None:
        hub, problem = self._hub, self._hub.problem
        tone, words = "info", ""
        if hub.is_busy:
            tone, words = "pending", tr("Asking the hub for “{query}”.", query=hub.asked)
        elif problem is not None:
            tone, words = "refused", f"{problem.message} {problem.hint}".strip()
        elif hub.is_answered:
            words = self._left_out()
        self._sentence.show_text(tone, words)
        self._state.setVisible(bool(words))
        self.stop.setVisible(hub.is_busy)
        needs_settings = problem is not None and problem.code in (
            ErrorCode.NETWORK,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.TOKEN,
        )
        self.settings.setVisible(needs_settings)

    def _left_out(self) -> str:
        """What the hub said beside the rows."""
        hub = self._hub
        if hub.left_out:
            return tr_count(
                "{count} more is of a kind that the engine cannot serve yet.",
                "{count} more are of a kind that the engine cannot serve yet.",
                hub.left_out,
            )
        if not hub.entries:
            return tr(
                "The hub has nothing for “{query}” that the engine can serve.", query=hub.asked
            )
        if not self._vm.found and self._vm.only_fitting:
            return tr("Nothing that the hub has for “{query}” fits this PC.", query=hub.asked)
        if not self._vm.found:
            return tr("What the hub has for “{query}” is in the list above.", query=hub.asked)
        return ""

    def _make_row(self, repo: str) -> DiscoverRowView:
        row = DiscoverRowView(repo)
        row.set_narrow(self._is_narrow, self._is_slim)
        row.get_asked.connect(self._vm.get)
        return row
