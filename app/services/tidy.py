"""Python's cycle collector, kept on the window's thread.

Left to itself it runs on whichever thread allocates: on a worker it would destroy Qt objects that
belong to the window's thread, which ends in a crash somewhere else later.
"""

import gc

from PySide6.QtCore import QObject, QTimer

INTERVAL_MS = 2_000


class Collector(QObject):
    """Collects by timer, by the interpreter's own thresholds, on the thread that made it."""

    def __init__(self, interval_ms: int = INTERVAL_MS, parent: QObject | None = None) -> None:
        super().__init__(parent)
        gc.collect()
        gc.freeze()  # what was imported stays; later collections need not look at it
        gc.disable()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.collect)
        self._timer.start(interval_ms)

    def collect(self) -> None:
        """Collect the oldest generation that has gone over its threshold."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        for generation in (2, 1, 0):
            if counts[generation] > thresholds[generation]:
                gc.collect(generation)
                return

    def close(self) -> None:
        """Leave collecting to the interpreter again."""
        self._timer.stop()
        gc.enable()
        gc.unfreeze()
