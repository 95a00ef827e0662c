"""Facts of one job, its speed and time left, and the queue on disk. No Qt, no processes."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.services.files import keep_aside, replace_file
from engine.protocol.messages import Error, Progress

WINDOW_S = 10.0

Phase = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job, as the Models page shows it and as the queue file keeps it.

    Attributes:
        id: unique over restarts of the app.
        job: "download", "convert", "verify", "profile", "move", "runtime", "search".
        spec: what the job works on.
        phase: "interrupted" = the app or the job ended half-way; can be resumed.
        progress: the newest frame.
        speed_bytes_s: smoothed over ten seconds; None = not known yet.
        eta_s: seconds left at this speed; None = not known.
        is_stalled: no progress for a minute (case C-02).
        is_cancelling: the end was asked for and is awaited.
        error: why it failed.
        result: of JobDone.
        begun_s, ended_s: seconds since the epoch, of the newest run; 0 = not yet, or not known.
    """

    id: str
    job: str
    spec: dict[str, Any] = {}
    title: str = ""
    phase: Phase = "waiting"
    progress: Progress | None = None
    speed_bytes_s: float | None = None
    eta_s: float | None = None
    is_stalled: bool = False
    is_cancelling: bool = False
    error: Error | None = None
    result: dict[str, Any] = {}
    begun_s: float = 0.0
    ended_s: float = 0.0

    def moved(self, old: Path, new: Path) -> "JobState":
        """Return the job with every path below `old` below `new` instead."""
        spec, result = _moved(self.spec, old, new), _moved(self.result, old, new)
        return msgspec.structs.replace(self, spec=spec, result=result)

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.phase in ("waiting", "running")

    @property
    def share(self) -> float | None:
        """Done part of the present stage, 0 to 1; None while the total is unknown."""
        if self.progress is None or not self.progress.total_bytes:
            return None
        return min(1.0, self.progress.done_bytes / self.progress.total_bytes)


def _moved(values: dict[str, Any], old: Path, new: Path) -> dict[str, Any]:
    def place(value: object) -> object:
        if not isinstance(value, str) or not Path(value).is_relative_to(old):
            return value
        return str(new / Path(value).relative_to(old))

    return {key: place(value) for key, value in values.items()}


class JobExtra(msgspec.Struct, frozen=True):
    """What a job is told at its start only: it is in no file, and `variables` on no command line.

    Attributes:
        spec: on top of the job's own.
        variables: environment of its process; for secrets.
    """

    spec: dict[str, Any] = {}
    variables: dict[str, str] = {}


class SpeedMeter:
    """Bytes per second over the last ten seconds, pauses included (case D-15).

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stage = ""
        self._points: deque[tuple[float, int]] = deque()

    def add(self, progress: Progress) -> None:
        """Take a progress frame; a new stage starts anew."""
        restarted = bool(self._points) and progress.done_bytes < self._points[-1][1]
        if progress.stage != self._stage or restarted:
            self._points.clear()
            self._stage = progress.stage
        now = self._clock()
        self._points.append((now, progress.done_bytes))
        while len(self._points) > 2 and self._points[1][0] < now - WINDOW_S:
            self._points.popleft()

    @property
    def bytes_s(self) -> float | None:
        """The speed; None before there are two frames some time apart."""
        if len(self._points) < 2:
            return None
        (begin, first), (_, last) = self._points[0], self._points[-1]
        span = self._clock() - begin
        return (last - first) / span if span > 0.2 else None

    def eta_s(self, progress: Progress) -> float | None:
        """Seconds until the stage is done; None while total or speed are unknown."""
        speed = self.bytes_s
        if not speed or not progress.total_bytes:
            return None
        return max(0, progress.total_bytes - progress.done_bytes) / speed


class JobFile:
    """The queue on disk: what was open when the app ended can be taken up again (case D-05)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[JobState, ...]:
        """Return the kept jobs; what was running counts as interrupted. A damaged file is empty."""
        try:
            jobs = msgspec.json.decode(self._path.read_bytes(), type=list[JobState])
        except OSError:
            return ()
        except msgspec.MsgspecError:
            keep_aside(self._path)
            return ()
        return tuple(
            msgspec.structs.replace(
                job, phase="interrupted", is_stalled=False, is_cancelling=False, eta_s=None
            )
            if job.is_open
            else job
            for job in jobs
        )

    def write(self, jobs: tuple[JobState, ...]) -> None:
        """Keep the jobs.

        Raises:
            OSError: the file cannot be written; the old one is untouched.
        """
        # Titles and sentences are phrases: strings that remember their language.
        replace_file(self._path, msgspec.json.encode(jobs, enc_hook=str))
