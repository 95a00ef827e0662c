"""Sums over copies: bytes at once, seconds when the copy is through. Holds numbers only."""

from collections import deque

from kernels.device.base import Event


class CopyMeter:
    """Copies of one kind since load."""

    def __init__(self) -> None:
        self._bytes = 0
        self._seconds = 0.0
        self._open: deque[Event] = deque()

    def add(self, event: Event, num_bytes: int) -> None:
        """Count a copy that was just queued."""
        self._bytes += num_bytes
        self._open.append(event)
        self._collect()

    @property
    def num_bytes(self) -> int:
        """Bytes of all copies queued so far."""
        return self._bytes

    @property
    def seconds(self) -> float:
        """Seconds of all copies that are through."""
        self._collect()
        return self._seconds

    def _collect(self) -> None:
        while self._open and self._open[0].done():
            self._seconds += self._open.popleft().seconds()
