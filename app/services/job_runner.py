"""Long work as child processes of the engine program, one after the other, with a queue on disk.

What loads the network, what loads the machine and what only asks are three lines: a download never
makes a conversion wait, nor a question. `spec` goes through as it is. Cancel = close stdin, then
kill.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal

from app.services.child_guard import ChildGuard
from app.services.engine_program import EngineProgram
from app.services.job_child import JobChild
from app.services.job_state import JobExtra, JobFile, JobState
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

KEPT = 20  # finished jobs that stay listed
RESUMABLE = ("download", "convert", "verify", "move", "runtime")
NETWORK_JOBS = ("download", "runtime")
PASSING_JOBS = ("search",)  # asked and answered: never listed, in no file

Line = Literal["machine", "network", "question"]


class JobRunner(QObject):
    """Jobs of the person.

    Args:
        program: the engine program.
        path: the queue file.
        sink: takes the stderr lines of jobs.
        stall_s: without progress for so long, a job counts as stalled.
        kill_after_s: from cancel to kill.
        clock: seconds since the epoch.

    Signals:
        progress(str, Progress): of a job, as it comes.
        point(str, ProfilePoint): of a profiler job.
        done(str, JobDone): the job ended well.
        failed(str, Error): it did not; also for a cancelled one, with code CANCELLED.
        changed(): `jobs()` differs.
        idle(): the last child process is gone.
    """

    progress = Signal(str, object)
    point = Signal(str, object)
    done = Signal(str, object)
    failed = Signal(str, object)
    changed = Signal()
    idle = Signal()

    def __init__(
        self,
        program: EngineProgram,
        path: Path,
        sink: Callable[[str], None] | None = None,
        stall_s: float = 60.0,
        kill_after_s: float = 2.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._program, self._sink, self._clock = program, sink, clock
        self._file = JobFile(path)
        self._kill_after_ms = round(kill_after_s * 1000)
        self._jobs: dict[str, JobState] = {}
        for job in self._file.read():
            if not job.is_open and (job.phase != "interrupted" or job.job in RESUMABLE):
                self._jobs[job.id] = job
        self._guard = ChildGuard()
        self._extras: dict[str, Callable[[], JobExtra]] = {}
        self._children: dict[Line, JobChild] = {}
        self._closing = False
        self._stall_ms = round(stall_s * 1000)

    def set_program(self, program: EngineProgram) -> None:
        """Run jobs with another program from the next one on."""
        self._program = program

    def set_extra(self, job: str, provide: Callable[[], JobExtra]) -> None:
        """Ask for more at each start of this kind of job, such as settings of now, and secrets."""
        self._extras[job] = provide

    def jobs(self) -> tuple[JobState, ...]:
        """Return all listed jobs, oldest first."""
        return tuple(job for job in self._jobs.values() if job.job not in PASSING_JOBS)

    def job(self, job_id: str) -> JobState | None:
        """Return one job, None if it is not known."""
        return self._jobs.get(job_id)

    @property
    def is_idle(self) -> bool:
        """Whether no child process runs."""
        return not self._children

    def start(self, job: str, spec: dict[str, object], title: str = "") -> str:
        """Queue a job. Returns its id; it starts when the ones before it have ended."""
        number = 1 + max((int(k.rpartition("-")[2]) for k in self._jobs), default=0)
        state = JobState(id=f"job-{number}", job=job, spec=spec, title=title or job)
        self._put(state)
        self._next()
        return state.id

    def resume(self, job_id: str) -> None:
        """Queue an interrupted, failed or cancelled job again, under the same id."""
        job = self._jobs.get(job_id)
        if job is None or job.is_open or job.phase == "done":
            return
        del self._jobs[job_id]  # to the end of the queue
        self._put(JobState(id=job.id, job=job.job, spec=job.spec, title=job.title))
        self._next()

    def dismiss(self, job_id: str) -> None:
        """Take a job that is over from the list."""
        job = self._jobs.get(job_id)
        if job is not None and not job.is_open:
            del self._jobs[job_id]
            self._keep()
            self.changed.emit()

    def relocate(self, old: Path, new: Path) -> None:
        """A folder has moved: jobs that are taken up again look for their files in the new one."""
        for job in tuple(self._jobs.values()):
            if not job.is_open and job.job != "move":
                self._jobs[job.id] = job.moved(old, new)
        self._keep()
        self.changed.emit()

    def cancel(self, job_id: str) -> None:
        """End a job; a running one cleans up first. `failed` with code CANCELLED follows."""
        job = self._jobs.get(job_id)
        if job is None or not job.is_open:
            return
        child = self._child_of(job_id)
        if child is not None:
            if not job.is_cancelling:
                self._update(job_id, is_cancelling=True)
                child.cancel(self._kill_after_ms)
            return
        self._end(job_id, m.Error(code=ErrorCode.CANCELLED, message=tr("Cancelled.")))

    def close(self) -> None:
        """End running children for the end of the app; their jobs stay resumable. See `idle`."""
        self._closing = True
        for child in self._children.values():
            child.stall.stop()
            child.cancel(self._kill_after_ms)

    # --- one child on each line

    def _child_of(self, job_id: str) -> JobChild | None:
        return next((c for c in self._children.values() if c.job_id == job_id), None)

    def _next(self) -> None:
        for job in tuple(self._jobs.values()):
            line = _line_of(job)
            if job.phase == "waiting" and line not in self._children and not self._closing:
                self._begin(job, line)

    def _begin(self, waiting: JobState, line: Line) -> None:
        extra = self._extras[waiting.job]() if waiting.job in self._extras else JobExtra()
        variables = self._program.variables | extra.variables
        program = dataclasses.replace(self._program, variables=variables)
        child = JobChild(waiting.id, program, waiting.job, waiting.spec | extra.spec, self)
        child.stall.setInterval(self._stall_ms)
        child.stalled.connect(self._on_stall)
        child.told.connect(self._on_event)
        child.ended.connect(self._on_ended)
        child.begun.connect(self._guard.hold)
        if self._sink is not None:
            child.logged.connect(self._sink)
        self._children[line] = child
        self._update(waiting.id, phase="running", begun_s=self._clock())
        child.stall.start()
        child.start()

    def _on_event(self, job_id: str, event: object) -> None:
        child = self._child_of(job_id)
        if child is None:
            return
        if isinstance(event, m.Progress):
            before = self._jobs[job_id].progress
            meter = child.meter
            meter.add(event)
            moved = before is None or (before.stage, before.done_bytes) != (
                event.stage,
                event.done_bytes,
            )
            if moved and not self._closing:
                child.stall.start()
            stalled = self._jobs[job_id].is_stalled and not moved
            self._jobs[job_id] = msgspec.structs.replace(
                self._jobs[job_id],
                progress=event,
                speed_bytes_s=meter.bytes_s,
                eta_s=meter.eta_s(event),
                is_stalled=stalled,
            )
            self.progress.emit(job_id, event)
            self.changed.emit()
        elif isinstance(event, m.ProfilePoint):
            child.stall.start()
            self.point.emit(job_id, event)

    def _on_stall(self, job_id: str) -> None:
        self._update(job_id, is_stalled=True, eta_s=None)

    def _on_ended(self, job_id: str, end: object) -> None:
        child = self._child_of(job_id)
        if child is not None:
            self._children = {k: c for k, c in self._children.items() if c is not child}
            child.stall.stop()
            child.deleteLater()
        if self._closing and not isinstance(end, m.JobDone):
            # Stays "running" in the file, which the next start reads as interrupted.
            self._tell_idle()
            return
        self._end(job_id, end)
        self._next()
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self._children:
            self.idle.emit()

    def _end(self, job_id: str, end: object) -> None:
        if isinstance(end, m.JobDone):
            self._update(
                job_id,
                phase="done",
                result=end.result,
                ended_s=self._clock(),
                is_stalled=False,
                is_cancelling=False,  # a cancel may have come too late
                eta_s=0.0,
            )
            self.done.emit(job_id, end)
        elif isinstance(end, m.Error):
            cancelled = end.code is ErrorCode.CANCELLED or self._jobs[job_id].is_cancelling
            if cancelled:
                end = msgspec.structs.replace(end, code=ErrorCode.CANCELLED)
            self._update(
                job_id,
                phase="cancelled" if cancelled else "failed",
                error=end,
                ended_s=self._clock(),
                is_stalled=False,
                is_cancelling=False,
                eta_s=None,
            )
            self.failed.emit(job_id, end)
        job = self._jobs.get(job_id)  # a listener may have put it away
        if job is not None and job.job in PASSING_JOBS:
            del self._jobs[job_id]

    def _update(self, job_id: str, **changes: object) -> None:
        self._put(msgspec.structs.replace(self._jobs[job_id], **changes))

    def _put(self, job: JobState) -> None:
        self._jobs[job.id] = job
        over = [k for k, v in self._jobs.items() if not v.is_open and not _is_unfinished(v)]
        for old in over[:-KEPT]:
            if old != job.id:  # what ends just now is told with its facts
                del self._jobs[old]
        self._keep()
        self.changed.emit()

    def _keep(self) -> None:
        try:
            self._file.write(self.jobs())
        except OSError as problem:
            if self._sink is not None:
                self._sink(f"WARNING the job list could not be saved: {problem.strerror}")


def _line_of(job: JobState) -> Line:
    if job.job in PASSING_JOBS:
        return "question"
    return "network" if job.job in NETWORK_JOBS else "machine"


def _is_unfinished(job: JobState) -> bool:
    """Whether a job waits to be taken up again: a paused download lasts, whatever ends after it."""
    is_fetching = job.job in NETWORK_JOBS and job.phase != "done"
    return job.phase == "interrupted" or is_fetching
