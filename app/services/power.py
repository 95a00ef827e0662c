"""Power of this machine: whether it runs on its battery, and when it wakes up after a sleep."""

import time
from collections.abc import Callable

import psutil
from PySide6.QtCore import QObject, QTimer, Signal

TICK_S = 2.0
_SLEPT_S = 8.0  # a busy machine may deliver a tick late, but not by this


def on_battery() -> bool | None:
    """Return whether the battery feeds this machine; None = there is none, or nobody says."""
    read = getattr(psutil, "sensors_battery", None)
    try:
        battery = read() if read is not None else None
    except (OSError, RuntimeError):
        return None
    plugged = getattr(battery, "power_plugged", None)
    return None if plugged is None else not plugged


class WakeWatch(QObject):
    """Notices that the machine slept: the clock on the wall went on and this timer did not.

    Args:
        clock: seconds of the wall clock, which runs during a sleep.
        interval_s: between two looks.

    Attributes:
        woke_at_s: when the last sleep ended, by `clock`; None = it has not slept.

    Signals:
        woke(float): the machine woke up after so many seconds.
    """

    woke = Signal(float)

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        interval_s: float = TICK_S,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._clock, self._interval_s = clock, interval_s
        self._last_s = clock()
        self.woke_at_s: float | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(round(interval_s * 1000))
        self._timer.timeout.connect(self.look)

    def start(self) -> None:
        """Begin to watch."""
        self._last_s = self._clock()
        self._timer.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.stop()

    def look(self) -> None:
        """Compare the clock with what the timer has counted; a clock set back says nothing."""
        now = self._clock()
        slept = now - self._last_s - self._interval_s
        self._last_s = now
        if slept >= _SLEPT_S:
            self.woke_at_s = now
            self.woke.emit(slept)

    def slept_within(self, seconds: float) -> bool:
        """Whether a sleep ended within the last so many seconds."""
        return self.woke_at_s is not None and 0 <= self._clock() - self.woke_at_s <= seconds
