"""Files and disks: exact reads, durable writes, one lock per output, and errors in words.

The only module of this package that asks which operating system it runs on.
"""

import errno
import os
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from engine.protocol.errors import CorruptCheckpoint, DiskFull, EngineError, FileAccess

if TYPE_CHECKING:
    import torch

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

OPEN_FILES_PIN_FOLDERS = sys.platform == "win32"
"""Windows neither renames nor removes a folder in which a file is open."""

RENAME_TRIES = 20 if sys.platform == "win32" else 1
_RENAME_PAUSE_S = 0.1
_HELD = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_NOT_FOR_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}
_REASONS = {
    errno.ENOENT: "it is not there",
    errno.EACCES: "access is denied",
    errno.EPERM: "access is denied",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk reported a fault",
    errno.EFBIG: "this disk's file system takes no files of that size",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
}


class Readable(Protocol):
    """An unbuffered binary file."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer as far as possible; returns the bytes read."""
        ...


def size_text(num_bytes: int) -> str:
    """Return a size as people read it: 512 bytes, 29.4 MiB, 1.2 GiB."""
    value, unit = float(num_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{num_bytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def access_error(problem: OSError, doing: str, path: Path) -> EngineError:
    """Turn an operating system's error into a sentence, e.g. doing="read"."""
    reason = _REASONS.get(problem.errno or 0, (problem.strerror or str(problem)).lower())
    hint = "Check the path, its rights and the disk, then try again."
    return FileAccess(f"Cannot {doing} {path}: {reason}.", hint)


@contextmanager
def reading(path: Path) -> Generator[None, None, None]:
    """Turn OSError into FileAccess that names the file."""
    try:
        yield
    except OSError as problem:
        raise access_error(problem, "read", path) from problem


def read_bytes(path: Path) -> bytes:
    """Read a small file whole. Raises FileAccess."""
    with reading(path):
        return path.read_bytes()


def read_exactly(file: Readable, out: memoryview, path: Path) -> None:
    """Fill `out` from the file's position, straight into its memory.

    Raises: CorruptCheckpoint if the file ends early (it shrank since it was checked).
    """
    done = 0
    while done < len(out):
        got = file.readinto(out[done:])
        if not got:
            raise CorruptCheckpoint(
                f"{path.name} in {path.parent} ends {size_text(len(out) - done)} too early.",
                "Do not change a model's files while it is read; fetch this file again.",
            )
        done += got


def read_extent(path: Path, offset: int, num_bytes: int) -> "torch.Tensor":
    """Read part of a file as uint8 [num_bytes]; nothing is mapped, so a vanished disk is an error.

    Raises: FileAccess, CorruptCheckpoint.
    """
    import torch  # the job that installs torch uses this module too

    out = torch.empty(num_bytes, dtype=torch.uint8)
    if num_bytes:
        with reading(path), path.open("rb", buffering=0) as file:
            file.seek(offset)
            read_exactly(file, byte_view(out), path)
    return out


def byte_view(tensor: "torch.Tensor") -> memoryview:
    """Return the bytes of a contiguous CPU uint8 tensor as a flat memoryview; no copy."""
    return tensor.numpy().reshape(-1).data


def disk_of(path: Path) -> Path:
    """Return the mount point (or drive) that holds a path, existing or not."""
    place = path.absolute()
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place


def free_bytes(folder: Path) -> int:
    """Return what a person may still write on the disk of an existing folder."""
    return shutil.disk_usage(folder).free


def check_space(folder: Path, need_bytes: int) -> None:
    """Raise DiskFull with need, free bytes and disk if `need_bytes` do not fit into `folder`."""
    free = free_bytes(folder)
    if free < need_bytes:
        raise DiskFull(
            f"{size_text(need_bytes)} are needed on the disk {disk_of(folder)},"
            f" {size_text(free)} are free.",
            f"Free {size_text(need_bytes - free)} there, or choose another folder.",
        )


def write_error(problem: OSError, path: Path, done_bytes: int, need_bytes: int) -> EngineError:
    """Turn a failed write into DiskFull (with disk and figures) or FileAccess."""
    if problem.errno not in _FULL:
        return access_error(problem, "write", path)
    return DiskFull(
        f"The disk {disk_of(path)} is full: {size_text(done_bytes)} of {size_text(need_bytes)}"
        " were written.",
        "Free some space there or choose another folder; the unfinished output was removed.",
    )


def open_for_writing(path: Path) -> BinaryIO:
    """Create a new file; raises OSError if it is there already."""
    return path.open("xb")


def sync_file(file: BinaryIO) -> None:
    """Bring what was written to the disk itself."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk itself, where the file system can do that.

    Windows does it on its own; some network drives refuse it.
    """
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in _NOT_FOR_FOLDERS:
            raise
    finally:
        os.close(handle)


def rename(source: Path, target: Path, tries: int = RENAME_TRIES) -> None:
    """Give a folder another name; raises OSError.

    Virus scanners on Windows hold new files open for a moment, hence the tries.
    """
    for left in reversed(range(tries)):
        try:
            os.rename(source, target)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(_RENAME_PAUSE_S)


class FileLock:
    """An exclusive lock on a file, gone with its process, even after kill -9."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def acquire(self) -> bool:
        """Take the lock; returns whether nobody else had it.

        Raises: OSError if the file cannot be opened, or the disk knows no locks.
        """
        file = self._path.open("ab")
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder may have moved or removed the file between our opening and locking it.
            is_there = self._path.exists() and os.path.samestat(
                os.fstat(file.fileno()), self._path.stat()
            )
        except OSError as problem:
            file.close()
            if problem.errno in _HELD:
                return False
            raise
        if not is_there:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Let go; harmless if not held."""
        if self._file is not None:
            self._file.close()
            self._file = None
