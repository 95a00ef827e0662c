"""The rows of the Discover tab and the lines of models on their way. They show plain data."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app.predict import amounts
from app.predict.fit import Fit, FitAdvice
from app.predict.unseen import DownloadAdvice, SpeedGuess
from app.theme import follow
from app.viewmodels.discover import DiscoverRow
from app.viewmodels.flows import Flow
from app.views.models_parts import FITS, fit_reason, job_line
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.chips import Chip
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence, StageDots
from app.wording import Phrase, figures, tr

FORMAT_W, CONTEXT_W, SIZE_W, FIT_W, SPEED_W, ACTION_W = 64, 56, 64, 190, 104, 112
NARROW_FIT_W = 84
DOTS_W, NARROW_DOTS_W, BUTTONS_W = 380, 310, 66
_STAGE_WORDS = (tr("Check"), tr("Download"), tr("Convert"), tr("Verify"), tr("Ready"))
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def advice_reason(advice: DownloadAdvice) -> Phrase:
    """The number that decides."""
    need, have = advice.need_bytes, advice.have_bytes
    if advice.limit == "disk":
        return tr("Disk {have} < {need}", have=amounts.disk(have), need=amounts.disk(need))
    if advice.limit == "vram":
        return tr("VRAM {have} < {need}", have=amounts.memory(have), need=amounts.memory(need))
    return fit_reason(FitAdvice(advice.fit, need, have))


def speed_text(guess: SpeedGuess | None) -> str:
    """A range of tokens per second, "–" for none."""
    if guess is None:
        return "–"
    low, high = (f"{v:.0f}" if v >= 10 else f"{v:.1f}" for v in (guess.low, guess.high))
    return f"{low}–{high} tok/s"


def facts_of(row: DiscoverRow) -> str:
    """What the model is, in one line."""
    entry = row.entry
    if not entry.is_known:
        return tr("{repo} from the hub; looked at before anything is fetched", repo=entry.repo)
    total, active = (f"{n / 1e9:.0f}B" for n in (entry.total_params, entry.active_params))
    experts = tr("{used} of {all} experts", used=entry.top_k, all=entry.experts)
    uses = {"code": tr("for code"), "reasoning": tr("thinks first")}
    size = tr("{total}, {active} active", total=total, active=active)
    return f"{size}  ·  {uses.get(entry.use, experts)}"


class DiscoverRowView(QWidget):
    """One model of the catalogue.

    Signals:
        get_asked(str): with the repository.
    """

    get_asked = Signal(str)

    def __init__(self, repo: str) -> None:
        super().__init__()
        self.repo = repo
        self._row: DiscoverRow | None = None
        self._is_narrow = False
        self._name = Elide("", "body", "text", 600)
        self._facts = Elide("", "meta", "text3")
        self._format = Chip("")
        self._context, self._size = Label("", "meta", "text2"), Label("", "meta", "text2")
        self._speed = Label("", "meta", "text", 600)
        for label in (self._context, self._size, self._speed):
            label.setAlignment(_RIGHT)
        self._fit, self._why = Chip(tr("Fits"), "ok"), Elide("", "caption", "text3")
        self.action = Button(tr("Get"), "secondary", "download", small=True)
        self._sign, self._said = Icon("check", 14, "accentText"), Label("", "meta", "text3")
        self._format_cell = fixed(holder(hbox(self._format, None)), FORMAT_W)
        self._fit_cell = fixed(holder(hbox(self._fit, (self._why, 1), "flex", gap=7)), FIT_W)
        end = holder(hbox(None, self._sign, self._said, self.action, gap=5))
        self.setLayout(
            hbox(
                (vbox(None, self._name, self._facts, None, gap=3), 1),
                self._format_cell,
                fixed(self._context, CONTEXT_W),
                fixed(self._size, SIZE_W),
                self._fit_cell,
                fixed(self._speed, SPEED_W),
                fixed(end, ACTION_W),
                gap=12,
                pad=(16, 0, 12, 0),
            )
        )
        fixed(self, height=58)
        self.action.clicked.connect(self._ask)
        follow(self._retell)

    def show_row(self, row: DiscoverRow) -> None:
        """Show a model as it stands now."""
        self._row = row
        self._retell()

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what a tool tip can say; `slim` also the speed and the format."""
        self._is_narrow = narrow
        self._context.setVisible(not narrow)
        self._size.setVisible(not slim)
        self._speed.setVisible(not slim)
        self._format_cell.setVisible(not slim)
        fixed(self._fit_cell, NARROW_FIT_W if narrow else FIT_W)
        self._retell()

    def _retell(self) -> None:
        row = self._row
        if row is None:
            return
        entry = row.entry
        self._name.set_text(entry.title)
        self._facts.set_text(facts_of(row))
        self._facts.set_tip(f"{entry.repo}  ·  {entry.licence}" if entry.licence else entry.repo)
        self._format.set_text(figures.weight_format(entry.quant))
        self._format.setVisible(bool(entry.quant))
        self._context.set_text(amounts.tokens(entry.context) if entry.context else "–")
        self._size.set_text(amounts.disk(entry.approx_bytes) if entry.approx_bytes else "–")
        self._size.setToolTip(tr("Approximately, from the model's config"))
        self._speed.set_text(speed_text(row.guess))
        self._speed.set_role("text" if row.guess else "text3")
        no_speed = tr("Measure this PC on the Profiler page for a prediction.")
        self._speed.setToolTip("" if row.guess else no_speed)
        known = row.advice.fit in FITS
        reason = advice_reason(row.advice) if known else ""
        self._fit.setVisible(known)
        self._why.setVisible(known and not self._is_narrow)
        self._fit.setToolTip(reason)
        if known:
            self._fit.set_text(*FITS[row.advice.fit])
            self._why.set_text(reason)
        self._show_action(row)
        self.setAccessibleName(entry.repo)

    def _show_action(self, row: DiscoverRow) -> None:
        is_open = row.state == "get"
        self.action.setVisible(is_open)
        self.action.set_kind("ghost" if row.advice.fit is Fit.TOO_BIG else "secondary")
        self.action.set_name(tr("{action}: {name}", action=tr("Get"), name=row.entry.repo))
        self._sign.setVisible(row.state == "installed")
        self._said.setVisible(not is_open)
        self._said.set_text(tr("Installed") if row.state == "installed" else tr("In progress"))

    def _ask(self) -> None:
        self.get_asked.emit(self.repo)


class FlowCard(Card):
    """One model on its way: facts, stages, what went wrong and what helps.

    Signals:
        pause_asked(str), resume_asked(str), give_up_asked(str), free_asked(str),
            dismiss_asked(str): with the job's id.
        token_given(str, str): the job's id and the token. page_asked(str): the repository.
        settings_asked(). load_asked(Path).
    """

    pause_asked = Signal(str)
    resume_asked = Signal(str)
    give_up_asked = Signal(str)
    free_asked = Signal(str)
    dismiss_asked = Signal(str)
    token_given = Signal(str, str)
    page_asked = Signal(str)
    settings_asked = Signal()
    load_asked = Signal(object)

    def __init__(self) -> None:
        self._flow: Flow | None = None
        self._name = Elide("", "body", "text", 600)
        self._line = Elide("", "meta", "text2")
        self._dots = StageDots(_STAGE_WORDS, DOTS_W)
        self._bar = Bar((), 4)
        self._error = Sentence()
        self.pause = Button("", "ghost", "pause", name=tr("Pause"))
        self.resume = Button("", "ghost", "play", name=tr("Resume"))
        self.close_button = Button("", "ghost", "x", name=tr("Cancel"))
        words = vbox(self._name, self._line, gap=5)
        buttons = hbox(None, self.pause, self.resume, self.close_button, gap=2)
        self._beside, self._below = hbox(self._dots), hbox(None)
        head = hbox((words, 1), 8, self._beside, fixed(holder(buttons), BUTTONS_W), gap=4)
        super().__init__(
            vbox(
                head,
                self._below,
                self._error,
                self._make_mend(),
                self._make_end(),
                self._bar,
                gap=9,
                pad=(16, 12, 12, 12),
            )
        )
        self._connect()
        follow(self._retell)

    def _make_mend(self) -> QWidget:
        field = LineField(tr("Access token"), "lock", name=tr("Access token"))
        self.token = fixed(field, min_width=120, max_width=280)
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token_button = Button(tr("Use it"), "secondary", small=True)
        self.page_button = Button(tr("Open the page"), "secondary", small=True)
        self.settings_button = Button(tr("Hub and proxy settings"), "secondary", small=True)
        self.again_button = Button(tr("Try again"), "secondary", "retry", small=True)
        self._mend = holder(
            hbox(
                (self.token, 1),
                self.token_button,
                self.page_button,
                self.settings_button,
                self.again_button,
                "flex",
                gap=8,
            )
        )
        return self._mend

    def _make_end(self) -> QWidget:
        self._done = Elide("", "meta", "text2")
        self.free_button = Button("", "secondary", "trash", small=True)
        self.load_button = Button(tr("Load"), "secondary", "play", small=True)
        self._end = holder(
            hbox(
                Icon("check", 16, "accentText"),
                (self._done, 1),
                self.free_button,
                self.load_button,
                gap=8,
            )
        )
        return self._end

    def _connect(self) -> None:
        self.pause.clicked.connect(self._pause)
        self.resume.clicked.connect(self._resume)
        self.again_button.clicked.connect(self._resume)
        self.free_button.clicked.connect(self._free)
        self.settings_button.clicked.connect(self.settings_asked)
        self.close_button.clicked.connect(self._close)
        self.page_button.clicked.connect(self._open_page)
        self.load_button.clicked.connect(self._load)
        self.token_button.clicked.connect(self._give_token)
        self.token.returnPressed.connect(self._give_token)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Draw the stages closer together, or below the words."""
        self._dots.set_width(NARROW_DOTS_W if narrow else DOTS_W)
        (self._below if slim else self._beside).insertWidget(0, self._dots)

    def show_flow(self, flow: Flow) -> None:
        """Show how far it is."""
        self._flow = flow
        self._retell()

    def _retell(self) -> None:
        flow = self._flow
        if flow is None:
            return
        job, state = flow.job, flow.state
        failed, ready = state == "fail", state == "ready"
        self.set_look(edge="danger" if failed else "")
        self._name.set_text(flow.title)
        self._line.set_text(flow_line(flow))
        error = job.error if failed else None
        self._error.setVisible(error is not None)
        text = f"{error.message} {error.hint}".strip() if error is not None else ""
        self._error.show_text("refused", text)
        dots = {"run": "run", "fail": "fail", "ready": "done"}.get(state, "wait")
        self._dots.show_stage(flow.stage, job.share, dots)
        share = 1.0 if ready else job.share or 0.0
        role = "danger" if failed else "accent" if state == "run" else "warn"
        self._bar.setVisible(not ready)
        self._bar.set_parts([(role, share)])
        self._bar.set_name(tr("{share} done", share=amounts.share(share)))
        self._show_mend(flow)
        self._end.setVisible(ready)
        self._done.set_text(tr("Converted and verified. The download is no longer needed."))
        self.free_button.setVisible(flow.source_bytes > 0)
        size = amounts.disk(flow.source_bytes)
        self.free_button.set_text(tr("Delete download, frees {size}", size=size))
        self._show_buttons(flow)
        self.setAccessibleName(flow.title)

    def _show_mend(self, flow: Flow) -> None:
        failed, mend = flow.state == "fail", flow.mend
        self._mend.setVisible(failed)
        self.token.setVisible(mend in ("token", "page"))
        self.token_button.setVisible(mend in ("token", "page"))
        self.page_button.setVisible(mend in ("token", "page"))
        self.settings_button.setVisible(mend == "settings")
        self.again_button.setVisible(mend != "token")

    def _show_buttons(self, flow: Flow) -> None:
        name, busy = flow.title, flow.job.is_cancelling
        self.pause.setVisible(flow.can_pause)
        self.pause.setEnabled(not busy)
        self.pause.set_name(tr("{action}: {name}", action=tr("Pause"), name=name))
        self.resume.setVisible(flow.state == "paused")
        self.resume.set_name(tr("{action}: {name}", action=tr("Resume"), name=name))
        words = tr("Dismiss") if flow.state == "ready" else tr("Cancel")
        self.close_button.set_name(tr("{action}: {name}", action=words, name=name))
        self.close_button.setEnabled(not busy)

    @property
    def _id(self) -> str:
        return self._flow.job.id if self._flow is not None else ""

    def _pause(self) -> None:
        self.pause_asked.emit(self._id)

    def _resume(self) -> None:
        self.resume_asked.emit(self._id)

    def _free(self) -> None:
        self.free_asked.emit(self._id)

    def _close(self) -> None:
        if self._flow is not None and self._flow.state == "ready":
            self.dismiss_asked.emit(self._id)
        else:
            self.give_up_asked.emit(self._id)

    def _open_page(self) -> None:
        if self._flow is not None:
            self.page_asked.emit(self._flow.repo)

    def _load(self) -> None:
        if self._flow is not None:
            self.load_asked.emit(Path(str(self._flow.job.result.get("path", ""))))

    def _give_token(self) -> None:
        if self._flow is not None and self.token.text().strip():
            self.token_given.emit(self._flow.job.id, self.token.text())
            self.token.clear()


def flow_line(flow: Flow) -> str:
    """One line of facts: "61.2 of 102 GB · 87 MB/s · 8 min left"."""
    job = flow.job
    progress = job.progress
    stage = progress.stage if progress is not None else ""
    if flow.state == "ready":
        return tr("Ready to be loaded.")
    if job.is_cancelling:
        return tr("Stopping.")
    if flow.state == "fail" and job.job == "convert":
        return tr("Not converted. The download is whole and kept.")
    if flow.state in ("paused", "fail"):
        if stage in ("", "check") and job.job == "download":
            return tr("Stopped before the weights were fetched.")
        if progress is None or not progress.done_bytes or job.job == "convert":
            return tr("Stopped. What was fetched is kept.")
        done, total = amounts.disk(progress.done_bytes), amounts.disk(progress.total_bytes)
        return tr("Stopped at {done} of {total}. What was fetched is kept.", done=done, total=total)
    if stage == "retry":
        return tr("The connection was lost. Trying again.")
    if stage == "check" and job.job == "download":
        return tr("Looking at the files and the free space.")
    return job_line(job)
