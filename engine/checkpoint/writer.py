"""Writes an FTW folder so that it is there whole, or not at all.

Everything goes to a hidden folder beside the target, is brought to the disk, and only then takes
the target's name. On failure or cancel the hidden folder is removed; one left by a killed process
is known by its lock file and removed by the next conversion to the same target.
Called by `engine.checkpoint.convert`.
"""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
import xxhash

from engine.checkpoint import files
from engine.checkpoint.index import (
    INDEX_NAME,
    DataFile,
    Index,
    Role,
    SideFile,
    TensorExtent,
    align,
    encode_index,
)
from engine.protocol.errors import FileAccess

BANK_FILE = "experts.bin"
TENSOR_FILE = "tensors.bin"
LOCK_NAME = "converting.lock"


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer has written so far, for the index."""

    files: tuple[DataFile, ...]
    record_xxh3: tuple[str, ...]
    tensors: tuple[TensorExtent, ...]
    side_files: tuple[SideFile, ...]


class FtwWriter:
    """One FTW folder in the making; a context manager that discards what was not published.

    Order of calls: `add_record` (all, in record order), `add_tensor`, `add_side_file`, `seal`,
    `publish`. Files 0 and 1 of the index are the expert bank and the other tensors.

    Raises (constructor): FileAccess if the target is there already, or another conversion writes
        to it; DiskFull with the figures. Everything that writes: DiskFull, FileAccess.

    Attributes:
        folder: where the output lies before `publish`.
    """

    def __init__(
        self,
        target: Path,
        need_bytes: int,
        open_file: Callable[[Path], BinaryIO] = files.open_for_writing,
    ) -> None:
        self._target = target.absolute()
        self._need = need_bytes
        self._done = 0
        self._open_file = open_file
        self.folder = partial_folder(self._target)
        self._lock = files.FileLock(self.folder / LOCK_NAME)
        self._records: list[str] = []
        self._tensors: list[TensorExtent] = []
        self._side: list[SideFile] = []
        self._data: dict[str, BinaryIO] = {}
        self._offset = 0
        self._open = False
        try:
            self._prepare()
            with self._writing(self.folder):
                files.check_space(self.folder, need_bytes)
                for name in (BANK_FILE, TENSOR_FILE):
                    self._data[name] = open_file(self.folder / name)
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    @property
    def done_bytes(self) -> int:
        """Bytes written so far, padding included."""
        return self._done

    def add_record(self, record: torch.Tensor) -> None:
        """Append the next expert: uint8 [record_bytes]."""
        self._records.append(self._append(BANK_FILE, record))

    def add_tensor(
        self,
        name: str,
        role: Role,
        dtype: str,
        shape: tuple[int, ...],
        raw: torch.Tensor,
        scale: str = "",
    ) -> None:
        """Append a tensor's raw bytes (uint8 [n], n may be 0), at a multiple of 4 KiB."""
        padding = align(self._offset) - self._offset
        self._append(TENSOR_FILE, torch.zeros(padding, dtype=torch.uint8))
        self._offset += padding
        digest = self._append(TENSOR_FILE, raw)
        self._tensors.append(
            TensorExtent(
                name=name,
                role=role,
                dtype=dtype,
                shape=shape,
                file=1,
                offset=self._offset,
                num_bytes=raw.numel(),
                xxh3=digest,
                scale=scale,
            )
        )
        self._offset += raw.numel()

    def add_side_file(self, path: Path) -> None:
        """Copy a small file byte for byte."""
        raw = files.read_bytes(path)
        self._write_whole(path.name, raw)
        digest = xxhash.xxh3_64_hexdigest(raw)
        self._side.append(SideFile(name=path.name, num_bytes=len(raw), xxh3=digest))

    def seal(self, index_of: Callable[[Written], Index]) -> None:
        """Bring the data to the disk, then write the index, last of all files."""
        sizes = []
        for name, file in self._data.items():
            with self._writing(self.folder / name):
                files.sync_file(file)
                sizes.append(DataFile(name=name, num_bytes=file.tell()))
                file.close()
        written = Written(
            tuple(sizes), tuple(self._records), tuple(self._tensors), tuple(self._side)
        )
        self._write_whole(INDEX_NAME, encode_index(index_of(written)))
        with self._writing(self.folder):
            files.sync_folder(self.folder)

    def publish(self) -> None:
        """Give the sealed folder its name. Raises FileAccess if that is taken by now."""
        with self._writing(self._target):
            if self._target.is_dir():
                self._target.rmdir()  # only an empty folder gives way
            if files.OPEN_FILES_PIN_FOLDERS:
                self._lock.release()
            files.rename(self.folder, self._target)
            self._open = False
            self._lock.release()
            files.sync_folder(self._target.parent)
        with suppress(OSError):  # the model is whole with or without it
            (self._target / LOCK_NAME).unlink()

    def discard(self) -> None:
        """Remove the unfinished output; does nothing once published."""
        if self._open:
            self._open = False
            for file in self._data.values():
                _close_quietly(file)
            if files.OPEN_FILES_PIN_FOLDERS:
                self._lock.release()
            # Under the lock, where that is possible: the next conversion makes this folder anew.
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def _prepare(self) -> None:
        """Take the hidden folder: ours alone and empty but for the lock."""
        _check_free(self._target)
        with self._writing(self.folder):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True)
            entries = {entry.name for entry in self.folder.iterdir()}
            if entries and LOCK_NAME not in entries:
                raise FileAccess(
                    f"{self.folder} is in the way and was not made by a conversion.",
                    "Move or rename that folder, or choose another name.",
                )
            if not self._lock.acquire():
                raise FileAccess(
                    f"Another conversion is writing {self._target.name} right now.",
                    "Wait for it, or choose another name.",
                )
            self._open = True
            for entry in list(self.folder.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != LOCK_NAME:
                    entry.unlink()

    def _append(self, name: str, raw: torch.Tensor) -> str:
        """Write uint8 [n] at a data file's end; returns its xxh3."""
        view = files.byte_view(raw.contiguous())
        with self._writing(self.folder / name):
            self._data[name].write(view)
        self._done += view.nbytes
        return xxhash.xxh3_64_hexdigest(view)

    def _write_whole(self, name: str, raw: bytes) -> None:
        path = self.folder / name
        with self._writing(path):
            file = self._open_file(path)
            try:
                file.write(raw)
                files.sync_file(file)
            finally:
                _close_quietly(file)
        self._done += len(raw)

    @contextmanager
    def _writing(self, path: Path) -> Generator[None, None, None]:
        try:
            yield
        except OSError as problem:
            raise files.write_error(problem, path, self._done, self._need) from problem


def partial_folder(target: Path) -> Path:
    """Return the hidden folder that holds a conversion's output until it is whole."""
    return target.parent / f".{target.name}.partial"


def _check_free(target: Path) -> None:
    """Raise FileAccess unless the target is free: absent, or an empty folder."""
    try:
        taken = target.exists() and not (target.is_dir() and not any(target.iterdir()))
    except OSError as problem:
        raise files.access_error(problem, "read", target) from problem
    if taken:
        raise FileAccess(f"{target} is there already.", "Delete it, or choose another name.")


def _close_quietly(file: BinaryIO) -> None:
    """Close a file whose content no longer matters (or was synced before)."""
    try:
        file.close()
    except OSError:
        return
