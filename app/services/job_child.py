"""One child process that runs one job: its lines as signals, and exactly one end.

Started, ended and judged by `job_runner`; knows no queue and no file.
"""

import time
from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.services.engine_program import EngineProgram
from app.services.job_state import SpeedMeter
from app.services.outcome import LogTail, crash_sentence
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode
from engine.protocol.framing import LineFramer


class JobChild(QObject):
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
