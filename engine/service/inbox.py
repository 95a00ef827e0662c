"""Commands on their way from the reader's thread to the step loop, in order of arrival.

Holds what may be done out of order: taking back a command that was not begun. Knows no meaning of
commands. Used by `engine.service.service`.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass

from engine.protocol.messages import Command


@dataclass(frozen=True, slots=True)
class Arrived:
    """A command and when it came (`time.monotonic`)."""

    command: Command
    at_s: float


class Inbox:
    """A thread-safe queue of commands; the loop sleeps on it.

    Attributes:
        is_stopping: stop now; commands are not taken any more.
        current_id: id of the command taken last, while it is executed.
    """

    def __init__(self) -> None:
        self._queue: deque[Arrived] = deque()
        self._changed = threading.Condition()
        self._poked = False
        self._ended_s: float | None = None
        self.is_stopping = False
        self.current_id = ""

    def put(self, command: Command) -> None:
        """Add a command at the end."""
        with self._changed:
            self._queue.append(Arrived(command, time.monotonic()))
            self._changed.notify()

    def take(self) -> Arrived | None:
        """Return the oldest command, None if there is none or the loop shall stop."""
        with self._changed:
            if not self._queue or self.is_stopping:
                self.current_id = ""
                return None
            arrived = self._queue.popleft()
            self.current_id = getattr(arrived.command, "id", "")
            return arrived

    def take_back(self, command_id: str) -> Command | None:
        """Remove the first waiting command with this id and return it."""
        with self._changed:
            for arrived in self._queue:
                if getattr(arrived.command, "id", None) == command_id:
                    self._queue.remove(arrived)
                    return arrived.command
            return None

    def rest(self) -> list[Command]:
        """Remove and return all that waits."""
        with self._changed:
            out = [arrived.command for arrived in self._queue]
            self._queue.clear()
            return out

    def end(self) -> None:
        """No command will come any more."""
        with self._changed:
            if self._ended_s is None:
                self._ended_s = time.monotonic()
            self._changed.notify()

    def stop(self) -> None:
        """Stop now."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify()

    def poke(self) -> None:
        """Wake the loop: something waits at the safe point."""
        with self._changed:
            self._poked = True
            self._changed.notify()

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until something changes, or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._queue or self._poked or self.is_stopping or self.has_ended,
                timeout_s,
            )
            self._poked = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._queue

    @property
    def has_ended(self) -> bool:
        """Whether no command will come any more."""
        return self._ended_s is not None

    @property
    def ended_for_s(self) -> float:
        """Seconds since the end of commands; 0 before it."""
        return 0.0 if self._ended_s is None else time.monotonic() - self._ended_s
