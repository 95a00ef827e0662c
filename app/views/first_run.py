"""First run: four cards that can be skipped, one after the other, and a way past all of them.

Places widgets and binds them to the view model; decides nothing. A page like the others: whoever
goes elsewhere has missed nothing, and Settings leads here again.
"""

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.predict import amounts
from app.theme import follow, px
from app.viewmodels.first_run import STEPS, FirstRunViewModel, Step
from app.viewmodels.first_run_words import (
    engine_text,
    hardware_text,
    measure_text,
    model_text,
    part_words,
)
from app.viewmodels.runtime import RuntimeViewModel
from app.views.first_run_cards import OfferRow, PartTile, StepCard
from app.views.profiler_words import progress_words
from app.views.runtime import NEEDED, RuntimeCard
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.labels import Icon, Label
from app.widgets.layout import Scroll, fixed, hbox, holder, vbox
from app.widgets.rows import arrange_rows
from app.widgets.setting_rows import Row
from app.wording import tr

COLUMN, PARTS = 820, 5
_ACROSS = ((720, 5), (420, 3), (0, 2))  # px of the column from which so many tiles fit


class FirstRunView(QWidget):
    """The page.

    Signals:
        page_wanted(str): the person goes on to another page.
    """

    page_wanted = Signal(str)

    def __init__(self, vm: FirstRunViewModel, runtime: RuntimeViewModel | None = None) -> None:
        """Take the steps; `runtime` lets a program without the engine's libraries install them."""
        super().__init__()
        self._vm, self._runtime, self._across = vm, runtime, 0
        self.restart = Button(tr("Restart the engine"), "secondary", "retry")
        self.measure = Button(tr("Measure"), "primary", "play")
        self.cancel = Button(tr("Cancel"), "secondary", "x")
        self.builtin = Button(tr("Start with the built-in model"), "secondary", "chat")
        self.cards: dict[Step, StepCard] = {
            "hardware": StepCard(1, tr("Your hardware")),
            "engine": StepCard(2, tr("The engine"), self.restart),
            "measure": StepCard(3, tr("Measure your links"), self.measure, self.cancel),
            "model": StepCard(4, tr("Choose a first model"), self.builtin),
        }
        self._make_bodies()
        self.skip_all = Button(tr("Skip all"), "ghost")
        self.go = Button(tr("Start chatting"), "primary", "chat")
        self._build()
        self._connect()
        follow(self._relayout)
        follow(self._show)

    def _make_bodies(self) -> None:
        self.tiles = tuple(PartTile() for _ in range(PARTS))
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self.cards["hardware"].set_body(holder(self._grid))
        if self._runtime is not None:
            self.runtime = RuntimeCard(self._runtime, says_why=False)
            self.cards["engine"].set_body(self.runtime)
        self._bar, self._progress = Bar((), 6), Label("", "meta", "text2", wrap=True)
        self.cards["measure"].set_body(holder(vbox(self._bar, self._progress, gap=7)))
        self._rows: dict[str, OfferRow] = {}
        self._list = vbox(gap=0)
        self.cards["model"].set_body(holder(self._list))

    def _build(self) -> None:
        promise = tr("No account. Nothing about you or your chats leaves this PC.")
        text = tr("Four steps, about a minute. Each can be skipped and done later.")
        title = Label(tr("Set up FreeToken"), "title", "text", 600)
        head = vbox(title, Label(text, "body", "text2", wrap=True), gap=3)
        words = (Label(promise, "meta", "text3", wrap=True), 1)
        foot = hbox(Icon("shield", 15, "text3"), words, self.skip_all, self.go, gap=8)
        column = holder(vbox(head, 2, *self.cards.values(), 2, foot, gap=12))
        self._column = fixed(column, max_width=COLUMN)
        body = hbox(None, (vbox(None, column, (QWidget(), 2), gap=0), 100), None, gap=0)
        body.set_pad((20, 20, 20, 16))
        self.setLayout(vbox(Scroll(holder(body)), gap=0))

    def _connect(self) -> None:
        vm = self._vm
        for step, card in self.cards.items():
            card.skipped.connect(_Skip(vm, step))
        self.restart.clicked.connect(vm.restart_engine)
        self.measure.clicked.connect(vm.measure)
        self.cancel.clicked.connect(vm.profiler.cancel)
        self.builtin.clicked.connect(self._chat)
        self.skip_all.clicked.connect(self._chat)
        self.go.clicked.connect(self._chat)
        vm.changed.connect(self._show)
        if self._runtime is not None:
            self._runtime.changed.connect(self._show)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fewer tiles side by side where they do not fit."""
        super().resizeEvent(event)
        self._relayout()

    def showEvent(self, event: QShowEvent) -> None:
        """Look at the machine when the person does."""
        super().showEvent(event)
        self._vm.look()
        self._show()

    def minimumSizeHint(self) -> QSize:
        """The column gets narrow, and scrolls."""
        return QSize(px(400), px(240))

    def _relayout(self) -> None:
        self._grid.setSpacing(px(10))
        width = min(self.width() - px(40), px(COLUMN))
        across = next(count for least, count in _ACROSS if width >= px(least))
        if across == self._across:
            return
        self._across = across
        for tile in self.tiles:
            self._grid.removeWidget(tile)
        for i, tile in enumerate(self.tiles):
            self._grid.addWidget(tile, i // across, i % across)
        for column in range(PARTS):
            self._grid.setColumnStretch(column, 1 if column < across else 0)

    # --- binding ----------------------------------------------------------------------------

    def _show(self) -> None:
        if not self.isVisible():
            return
        vm = self._vm
        texts = {
            "hardware": hardware_text(vm),
            "engine": engine_text(vm),
            "measure": measure_text(vm),
            "model": model_text(vm),
        }
        is_bare = self._runtime is not None and self._runtime.need == "missing"
        if is_bare:
            texts["engine"] = NEEDED
        bodies = {
            "hardware": vm.facts is not None,
            "engine": is_bare,
            "measure": vm.state("measure") == "busy",
            "model": bool(vm.offers) and vm.state("model") != "wait",
        }
        self._show_parts()  # before their card shows them: their height depends on the words
        for step in STEPS:
            self.cards[step].show_step(vm.state(step), texts[step], bodies.get(step, False))
        self._show_actions()
        self._show_offers()

    def _show_parts(self) -> None:
        facts = self._vm.facts
        if facts is not None:
            for tile, check in zip(self.tiles, self._vm.checks, strict=True):
                tile.show_part(part_words(check, facts), check.tone)

    def _show_actions(self) -> None:
        vm = self._vm
        state, job = vm.state("measure"), vm.profiler.job
        had_focus = self.measure.hasFocus() or self.cancel.hasFocus()
        self.restart.setVisible(vm.state("engine") == "failed")
        self.measure.setVisible(state not in ("busy", "done"))
        self.measure.set_kind("primary" if state == "now" else "secondary")
        self.measure.set_text(tr("Measure again") if state == "failed" else tr("Measure"))
        self.cancel.setVisible(state == "busy")
        if had_focus and state == "busy":  # the pressed button is gone: the focus stays here
            self.cancel.setFocus()
        share = job.share if job is not None and job.share is not None else 0.0
        self._bar.set_parts([("accent", share)])
        self._bar.set_name(tr("Measured {share}", share=amounts.share(share)))
        self._progress.set_text(progress_words(job))
        self.builtin.setVisible(vm.state("model") in ("now", "wait", "busy"))
        is_over = vm.current is None
        self.go.set_kind("primary" if is_over or vm.current == "model" else "secondary")
        self.skip_all.setVisible(not is_over)

    def _show_offers(self) -> None:
        offers = {offer.entry.repo: offer for offer in self._vm.offers}
        self._rows = arrange_rows(self._list, self._rows, list(offers), self._row)
        for repo, row in self._rows.items():
            row.show_offer(offers[repo])

    def _row(self, repo: str) -> OfferRow:
        row = OfferRow(repo)
        row.get_asked.connect(self._vm.get)
        return row

    def _chat(self) -> None:
        self._vm.use_builtin()
        self.page_wanted.emit("chat")


class _Skip:
    """Skips one step; a plain object, so that nothing is captured by a closure."""

    def __init__(self, vm: FirstRunViewModel, step: Step) -> None:
        self._vm, self._step = vm, step

    def __call__(self) -> None:
        """Do it."""
        self._vm.skip(self._step)


class FirstRunRow(Row):
    """A row of the General section that leads to the first run again.

    Signals:
        wanted(): show the page.
    """

    wanted = Signal()

    def __init__(self) -> None:
        button = Button(tr("Open"), small=True, name=tr("Open the first run"))
        super().__init__(
            tr("First run"),
            tr("Hardware check, bandwidth test, models that fit"),
            button,
        )
        button.clicked.connect(self.wanted)
