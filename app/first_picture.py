"""Says when a window's first picture is on screen: what nobody waits for begins then."""

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

LIMIT_MS = 1_000  # a covered or minimized window may never be painted


class FirstPicture(QObject):
    """Watches one window, and leaves it alone after its first picture.

    Signals:
        drawn(): the window and all that is in it has been painted once and takes input; or it was
            shown `LIMIT_MS` ago and the system has not asked for a picture. Comes once.
    """

    drawn = Signal()

    def __init__(self, window: QWidget, limit_ms: int = LIMIT_MS) -> None:
        super().__init__(window)
        self._window, self._limit_ms = window, limit_ms
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._say)

    def expect(self) -> None:
        """Wait for it; call this before the window is shown."""
        self._window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Wait from the window's showing for its painting; the parts are painted after it."""
        if event.type() == QEvent.Type.Show:
            self._timer.start(self._limit_ms)
        elif event.type() == QEvent.Type.Paint and self._timer.isActive():
            self._window.removeEventFilter(self)
            self._timer.start(0)
        return False

    def _say(self) -> None:
        self._window.removeEventFilter(self)
        self.drawn.emit()
