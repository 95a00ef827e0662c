"""The Jobs tab's state: all long work, by what it waits for, and what can be done about it.

Models on their way are `app.viewmodels.flows`'; here they are lines among the others. QtCore only.
"""

from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QObject, Signal

from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.viewmodels.flows import Flow, FlowsViewModel
from engine.protocol import messages as m

STAGES: dict[str, tuple[str, ...]] = {
    "convert": ("check", "convert", "verify", "ready"),
    "verify": ("verify", "ready"),
    "profile": ("measure", "ready"),
    "move": ("check", "copy", "verify", "ready"),
    "runtime": ("check", "download", "unpack", "try", "ready"),
}
_REMOVAL = ("remove", "ready")
_SPEEDS = 40


class Section(StrEnum):
    """What a job waits for; in the order of the tab."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    FAILED = "failed"
    OVER = "over"


_SECTION = {
    "running": Section.RUNNING,
    "waiting": Section.WAITING,
    "interrupted": Section.PAUSED,
    "failed": Section.FAILED,
    "done": Section.OVER,
    "cancelled": Section.OVER,
}
_FLOW_SECTION = {
    "run": Section.RUNNING,
    "wait": Section.WAITING,
    "paused": Section.PAUSED,
    "fail": Section.FAILED,
    "ready": Section.OVER,
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, its stage (index of its `stages_of`), and speeds in bytes/s, oldest first."""

    job: JobState
    stage: int
    speeds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class JobLine:
    """One line of the tab.

    Attributes:
        key: the same for all jobs of one model on its way.
        flow: the model on its way, None = a job of its own.
    """

    key: str
    section: Section
    row: JobRow
    flow: Flow | None = None


class JobsViewModel(QObject):
    """See the module.

    Args:
        jobs: runs them.
        flows: models on their way.

    Signals:
        changed(): `lines` differ.
    """

    changed = Signal()

    def __init__(self, jobs: JobRunner, flows: FlowsViewModel) -> None:
        super().__init__()
        self._jobs, self.flows = jobs, flows
        self._speeds = Speeds(jobs)
        self.lines: tuple[JobLine, ...] = ()
        jobs.changed.connect(self._renew)
        flows.changed.connect(self._renew)
        self._renew()

    @property
    def num_open(self) -> int:
        """Jobs that run, wait or need the person: the figure beside the tab's name."""
        return sum(line.section is not Section.OVER for line in self.lines)

    @property
    def can_clear(self) -> bool:
        """Whether `clear` would take something away."""
        return any(_is_clearable(line) for line in self.lines)

    # --- intents ----------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        """End a job, or take it out of the queue."""
        self._jobs.cancel(job_id)

    def retry(self, job_id: str) -> None:
        """Go on with an interrupted job, or begin a failed or cancelled one again."""
        self._jobs.resume(job_id)

    def dismiss(self, job_id: str) -> None:
        """Take a job that is over from the list."""
        self._jobs.dismiss(job_id)

    def clear(self) -> None:
        """Take all that is over from the list; what still offers something stays."""
        for line in self.lines:
            if _is_clearable(line):
                self._jobs.dismiss(line.row.job.id)

    # --- parts ------------------------------------------------------------------------------

    def _renew(self) -> None:
        flows = {flow.job.id: flow for flow in self.flows.flows}
        lines = [self._line(job, flows.get(job.id)) for job in self._jobs.jobs()]
        order = list(Section)
        lines.sort(key=lambda line: order.index(line.section))
        if tuple(lines) != self.lines:
            self.lines = tuple(lines)
            self.changed.emit()

    def _line(self, job: JobState, flow: Flow | None) -> JobLine:
        row = JobRow(job, stage_of(job), self._speeds.of(job.id))
        if flow is not None:
            return JobLine(f"flow:{flow.repo}", _FLOW_SECTION[flow.state], row, flow)
        return JobLine(job.id, _SECTION[job.phase], row)


class Speeds(QObject):
    """The last speeds of each running job, for its curve."""

    def __init__(self, jobs: JobRunner) -> None:
        super().__init__()
        self._jobs = jobs
        self._speeds: dict[str, list[float]] = {}
        jobs.progress.connect(self._on_progress)
        jobs.done.connect(self._on_ended)
        jobs.failed.connect(self._on_ended)

    def of(self, job_id: str) -> tuple[float, ...]:
        """Return the speeds of a job in bytes/s, oldest first."""
        return tuple(self._speeds.get(job_id, ()))

    def _on_progress(self, job_id: str, _event: m.Progress) -> None:
        job = self._jobs.job(job_id)
        if job is not None and job.speed_bytes_s is not None:
            speeds = self._speeds.setdefault(job_id, [])
            speeds.append(job.speed_bytes_s)
            del speeds[:-_SPEEDS]

    def _on_ended(self, job_id: str, _event: m.JobDone | m.Error) -> None:
        self._speeds.pop(job_id, None)


def stages_of(job: JobState) -> tuple[str, ...]:
    """Return the stages that a job goes through."""
    if job.spec.get("act") in ("clean", "drop"):
        return _REMOVAL
    return STAGES.get(job.job, ())


def stage_of(job: JobState) -> int:
    """Return the stage a job is in, by its newest progress; a finished one is in the last."""
    stages = stages_of(job)
    if job.phase == "done":
        return max(0, len(stages) - 1)
    stage = job.progress.stage if job.progress is not None else ""
    stage = "download" if stage == "retry" else stage
    return stages.index(stage) if stage in stages else 0


def _is_clearable(line: JobLine) -> bool:
    """A ready model whose download can still be deleted keeps its line."""
    return line.section is Section.OVER and not (line.flow is not None and line.flow.source_bytes)
