"""A model on its way, as a card: facts, stages, what went wrong and what helps. Plain data in."""

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app.predict import amounts
from app.theme import follow
from app.viewmodels.flows import Flow
from app.views.jobs_parts import BUTTONS_W, EDGE, NARROW_EDGE, job_line
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Icon
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence, StageDots
from app.wording import tr

DOTS_W, NARROW_DOTS_W = 380, 310
_STAGE_WORDS = (tr("Check"), tr("Download"), tr("Convert"), tr("Verify"), tr("Ready"))


class FlowCard(Card):
    """One model on its way.

    Signals:
        pause_asked(str), resume_asked(str), give_up_asked(str), free_asked(str),
            dismiss_asked(str), fetch_asked(str): with the job's id.
        token_given(str, str): the job's id and the token. page_asked(str): the repository.
        settings_asked(). load_asked(Path).
    """

    pause_asked = Signal(str)
    resume_asked = Signal(str)
    give_up_asked = Signal(str)
    free_asked = Signal(str)
    dismiss_asked = Signal(str)
    fetch_asked = Signal(str)
    token_given = Signal(str, str)
    page_asked = Signal(str)
    settings_asked = Signal()
    load_asked = Signal(object)

    def __init__(self) -> None:
        self._flow: Flow | None = None
        self._name = Elide("", "body", "text", 600)
        self._line = Elide("", "meta", "text2")
        self._dots = StageDots(_STAGE_WORDS, DOTS_W, EDGE)
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
        self.fetch_button = Button(tr("Fetch what is damaged"), "secondary", "download", small=True)
        self.again_button = Button(tr("Try again"), "secondary", "retry", small=True)
        self._mend = holder(
            hbox(
                (self.token, 1),
                self.token_button,
                self.page_button,
                self.settings_button,
                self.fetch_button,
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
        self.fetch_button.clicked.connect(self._fetch)
        self.free_button.clicked.connect(self._free)
        self.settings_button.clicked.connect(self.settings_asked)
        self.close_button.clicked.connect(self._close)
        self.page_button.clicked.connect(self._open_page)
        self.load_button.clicked.connect(self._load)
        self.token_button.clicked.connect(self._give_token)
        self.token.returnPressed.connect(self._give_token)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Draw the stages closer together, or below the words."""
        width, edge = (NARROW_DOTS_W, NARROW_EDGE) if narrow else (DOTS_W, EDGE)
        self._dots.set_width(width, edge)
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
        self.fetch_button.setVisible(mend == "fetch")
        self.fetch_button.set_tip(tr("Every file is held against the hub; whole ones are kept."))
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

    def _fetch(self) -> None:
        self.fetch_asked.emit(self._id)

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
        return tr("Not converted. The download is kept.")
    if flow.state in ("paused", "fail"):
        if stage in ("", "check") and job.job == "download":
            return tr("Stopped before the weights were fetched.")
        if progress is None or not progress.done_bytes or job.job == "convert":
            return tr("Stopped. What was fetched is kept.")
        done, total = amounts.disk(progress.done_bytes), amounts.disk(progress.total_bytes)
        return tr("Stopped at {done} of {total}. What was fetched is kept.", done=done, total=total)
    if job.is_stalled:
        return job_line(job)
    if stage == "retry":
        return tr("The connection was lost. Trying again.")
    if stage == "check" and job.job == "download":
        return tr("Looking at the files and the free space.")
    return job_line(job)
