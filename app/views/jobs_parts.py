"""One job as a card: what it works on, stages, speed, time left, why it failed. Plain data in."""

from PySide6.QtCore import Signal

from app.predict import amounts
from app.services.job_state import JobState
from app.theme import follow
from app.viewmodels.jobs import JobRow, stages_of
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.charts.bars import Sparkline
from app.widgets.chips import Chip
from app.widgets.labels import Elide
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence, StageDots
from app.wording import Phrase, tr

WIDTH, NARROW_WIDTH, BUTTONS_W = 300, 216, 66
EDGE, NARROW_EDGE = 38, 27  # of the stages; the same for downloads, which stand below
_STAGE_WORDS: dict[str, Phrase] = {
    "check": tr("Check"),
    "convert": tr("Convert"),
    "copy": tr("Copy"),
    "download": tr("Download"),
    "unpack": tr("Unpack"),
    "try": tr("Test"),
    "measure": tr("Measure"),
    "remove": tr("Remove"),
    "verify": tr("Verify"),
    "ready": tr("Ready"),
}
KINDS: dict[str, Phrase] = {
    "convert": tr("Conversion"),
    "verify": tr("Check of a model"),
    "profile": tr("Measurement"),
    "move": tr("Copy of models"),
    "runtime": tr("Engine runtime"),
}


class JobRowView(Card):
    """One job: facts, stages, speed, and what can be done about it.

    Signals:
        cancel_asked(str), retry_asked(str), dismiss_asked(str): with the job's id.
    """

    cancel_asked = Signal(str)
    retry_asked = Signal(str)
    dismiss_asked = Signal(str)

    def __init__(self, job: JobState) -> None:
        self.job_id = job.id
        self._row: JobRow | None = None
        self._name = Elide("", "body", "text", 600)
        self._what = Chip(KINDS.get(job.job, ""))
        self._line = Elide("", "meta", "text2")
        self._error = Sentence()
        self._speed = Sparkline(tr("Speed"))
        self._dots = StageDots([_STAGE_WORDS[stage] for stage in stages_of(job)], WIDTH, EDGE)
        self._bar = Bar((), 4)
        self.retry = Button("", "ghost", "retry", name=tr("Begin again"))
        self.close_button = Button("", "ghost", "x", name=tr("Cancel"))
        words = vbox(hbox(self._name, self._what, None, gap=8), self._line, gap=5)
        self._beside, self._below = hbox(self._speed, self._dots, gap=4), hbox(None)
        buttons = fixed(holder(hbox(None, self.retry, self.close_button, gap=2)), BUTTONS_W)
        head = hbox((words, 1), 8, self._beside, buttons, gap=4)
        super().__init__(
            vbox(head, self._below, self._error, self._bar, gap=9, pad=(16, 12, 12, 12))
        )
        self.retry.clicked.connect(self._ask_retry)
        self.close_button.clicked.connect(self._ask_close)
        follow(self._retell)

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Draw the stages closer together, or below the words."""
        width, edge = (NARROW_WIDTH, NARROW_EDGE) if narrow else (WIDTH, EDGE)
        self._dots.set_width(width, edge)
        (self._below if slim else self._beside).insertWidget(0 if slim else 1, self._dots)

    def show_row(self, row: JobRow) -> None:
        """Show how far the conversion is, or why it ended."""
        self._row = row
        self._retell()

    def _retell(self) -> None:
        row = self._row
        if row is None:
            return
        job = row.job
        over = not job.is_open
        failed = job.phase == "failed"
        self.set_look(edge="danger" if failed else "")
        self._name.set_text(job.title)
        self._line.set_text(job_line(job))
        error = job.error
        text = f"{error.message} {error.hint}".strip() if failed and error is not None else ""
        self._error.setVisible(bool(text))
        self._error.show_text("refused", text)
        done = job.phase == "done"
        states = {"failed": "fail", "running": "run", "done": "done"}
        state = states.get(job.phase, "wait")
        self._dots.show_stage(row.stage, job.share, state)
        self._speed.set_values(row.speeds)
        has_curve = len(row.speeds) > 1 and job.phase == "running" and job.job != "profile"
        self._speed.setVisible(has_curve)
        share = 1.0 if done else job.share or 0.0
        role = "danger" if failed else "warn" if job.is_stalled or over else "accent"
        self._bar.setVisible(not done)
        self._bar.set_parts([(role, share)])
        self._bar.set_name(tr("{share} done", share=amounts.share(share)))
        self.retry.setVisible(over and not done)
        words = tr("Resume") if job.phase == "interrupted" else tr("Begin again")
        self.retry.set_name(tr("{action}: {name}", action=words, name=job.title))
        end = tr("Dismiss") if over else tr("Cancel")
        self.close_button.set_name(tr("{action}: {name}", action=end, name=job.title))
        self.close_button.setEnabled(not job.is_cancelling)
        self.setAccessibleName(job.title)

    def _ask_retry(self) -> None:
        self.retry_asked.emit(self.job_id)

    def _ask_close(self) -> None:
        if self._row is not None and self._row.job.is_open:
            self.cancel_asked.emit(self.job_id)
        else:
            self.dismiss_asked.emit(self.job_id)


def job_line(job: JobState) -> str:
    """One line of facts: "12.4 of 38.2 MB · 87 MB/s · 2 s left"."""
    still = _still_line(job)
    if still:
        return still
    progress = job.progress
    if job.spec.get("act") in ("clean", "drop"):
        return tr("Removing.")
    if progress is None or not progress.total_bytes:
        looks = {
            "profile": tr("Beginning."),
            "move": tr("Looking at the files and the free space."),
            "runtime": tr("Looking at the files and the free space."),
        }
        return looks.get(job.job) or tr("Looking through the folder.")
    if job.job == "profile":
        steps = tr("{done} of {total} steps", done=progress.done_bytes, total=progress.total_bytes)
        return f"{steps}  ·  {progress.detail}"
    done, total = amounts.disk(progress.done_bytes), amounts.disk(progress.total_bytes)
    number, _, unit = done.partition(" ")
    done = number if total.endswith(f" {unit}") else done
    parts = [str(tr("{done} of {total}", done=done, total=total))]
    if job.speed_bytes_s:
        parts.append(f"{amounts.disk(job.speed_bytes_s)}/s")
    if job.eta_s is not None:
        parts.append(str(tr("{time} left", time=amounts.duration(job.eta_s))))
    return "  ·  ".join(parts)


def _still_line(job: JobState) -> str:
    """Why nothing moves, "" if something does."""
    if job.phase == "done" and job.job == "verify":
        return tr("Whole: every checksum fits.")
    if job.phase == "done":
        took = job.ended_s - job.begun_s
        if 0 < job.begun_s < job.ended_s:
            return tr("Done in {time}.", time=amounts.duration(took))
        return tr("Done.")
    if job.phase == "cancelled":
        return tr("Cancelled.")
    if job.phase == "interrupted":
        return tr("Interrupted when the app ended.")
    if job.phase == "failed":
        if job.job == "convert":
            return tr("Failed. The original folder is untouched, nothing half-written is left.")
        return tr("Failed.")
    if job.is_cancelling:
        return tr("Cancelling.")
    if job.phase == "waiting":
        return tr("Waits for the job before it.")
    if job.is_stalled:
        return tr("No progress for a minute. It can be cancelled.")
    return ""
