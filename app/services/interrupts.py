"""Ctrl+C and SIGTERM as a Qt signal.

Python runs no handlers while Qt waits for events, so a socket wakes it.
"""

import signal
import socket
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, Signal


class Interrupts(QObject):
    """Turns the first interrupt into `asked`; a second one ends the process at once.

    Signals:
        asked(): the person or the system wants the app to end.
    """

    asked = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._old = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_woken)
        self._was_asked = False

    def close(self) -> None:
        """Give the handlers back."""
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._read.close()
        self._write.close()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._was_asked:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._was_asked = True

    def _on_woken(self) -> None:
        try:
            self._read.recv(64)
        except BlockingIOError:
            return
        if self._was_asked:
            self.asked.emit()
