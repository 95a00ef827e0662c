"""How a child process ended, in words; and how often that may happen. No Qt, no processes.

Made by `EngineProcess` and `JobRunner`, shown by the session and chat view models.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode, ExitCode

MAX_TAIL = 200

# Signals by number, so that the words are the same wherever the app was built.
_SIGNALS = {
    4: tr("illegal instruction"),
    6: tr("abort"),
    7: tr("bus error"),
    8: tr("arithmetic error"),
    11: tr("segmentation fault"),
    15: tr("termination"),
}
_KILL = 9


class EndCause(StrEnum):
    """Why a process that nobody had asked to stop is gone."""

    CRASHED = "crashed"
    KILLED = "killed"  # from outside: often the system, out of memory
    DEVICE = "device"  # driver error, or the GPU is gone
    MEMORY = "memory"  # of the device
    PROTOCOL = "protocol"
    INTERNAL = "internal"
    NOT_STARTED = "not_started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """The end of one child process.

    Attributes:
        unexpected: nobody had asked it to stop.
        sentence: cause in words, ready to be shown.
        last_log: last line of stderr that is no JSON, or "".
        error_line: last line of stderr that is a JSON object, or ""; the engine repeats its
            fatal error there.
        exit_code: as the system gave it; None if it never started or a signal ended it.
        signal: number of the signal that ended it, 0 = none.
        tail: the last lines of stderr, at most 200.
        was_started: there was a process at all.
    """

    unexpected: bool
    sentence: str
    last_log: str = ""
    error_line: str = ""
    exit_code: int | None = None
    signal: int = 0
    tail: tuple[str, ...] = ()
    was_started: bool = True

    @property
    def error(self) -> m.Error | None:
        """The fatal error that the engine repeated on stderr."""
        try:
            event = m.decode_event(self.error_line.encode())
        except EngineError:
            return None
        return event if isinstance(event, m.Error) else None

    @property
    def cause(self) -> EndCause:
        """Why it is gone; what the engine said itself beats its exit code."""
        error = self.error
        said = _CAUSES.get(error.code) if error is not None else None
        if said is not None:
            return said
        if not self.was_started:
            return EndCause.NOT_STARTED
        if self.exit_code is None:
            return EndCause.KILLED if self.signal == _KILL else EndCause.CRASHED
        return _CAUSES_BY_CODE.get(self.exit_code, EndCause.ENDED)

    @property
    def lacked_memory(self) -> bool:
        """Whether a smaller cache is what helps first; the system kills for want of memory."""
        return self.cause in (EndCause.MEMORY, EndCause.KILLED)

    def explained(self) -> "ProcessOutcome":
        """Return it with the engine's own last sentence behind ours."""
        error = self.error
        if error is None or not error.message or error.message in self.sentence:
            return self
        ours: str = self.sentence
        if self.cause is EndCause.MEMORY:
            ours = tr("The device ran out of memory.")
        return replace(self, sentence=f"{ours} {error.message}")


_CAUSES = {
    ErrorCode.DEVICE: EndCause.DEVICE,
    ErrorCode.BUDGET: EndCause.MEMORY,
    ErrorCode.PROTOCOL: EndCause.PROTOCOL,
    ErrorCode.INTERNAL: EndCause.INTERNAL,
}
_CAUSES_BY_CODE = {
    int(ExitCode.PROTOCOL): EndCause.PROTOCOL,
    int(ExitCode.DEVICE): EndCause.DEVICE,
    int(ExitCode.INTERNAL): EndCause.INTERNAL,
}


class LogTail:
    """The last lines of a child's stderr."""

    def __init__(self, max_lines: int = MAX_TAIL) -> None:
        self._lines: deque[str] = deque(maxlen=max_lines)

    def add(self, line: str) -> None:
        """Keep one line."""
        self._lines.append(line)

    def clear(self) -> None:
        """Forget everything, at a new start."""
        self._lines.clear()

    def outcome(
        self, unexpected: bool, sentence: str, exit_code: int | None = None, signal: int = 0
    ) -> ProcessOutcome:
        """Return the outcome with what the lines say."""
        lines = tuple(self._lines)
        spoken = [line for line in lines if line.strip()]
        objects = [line for line in spoken if line.lstrip().startswith("{")]
        words = [line for line in spoken if not line.lstrip().startswith("{")]
        return ProcessOutcome(
            unexpected=unexpected,
            sentence=sentence,
            last_log=words[-1] if words else "",
            error_line=objects[-1] if objects else "",
            exit_code=exit_code,
            signal=signal,
            tail=lines,
        )


def exit_sentence(code: int) -> str:
    """Say what an exit code of the engine means, when nobody had asked it to stop."""
    known = {
        int(ExitCode.OK): tr("The engine ended although nobody had asked it to."),
        int(ExitCode.PROTOCOL): tr("App and engine do not speak the same protocol version."),
        int(ExitCode.DEVICE): tr("The engine stopped because of a device error."),
        int(ExitCode.INTERNAL): tr("The engine stopped because of an internal error."),
    }
    return known.get(code) or tr("The engine ended with exit code {code}.", code=code)


def crash_sentence(signal: int) -> str:
    """Say which signal ended the engine; 0 = unknown, as on Windows."""
    if signal == _KILL:
        return tr("The engine was killed from outside; the system may have run out of memory.")
    if signal in _SIGNALS:
        name = _SIGNALS[signal]
        return tr("The engine crashed: {name} (signal {number}).", name=name, number=signal)
    if signal:
        return tr("The engine was ended by signal {number}.", number=signal)
    return tr("The engine crashed.")


class RestartLimit:
    """Counts unexpected ends, so that a broken engine is not started over and over (case E-05).

    Args:
        clock: seconds, monotonic.
        max_ends: so many within the window are too many.
        window_s: length of the window.
    """

    def __init__(
        self, clock: Callable[[], float], max_ends: int = 3, window_s: float = 300.0
    ) -> None:
        self._clock = clock
        self._max = max_ends
        self._window_s = window_s
        self._ends: deque[float] = deque()

    def note_end(self) -> None:
        """Count one unexpected end, now."""
        self._ends.append(self._clock())

    def clear(self) -> None:
        """Forget the past: the person insists."""
        self._ends.clear()

    @property
    def is_reached(self) -> bool:
        """Whether starting again by itself would be one time too many."""
        oldest = self._clock() - self._window_s
        while self._ends and self._ends[0] < oldest:
            self._ends.popleft()
        return len(self._ends) >= self._max
