"""What waits for the moment between two steps when no work is in flight.

Thread-safe on the asking side; the scheduler alone takes. Knows neither pools nor requests.
"""

import threading
from collections.abc import Callable


class Safepoint:
    """Queued cancels and actions (resizes, policy changes), in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancels: list[str] = []
        self._actions: list[Callable[[], None]] = []

    def cancel(self, request_id: str) -> None:
        """End this request at the next safe point; unknown ids do nothing."""
        with self._lock:
            self._cancels.append(request_id)

    def do(self, action: Callable[[], None]) -> None:
        """Run `action` on the scheduler's thread at the next safe point."""
        with self._lock:
            self._actions.append(action)

    @property
    def is_wanted(self) -> bool:
        """Whether something waits."""
        with self._lock:
            return bool(self._cancels or self._actions)

    def take(self) -> tuple[list[str], list[Callable[[], None]]]:
        """Return and forget what waits: (request ids to cancel, actions)."""
        with self._lock:
            out = self._cancels, self._actions
            self._cancels, self._actions = [], []
            return out
