"""The process's own stdin and stdout as a message pipe: one reader thread, one writer thread.

Knows lines and threads, not what commands mean. Used by `engine.pipe.host` and `engine.jobs.run`.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable

from engine.pipe.outbox import Outbox
from engine.protocol.errors import ExitCode, InvalidRequest
from engine.protocol.framing import LineFramer
from engine.protocol.messages import Event, encode
from engine.system import hard_exit, make_binary

_CHUNK_BYTES = 64 * 1024
_log = logging.getLogger(__name__)


def claim_stdout() -> int:
    """Take fd 1 for the protocol and return its duplicate.

    Afterwards Python's `print` and C's `puts` go to stderr, and child processes do not inherit
    the protocol. Must be the first act of the process.
    """
    protocol_fd = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    make_binary(protocol_fd)
    make_binary(0)
    return protocol_fd


def parent_is_gone() -> None:
    """Nobody reads any more: end at once, with nothing half-done worth keeping."""
    hard_exit(ExitCode.OK)


class Reader:
    """Turns bytes of a descriptor into lines on its own thread.

    Args:
        fd: where to read.
        on_line: called with each whole line, or with the reason why one was dropped.
        on_end: called once at the end of the stream.
    """

    def __init__(
        self,
        fd: int,
        on_line: Callable[[bytes | InvalidRequest], None],
        on_end: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._on_line = on_line
        self._on_end = on_end
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)

    def start(self) -> None:
        """Begin to read; the thread is a daemon, as a blocked read cannot be ended."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the stream."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        framer = LineFramer()
        while True:
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except OSError as problem:  # the other end vanished (Windows reports it so)
                _log.info("stdin ended: %s", problem)
                chunk = b""
            if not chunk:
                break
            for line in framer.feed(chunk):
                self._on_line(line)
        rest = framer.close()
        if rest:  # a last line without its line end counts: a person typed the file
            self._on_line(rest)
        self._on_end()


class Writer:
    """Writes queued events as lines on its own thread.

    Args:
        fd: where to write.
        on_broken: called on the writer thread when the other end is gone.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None] = parent_is_gone) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._outbox = Outbox()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Queue an event; thread-safe, never blocks."""
        self._outbox.put(event)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Write what waits, then stop. Returns False if the other side did not read in time."""
        self._outbox.close()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _write(self) -> None:
        while True:
            events = self._outbox.take()
            if not events:
                if self._outbox.is_closed:
                    return
                continue
            data = memoryview(b"".join(encode(event) for event in events))
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError as problem:
                _log.warning("stdout is broken: %s", problem)
                self._on_broken()
                return
