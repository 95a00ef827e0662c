"""Builds the pages that nobody has visited yet, while the person does nothing.

Then a first visit is as quick as any other. Begun by `app.__main__`; a start without it is whole.
"""

from collections.abc import Callable, Iterator

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

PAUSE_MS = 500  # without a key, a wheel or a pointer on the move
_INPUT = frozenset(
    {
        QEvent.Type.KeyPress,
        QEvent.Type.KeyRelease,
        QEvent.Type.MouseButtonPress,
        QEvent.Type.MouseButtonRelease,
        QEvent.Type.MouseMove,
        QEvent.Type.TouchBegin,
        QEvent.Type.TouchUpdate,
        QEvent.Type.Wheel,
    }
)


class WarmUp(QObject):
    """One piece of work after each pause of the person, until all is done.

    Args:
        window: whose input counts.
        work: does a piece at each step.
        is_busy: whether something is under way that must not wait for a piece.
        pause_ms: how long a pause is.

    Signals:
        finished(): all is done.
    """

    finished = Signal()

    def __init__(
        self,
        window: QWidget,
        work: Iterator[object],
        is_busy: Callable[[], bool],
        pause_ms: int = PAUSE_MS,
    ) -> None:
        super().__init__(window)
        self._window, self._work, self._is_busy = window, work, is_busy
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(pause_ms)
        self._timer.timeout.connect(self._step)

    def begin(self) -> None:
        """Wait for the first pause; the window must have been shown."""
        self._window.windowHandle().installEventFilter(self)
        self._timer.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Whatever the person does begins the pause anew."""
        if event.type() in _INPUT:
            self._timer.start()
        return False

    def _step(self) -> None:
        is_elsewhere = QApplication.activePopupWidget() or QApplication.activeModalWidget()
        if not is_elsewhere and not self._is_busy() and next(self._work, self) is self:
            self._window.windowHandle().removeEventFilter(self)
            self.finished.emit()
            return
        self._timer.start()
