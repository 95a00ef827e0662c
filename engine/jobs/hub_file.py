"""One file from the hub to the disk: resumed, retried, hashed while it comes, named when whole.

A file lies under NAME.part until its bytes are those the hub promised; then it is synced and gets
its name. So whatever bears a name is whole, and what a killed job leaves is resumed.
Called by `engine.jobs.download`.
"""

import errno
import hashlib
import http.client
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.checkpoint.files import access_error, disk_of, size_text, sync_file
from engine.jobs.hub import Hub, HubBody, HubFile, HubRepo
from engine.jobs.hub_errors import RangeRefused
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    DiskFull,
    EngineError,
    NetworkError,
)

CHUNK_BYTES = 1 << 20
PART = ".part"
TRIES = 6  # in a row, without a byte between them
_DAMAGED_TRIES = 2
_LONGEST_WAIT_S = 60.0
_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a transfer talks to its surroundings.

    Attributes:
        moved: bytes more (or, after a restart of a file, fewer) than before.
        waiting: a sentence: the connection was lost, it is tried again.
        cancelled: whether to stop.
        pause: waits; replaced in tests.
    """

    moved: Callable[[int], None]
    waiting: Callable[[str], None]
    cancelled: Callable[[], bool]
    pause: Callable[[float], None] = time.sleep

    def check(self) -> None:
        """Raise Cancelled if the person asked to stop."""
        if self.cancelled():
            raise Cancelled("The download was stopped; what was fetched is kept.")


def is_whole(file: HubFile, folder: Path) -> bool:
    """Whether the file bears its name already."""
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def kept_bytes(file: HubFile, folder: Path) -> int:
    """Return the bytes that need not be fetched again, as far as sizes tell."""
    if is_whole(file, folder):
        return file.size
    part = folder / (file.name + PART)
    size = part.stat().st_size if part.is_file() else 0
    return size if size <= file.size else 0


def fetch(hub: Hub, repo: HubRepo, file: HubFile, folder: Path, hooks: Hooks) -> None:
    """Bring one file to its name; bytes of an earlier run are kept.

    Raises: CorruptCheckpoint if the hub sends wrong bytes twice; NetworkError after too many
        tries; TokenNeeded, GatedModel, NotOnHub; DiskFull, FileAccess; Cancelled.
    """
    if is_whole(file, folder):
        return
    part = folder / (file.name + PART)
    try:
        for _ in range(_DAMAGED_TRIES):
            with part.open("r+b" if part.exists() else "w+b", buffering=0) as out:
                transfer = _Transfer(hub, repo, file, out, hooks)
                transfer.run()
                if transfer.is_right:
                    sync_file(out)
                else:
                    transfer.restart()
            if transfer.is_right:
                part.replace(folder / file.name)
                return
        part.unlink()
    except OSError as problem:
        raise _disk_error(problem, part, file) from problem
    raise CorruptCheckpoint(
        f"{file.name} came damaged twice: its bytes are not those the hub lists.",
        "Try again later; only this file is fetched again. A mirror or proxy may be at fault.",
    )


class _Transfer:
    """The bytes of one file, hashed as they are written."""

    def __init__(self, hub: Hub, repo: HubRepo, file: HubFile, out: BinaryIO, hooks: Hooks) -> None:
        self._hub, self._repo, self._file, self._out, self._hooks = hub, repo, file, out, hooks
        self._done = 0
        self._digest = _digest(file)
        self._take_kept()

    @property
    def is_right(self) -> bool:
        """Whether size and hash are as promised; a file without a hash counts by its size."""
        wanted = self._file.sha256 or self._file.blob_sha1
        return self._done == self._file.size and wanted in ("", self._digest.hexdigest())

    def run(self) -> None:
        """Fetch until the size is reached; lost connections are taken up again."""
        tries = 0
        while self._done < self._file.size:
            before = self._done
            problem = self._once()
            if problem is None:
                return
            tries = 1 if self._done > before else tries + 1
            if tries >= TRIES or not problem.may_retry:
                raise problem
            self._wait(problem, tries)

    def restart(self) -> None:
        """Throw away what is there."""
        self._out.seek(0)
        self._out.truncate()
        self._hooks.moved(-self._done)
        self._done, self._digest = 0, _digest(self._file)

    def _once(self) -> NetworkError | None:
        """One connection. Returns why it ended early, None if the file is complete."""
        self._hooks.check()
        try:
            body = self._hub.open(self._repo, self._file, self._done)
        except RangeRefused as problem:
            self.restart()
            return problem
        except NetworkError as problem:
            return problem
        try:
            if body.start != self._done:
                self.restart()  # a whole body, or another part, in answer to a range (case D-04)
            if body.start != self._done:
                return self._hub.lost(ConnectionError("another range"))
            return self._take(body)
        finally:
            body.close()

    def _take(self, body: HubBody) -> NetworkError | None:
        while self._done < self._file.size:
            self._hooks.check()
            try:
                data = body.read(min(CHUNK_BYTES, self._file.size - self._done))
            except (OSError, http.client.HTTPException) as problem:
                return self._hub.lost(problem)
            if not data:
                return self._hub.lost(ConnectionError("ended early"))
            _write(self._out, data)
            self._digest.update(data)
            self._done += len(data)
            self._hooks.moved(len(data))
        return None

    def _take_kept(self) -> None:
        """Hash what an earlier run left; it was counted already by `kept_bytes`."""
        size = os.fstat(self._out.fileno()).st_size
        if size > self._file.size:
            self._out.truncate(0)
            return
        while self._done < size:
            self._hooks.check()
            data = self._out.read(CHUNK_BYTES)
            if not data:
                break
            self._digest.update(data)
            self._done += len(data)

    def _wait(self, problem: NetworkError, tries: int) -> None:
        self._hooks.waiting(problem.message)
        left = min(_LONGEST_WAIT_S, problem.wait_s or 2.0 ** (tries - 1))
        while left > 0:
            self._hooks.check()
            self._hooks.pause(min(left, 0.25))
            left -= 0.25


def _digest(file: HubFile) -> "hashlib._Hash":
    if file.sha256:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)  # a git blob


def _write(out: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _disk_error(problem: OSError, part: Path, file: HubFile) -> EngineError:
    if problem.errno not in _FULL:
        return access_error(problem, "write", part)
    return DiskFull(
        f"The disk {disk_of(part)} is full; {file.name} ({size_text(file.size)}) is not complete.",
        "Free some space there, then resume; or cancel, which removes what was fetched.",
    )
