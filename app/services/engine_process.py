"""The engine as a child process: start, watch, stop, and the end in words.

Owns the QProcess. Knows no message types: whole lines go out, bytes go in. Used by `EngineClient`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.services.child_guard import ChildGuard
from app.services.engine_program import EngineProgram
from app.services.outcome import (
    LogTail,
    ProcessOutcome,
    RestartLimit,
    crash_sentence,
    exit_sentence,
)
from app.wording import tr
from engine.protocol.framing import LineFramer

# If the app dies, the engine sees the end of stdin; open replies have nobody to go to (case G-01).
DRAIN = ("--drain-s", "2")
# A silence is so many looks of our own without a byte between them. A computer that sleeps, or a
# window that is busy, does not look, and so holds nothing against the engine.
_LOOKS = 10


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """How long is too long, in seconds.

    Attributes:
        first_output_s: from start to the first byte; a cold disk may be slow.
        silence_s: without any output, though a heartbeat is due each second.
        eof_after_s: from stop() to closing stdin.
        kill_after_s: from stop() to kill.
    """

    first_output_s: float = 60.0
    silence_s: float = 10.0
    eof_after_s: float = 1.0
    kill_after_s: float = 2.5


class EngineProcess(QObject):
    """One child process at a time. Nothing here blocks.

    Signals:
        started: the program runs; nothing has been said yet.
        lines(list): whole lines of stdout, bytes, or InvalidRequest for one that was too long.
        responding_changed(bool): False after too long a silence; the process is left alone.
        stopped(ProcessOutcome): the process is gone; all its lines were delivered before.
    """

    started = Signal()
    lines = Signal(object)
    responding_changed = Signal(bool)
    stopped = Signal(object)

    def __init__(
        self,
        program: EngineProgram,
        sink: Callable[[str], None] | None = None,
        limits: ProcessLimits | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.program = program
        self.restarts = RestartLimit(time.monotonic)
        self._sink = sink
        self._limits = limits or ProcessLimits()
        self._tail = LogTail()
        self._out = LineFramer()
        self._err = LineFramer()
        self._stopping = False
        self._killed = False
        self._responding = True
        self._looks = 0
        self._process = QProcess(self)
        self._process.setProcessChannelMode(QProcess.ProcessChannelMode.SeparateChannels)
        self._guard = ChildGuard()
        self._process.started.connect(self._on_started)
        self._process.readyReadStandardOutput.connect(self._read_out)
        self._process.readyReadStandardError.connect(self._read_err)
        self._process.finished.connect(self._on_finished)
        self._process.errorOccurred.connect(self._on_error)
        self._silence = QTimer(self)
        self._silence.timeout.connect(self._on_look)
        self._eof = self._timer(self._process.closeWriteChannel)
        self._kill = self._timer(self._kill_now)

    @property
    def is_running(self) -> bool:
        """Whether there is a process, starting and stopping ones included."""
        return self._process.state() != QProcess.ProcessState.NotRunning

    @property
    def is_stopping(self) -> bool:
        """Whether the running process has been asked to stop."""
        return self._stopping and self.is_running

    @property
    def is_responding(self) -> bool:
        """False after too long a silence."""
        return self._responding

    @property
    def pid(self) -> int:
        """Process id, 0 if there is none."""
        return int(self._process.processId())

    def start(self) -> None:
        """Start the program; does nothing if it runs already."""
        if self.is_running:
            return
        self._tail.clear()
        self._out, self._err = LineFramer(), LineFramer()
        self._stopping = self._killed = False
        self._set_responding(True)
        if self.program.is_missing:
            QTimer.singleShot(0, self, self._refuse)
            return
        self.program.prepare(self._process, DRAIN)
        self._await(self._limits.first_output_s)
        self._process.start()

    def write(self, data: bytes) -> None:
        """Send bytes to the engine; without a process they are lost."""
        if self.is_running:
            self._process.write(data)

    def stop(self, farewell: bytes = b"") -> None:
        """Ask the engine to end: `farewell`, then the end of stdin, then kill. Returns at once."""
        if not self.is_running or self._stopping:
            return
        self._stopping = True
        self._silence.stop()
        if farewell:
            self._process.write(farewell)
        self._eof.start(round(self._limits.eof_after_s * 1000) if farewell else 0)
        self._kill.start(round(self._limits.kill_after_s * 1000))

    def kill(self) -> None:
        """End the engine now, because the person does not want to wait any longer."""
        if self.is_running:
            self._stopping = True
            self._kill_now()

    def _timer(self, slot: Callable[[], object]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(slot)
        return timer

    def _kill_now(self) -> None:
        self._killed = True
        self._process.kill()

    def _on_started(self) -> None:
        self._guard.hold(self.pid)
        self.started.emit()

    def _read_out(self) -> None:
        data = self._process.readAllStandardOutput().data()
        self._heard()
        lines = self._out.feed(bytes(data))
        if lines:
            self.lines.emit(lines)

    def _read_err(self) -> None:
        for line in self._err.feed(bytes(self._process.readAllStandardError().data())):
            self._log(line.decode("utf-8", "replace") if isinstance(line, bytes) else line.message)

    def _log(self, text: str) -> None:
        self._tail.add(text)
        if self._sink is not None:
            self._sink(text)

    def _heard(self) -> None:
        if not self._stopping:
            self._await(self._limits.silence_s)
        self._set_responding(True)

    def _await(self, limit_s: float) -> None:
        """Begin to count looks without output anew; so many of them make up the limit."""
        self._looks = 0
        interval = max(1, round(limit_s * 1000 / _LOOKS))
        if not self._silence.isActive() or self._silence.interval() != interval:
            self._silence.start(interval)

    def _on_look(self) -> None:
        self._looks += 1
        if self._looks >= _LOOKS:
            self._silence.stop()
            self._set_responding(False)

    def _set_responding(self, responding: bool) -> None:
        if responding != self._responding:
            self._responding = responding
            self.responding_changed.emit(responding)

    def _refuse(self) -> None:
        """There is nothing to start; said like a failed start."""
        outcome = self._tail.outcome(True, self.program.start_problem(""))
        self._end(replace(outcome, was_started=False))

    def _on_error(self, error: QProcess.ProcessError) -> None:
        """Only a failed start has no `finished` after it; broken pipes end in `finished`."""
        if error == QProcess.ProcessError.FailedToStart:
            reason = self._process.errorString()
            outcome = self._tail.outcome(True, self.program.start_problem(reason))
            self._end(replace(outcome, was_started=False))

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._read_out()
        self._read_err()
        rest_out, rest_err = self._out.close(), self._err.close()
        if rest_out:
            self.lines.emit([rest_out])
        if rest_err:
            self._log(rest_err.decode("utf-8", "replace"))
        crashed = status == QProcess.ExitStatus.CrashExit
        signal = code if crashed and 0 < code < 128 else 0
        unexpected = not self._stopping
        if not unexpected:
            sentence: str = (
                tr("The engine did not stop by itself and was ended.")
                if self._killed
                else tr("The engine was stopped.")
            )
        else:
            sentence = crash_sentence(signal) if crashed else exit_sentence(code)
        self._end(self._tail.outcome(unexpected, sentence, None if crashed else code, signal))

    def _end(self, outcome: ProcessOutcome) -> None:
        for timer in (self._silence, self._eof, self._kill):
            timer.stop()
        self._set_responding(True)
        self._stopping = False
        if outcome.unexpected:
            self.restarts.note_end()
        self.stopped.emit(outcome)
