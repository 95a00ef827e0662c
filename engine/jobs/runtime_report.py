"""Progress of the runtime's installation, a few times a second. Called by `engine.jobs.runtime`."""

import time
from collections.abc import Callable

from engine.protocol.messages import Event, Progress

REPORT_S = 0.25


class Report:
    """Counts bytes of one stage after the other.

    Attributes:
        done_bytes: of the present stage.
    """

    def __init__(self, job_id: str, emit: Callable[[Event], None]) -> None:
        self._id, self._emit = job_id, emit
        self.done_bytes = self._total = 0
        self._stage, self._name = "", ""
        self._told_s = 0.0

    def stage(self, name: str, done: int = 0, total: int = 0) -> None:
        """Begin a stage; a total of 0 = it is not counted."""
        self._stage, self._name, self.done_bytes, self._total = name, "", done, total
        self._tell(name, "")

    def file(self, name: str) -> None:
        """Begin the next file of the stage."""
        self._name = name
        self._tell(self._stage, name)

    def moved(self, num_bytes: int) -> None:
        """Count; fewer than none when a file begins anew."""
        self.done_bytes += num_bytes
        if num_bytes < 0 or time.monotonic() - self._told_s >= REPORT_S:
            self._tell(self._stage, self._name)

    def waiting(self, sentence: str) -> None:
        """Say why nothing moves."""
        self._tell("retry", sentence)

    def _tell(self, stage: str, detail: str) -> None:
        self._told_s = time.monotonic()
        self._emit(
            Progress(
                id=self._id,
                stage=stage,
                done_bytes=self.done_bytes,
                total_bytes=self._total,
                detail=detail,
            )
        )
