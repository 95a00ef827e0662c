"""One file to another disk: taken up where it was left, synced, and compared byte by byte.

Called by `engine.jobs.move`.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from engine.checkpoint.files import access_error, reading, sync_file, write_error
from engine.protocol.errors import Cancelled, DiskFull

CHUNK_BYTES = 4 << 20
_STEPS = 400  # progress reports a stage, at most


class Watch:
    """Counts bytes, tells them in sensible steps, and stops when asked to.

    Args:
        tell: (stage, done_bytes, total_bytes).
    """

    def __init__(
        self, tell: Callable[[str, int, int], None], cancelled: Callable[[], bool]
    ) -> None:
        self._tell, self._cancelled = tell, cancelled
        self._stage = ""
        self.done = self.total = self._told = 0

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage."""
        self._stage, self.total, self.done, self._told = stage, total, 0, 0
        self._tell(stage, 0, total)

    def add(self, num_bytes: int) -> None:
        """Count; raises Cancelled if the person asked to stop."""
        self.check()
        self.done += num_bytes
        if (self.done - self._told) * _STEPS >= self.total or self.done >= self.total:
            self._told = self.done
            self._tell(self._stage, self.done, self.total)

    def check(self) -> None:
        """Raise Cancelled if the person asked to stop."""
        if self._cancelled():
            raise Cancelled("Stopped; the old folder is as it was.")


class Copier:
    """Copies files and counts their bytes."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def copy(self, source: Path, target: Path) -> None:
        """Bring a file to `target`; equal bytes of an earlier run stay.

        Raises: FileAccess, DiskFull, Cancelled.
        """
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("r+b" if target.exists() else "w+b", buffering=0) as out:
                self._copy(source, out)
                sync_file(out)
            os.utime(target, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
        except OSError as problem:
            error = write_error(problem, target, self._watch.done, self._watch.total)
            if isinstance(error, DiskFull):
                error.hint = "Free some space there, then resume; the old folder is as it was."
            raise error from problem

    def _copy(self, source: Path, out: BinaryIO) -> None:
        with reading(source):
            file = source.open("rb")
        with file:
            while data := _read(file, source):
                place = out.tell()
                if out.read(len(data)) != data:
                    out.seek(place)
                    _write(out, data)
                self._watch.add(len(data))
        out.truncate()


def same_bytes(source: Path, target: Path, watch: Watch) -> bool:
    """Whether two files are equal, read from the disk itself where the system lets us.

    Raises: FileAccess, Cancelled.
    """
    try:
        with source.open("rb") as one, target.open("rb") as other:
            _forget_cached(other)
            while True:
                data = one.read(CHUNK_BYTES)
                if other.read(len(data) or 1) != data:
                    return False
                if not data:
                    return True
                watch.add(len(data))
    except OSError as problem:
        raise access_error(problem, "read", target) from problem


def _forget_cached(file: BinaryIO) -> None:
    """What was just written would be read from memory, not from the disk."""
    if sys.platform == "linux":
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(file: BinaryIO, path: Path) -> bytes:
    with reading(path):
        return file.read(CHUNK_BYTES)


def _write(out: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]
