"""The last 20,000 log lines of app, engine and jobs, and the rotating files beside them.

`LogRing.append` may be called from any thread. The Logs page listens to `changed`.
"""

import contextlib
import logging
import logging.handlers
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from engine.protocol import messages as m
from engine.protocol.errors import EngineError

MAX_LINES = 20_000
FILE_BYTES, FILE_COPIES = 2 * 1024 * 1024, 3
NOTIFY_MS = 100

Source = Literal["app", "engine", "job"]
Level = Literal["info", "warning", "error"]

_LEVELS: tuple[tuple[Level, re.Pattern[str]], ...] = (
    ("error", re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|^Traceback|^\w*(Error|Exception)\b")),
    ("warning", re.compile(r"\bWARN(ING)?\b|\bWarning:")),
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `number` grows by one for each line since the start, `time_s` is Unix time."""

    number: int
    time_s: float
    source: Source
    level: Level
    text: str


def clock(line: LogLine) -> str:
    """Return the time of day with milliseconds."""
    millis = int(line.time_s * 1000) % 1000
    return f"{time.strftime('%H:%M:%S', time.localtime(line.time_s))}.{millis:03d}"


def line_text(line: LogLine) -> str:
    """Return a line as it is copied."""
    return f"{clock(line)} {line.source} {line.level}: {line.text}"


class LogRing(QObject):
    """Lines in memory.

    Signals:
        changed(): lines were added; at most ten times a second.
    """

    changed = Signal()
    _poked = Signal()

    def __init__(self, max_lines: int = MAX_LINES, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque(maxlen=max_lines)
        self._count = 0
        self._is_poked = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(NOTIFY_MS)
        self._timer.timeout.connect(self._notify)
        self._poked.connect(self._timer.start, Qt.ConnectionType.QueuedConnection)

    @property
    def count(self) -> int:
        """Lines since the start, forgotten ones included."""
        return self._count

    def append(self, source: Source, level: Level, text: str) -> None:
        """Add a line, from any thread."""
        with self._lock:
            self._count += 1
            self._lines.append(LogLine(self._count, time.time(), source, level, text))
            poke, self._is_poked = not self._is_poked, True
        if poke:
            self._poked.emit()

    def lines(self, after: int = 0) -> tuple[LogLine, ...]:
        """Return the kept lines with a number above `after`."""
        with self._lock:
            if after >= self._count:
                return ()
            if not after:
                return tuple(self._lines)
            new = min(self._count - after, len(self._lines))
            return tuple(self._lines[i] for i in range(len(self._lines) - new, len(self._lines)))

    def _notify(self) -> None:
        with self._lock:
            self._is_poked = False
        self.changed.emit()


class RingHandler(logging.Handler):
    """The app's own log records into the ring."""

    def __init__(self, ring: LogRing) -> None:
        super().__init__()
        self._ring = ring

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record, traceback included."""
        level: Level = "info"
        if record.levelno >= logging.ERROR:
            level = "error"
        elif record.levelno >= logging.WARNING:
            level = "warning"
        self._ring.append("app", level, self.format(record))


def level_of(text: str) -> Level:
    """Guess the level of a child's line from its words."""
    for level, pattern in _LEVELS:
        if pattern.search(text):
            return level
    return "info"


class _LogFile(logging.handlers.RotatingFileHandler):
    """A file that a full disk costs lines, and nothing else (case D-07); the ring has them."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the line out."""

    def close(self) -> None:
        """Close, also if what is buffered cannot be written any more."""
        with contextlib.suppress(OSError):
            super().close()


def rotating_file(path: Path) -> logging.Handler | None:
    """Open a log file that turns over at 2 MiB, three old ones kept; None if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(path, maxBytes=FILE_BYTES, backupCount=FILE_COPIES, encoding="utf-8")
    except OSError:
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


class ChildLog:
    """Takes a child's stderr lines: into the ring and, as they are, into a rotating file.

    Args:
        ring: lines for the Logs page.
        source: whose lines they are.
        path: the file; one that cannot be written is left out.
    """

    def __init__(self, ring: LogRing, source: Source, path: Path) -> None:
        self._ring, self._source = ring, source
        self._file = rotating_file(path)

    def __call__(self, text: str) -> None:
        """Take one line."""
        shown = _readable(text)
        self._ring.append(self._source, level_of(shown), shown)
        if self._file is not None:
            record = {"name": self._source, "levelname": "-", "msg": text}
            self._file.handle(logging.makeLogRecord(record))

    def close(self) -> None:
        """Close the file; later lines are only in the ring."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _readable(text: str) -> str:
    """Show an error that the engine wrote as JSON by its sentence."""
    if not text.startswith("{"):
        return text
    try:
        event = m.decode_event(text.encode())
    except EngineError:
        return text
    return f"ERROR {event.code}: {event.message}" if isinstance(event, m.Error) else text
