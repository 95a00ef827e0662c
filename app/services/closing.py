"""The end of the app: everything is asked to stop, nothing is waited for on the window's thread.

Cases G-01, G-12, G-18: engine and jobs are gone and the app has ended within five seconds.
"""

import logging
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.engine_client import EngineClient
from app.services.job_runner import JobRunner

LIMIT_S = 4.0
_log = logging.getLogger("app")


class Closing(QObject):
    """Stops engine and jobs, then says that the app may end.

    Args:
        client: the engine.
        jobs: the job runner; a running job stays resumable.
        first: called at once, in order: saving drafts and the like. Must be quick.
        last: called when the children are gone, in order: threads, locks.

    Signals:
        begun(): the app is ending, before anything is stopped.
        finished(): all is over, or the limit was reached and the children were killed.
    """

    begun = Signal()
    finished = Signal()

    def __init__(
        self,
        client: EngineClient,
        jobs: JobRunner,
        first: Sequence[Callable[[], object]] = (),
        last: Sequence[Callable[[], object]] = (),
    ) -> None:
        super().__init__()
        self._client, self._jobs = client, jobs
        self._first, self._last = tuple(first), tuple(last)
        self._begun = self._ended = False
        self._limit = QTimer(self)
        self._limit.setSingleShot(True)
        self._limit.setInterval(round(LIMIT_S * 1000))
        self._limit.timeout.connect(self._end)

    @property
    def has_begun(self) -> bool:
        """Whether the app is ending."""
        return self._begun

    def begin(self) -> None:
        """Stop everything; returns at once. A second call does nothing."""
        if self._begun:
            return
        self._begun = True
        self.begun.emit()
        self._take(self._first)
        self._client.stopped.connect(self._check)
        self._jobs.idle.connect(self._check)
        self._limit.start()
        self._client.close()
        self._jobs.close()
        QTimer.singleShot(0, self, self._check)

    def _check(self) -> None:
        if not self._client.process.is_running and self._jobs.is_idle:
            self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._limit.stop()
        self._client.process.kill()
        self._take(self._last)
        self.finished.emit()

    def _take(self, steps: Sequence[Callable[[], object]]) -> None:
        """Take every step: one that fails must not keep the app from ending (D-07: full disk)."""
        for step in steps:
            try:
                step()
            except Exception as problem:  # noqa: BLE001  the other steps must be taken too
                _log.error("a step of the app's end failed", exc_info=problem)
