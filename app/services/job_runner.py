"""Long work as child processes of the engine program, one after the other, with a queue on disk.

What loads the network and what loads the machine are two lines: a download never makes a conversion
wait. `spec` goes through as it is. Cancel = close stdin, then kill.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.services.child_guard import ChildGuard
from app.services.engine_program import EngineProgram
from app.services.job_state import JobExtra, JobFile, JobState, SpeedMeter
from app.services.outcome import LogTail, crash_sentence
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode
from engine.protocol.framing import LineFramer

KEPT = 20  # finished jobs that stay listed
RESUMABLE = ("download", "convert", "verify")
NETWORK_JOBS = ("download",)


class JobRunner(QObject):
    """Jobs of the person.

    Args:
        program: the engine program.
        path: the queue file.
        sink: takes the stderr lines of jobs.
        stall_s: without progress for so long, a job counts as stalled.
        kill_after_s: from cancel to kill.

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
    ) -> None:
        super().__init__()
        self._program = program
        self._sink = sink
        self._file = JobFile(path)
        self._kill_after_ms = round(kill_after_s * 1000)
        self._jobs: dict[str, JobState] = {}
        for job in self._file.read():
            if not job.is_open and (job.phase != "interrupted" or job.job in RESUMABLE):
                self._jobs[job.id] = job
        self._guard = ChildGuard()
        self._extras: dict[str, Callable[[], JobExtra]] = {}
        self._children: dict[bool, _Child] = {}  # by line: whether it is a job of the network
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
        return tuple(self._jobs.values())

    def job(self, job_id: str) -> JobState | None:
        """Return one job, None if it is not listed."""
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

    def _child_of(self, job_id: str) -> "_Child | None":
        return next((c for c in self._children.values() if c.job_id == job_id), None)

    def _next(self) -> None:
        for line in (False, True):
            self._next_on(line)

    def _next_on(self, line: bool) -> None:
        if line in self._children or self._closing:
            return
        waiting = next(
            (
                job
                for job in self._jobs.values()
                if job.phase == "waiting" and (job.job in NETWORK_JOBS) == line
            ),
            None,
        )
        if waiting is None:
            return
        extra = self._extras[waiting.job]() if waiting.job in self._extras else JobExtra()
        variables = self._program.variables | extra.variables
        program = dataclasses.replace(self._program, variables=variables)
        child = _Child(waiting.id, program, waiting.job, waiting.spec | extra.spec, self)
        child.stall.setInterval(self._stall_ms)
        child.stalled.connect(self._on_stall)
        child.told.connect(self._on_event)
        child.ended.connect(self._on_ended)
        child.begun.connect(self._guard.hold)
        if self._sink is not None:
            child.logged.connect(self._sink)
        self._children[line] = child
        self._update(waiting.id, phase="running")
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
                is_stalled=False,
                is_cancelling=False,
                eta_s=None,
            )
            self.failed.emit(job_id, end)

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
            self._file.write(tuple(self._jobs.values()))
        except OSError as problem:
            if self._sink is not None:
                self._sink(f"WARNING the job list could not be saved: {problem.strerror}")


def _is_unfinished(job: JobState) -> bool:
    """Whether a job waits to be taken up again: a paused download lasts, whatever ends after it."""
    is_fetching = job.job in NETWORK_JOBS and job.phase != "done"
    return job.phase == "interrupted" or is_fetching


class _Child(QObject):
    """One job process.

    Signals:
        begun(int): the process runs; its id.
        told(str, Event): anything but the end.
        logged(str): a line of stderr.
        stalled(str): no progress for the time of `stall`.
        ended(str, JobDone | Error): exactly once.
    """

    begun = Signal(int)
    told = Signal(str, object)
    logged = Signal(str)
    stalled = Signal(str)
    ended = Signal(str, object)

    def __init__(
        self,
        job_id: str,
        program: EngineProgram,
        job: str,
        spec: dict[str, object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.job_id = job_id
        self.meter = SpeedMeter(time.monotonic)
        self.stall = QTimer(self)
        self.stall.setSingleShot(True)
        self.stall.timeout.connect(self._tell_stall)
        self._out, self._err, self._tail = LineFramer(), LineFramer(), LogTail()
        self._end: m.JobDone | m.Error | None = None
        self._is_cancelled = False
        self._program = program
        self._process = QProcess(self)
        self._process.started.connect(self._on_started)
        self._process.setProcessChannelMode(QProcess.ProcessChannelMode.SeparateChannels)
        text = msgspec.json.encode(spec).decode()
        program.prepare(self._process, ("--job", job, "--spec", text))
        self._process.readyReadStandardOutput.connect(self._read_out)
        self._process.readyReadStandardError.connect(self._read_err)
        self._process.finished.connect(self._on_finished)
        self._process.errorOccurred.connect(self._on_error)

    def _tell_stall(self) -> None:
        self.stalled.emit(self.job_id)

    def start(self) -> None:
        """Start the process soon, so that the caller knows the id before it hears of an end."""
        QTimer.singleShot(0, self, self._begin)

    def _begin(self) -> None:
        if self._is_cancelled:
            self.ended.emit(
                self.job_id, m.Error(code=ErrorCode.CANCELLED, message=tr("Cancelled."))
            )
        else:
            self._process.start()  # stdin stays open until a cancel

    def cancel(self, kill_after_ms: int) -> None:
        """End of stdin now, kill if that is not enough."""
        self._is_cancelled = True
        self._process.closeWriteChannel()
        QTimer.singleShot(kill_after_ms, self, self._process.kill)

    def _on_started(self) -> None:
        self.begun.emit(int(self._process.processId()))

    def _read_out(self) -> None:
        self._take(self._out.feed(bytes(self._process.readAllStandardOutput().data())))

    def _take(self, lines: Sequence[object]) -> None:
        for line in lines:
            try:
                event = m.decode_event(line if isinstance(line, bytes) else b"")
            except EngineError as problem:
                self.logged.emit(f"ERROR not a message of a job: {problem.message}")
                continue
            if isinstance(event, (m.JobDone, m.Error)):
                self._end = event
            else:
                self.told.emit(self.job_id, event)

    def _read_err(self) -> None:
        for line in self._err.feed(bytes(self._process.readAllStandardError().data())):
            self._log(line.decode("utf-8", "replace") if isinstance(line, bytes) else line.message)

    def _log(self, text: str) -> None:
        self._tail.add(text)
        self.logged.emit(text)

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            reason = self._process.errorString()
            self._fail(self._program.start_problem(reason))

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._read_out()
        self._read_err()
        rest, last_words = self._out.close(), self._err.close()
        if rest:
            self._take([rest])
        if last_words:
            self._log(last_words.decode("utf-8", "replace"))
        if self._end is not None and (code == 0 or isinstance(self._end, m.Error)):
            self.ended.emit(self.job_id, self._end)
        elif status == QProcess.ExitStatus.CrashExit:
            self._fail(crash_sentence(code if 0 < code < 128 else 0))
        else:
            self._fail(tr("The job ended with exit code {code} and no result.", code=code))

    def _fail(self, sentence: str) -> None:
        last = self._tail.outcome(True, sentence).last_log
        self.ended.emit(self.job_id, m.Error(code=ErrorCode.INTERNAL, message=sentence, hint=last))
