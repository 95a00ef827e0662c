"""One safetensors file: its header, checked against the file's length before anything is read.

Layout: u64 little-endian header length, JSON header (name -> dtype, shape, data_offsets), data.
Tensors are read with plain reads instead of the library's memory map: a map turns a bad disk or a
vanished drive into a killed process, and holds files open on Windows. Tests hold both to the same
bytes. Called by `engine.checkpoint.source`.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.checkpoint.dtypes import expected_bytes
from engine.checkpoint.files import reading, size_text
from engine.protocol.errors import CorruptCheckpoint

MAX_HEADER_BYTES = 100_000_000
AGAIN = "Download this file again."
_LFS = b"version https://git-lfs"


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies in a file, and what it is; `dtype` by safetensors' names."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """A file's tensors by name, and the raw header for a fingerprint."""

    tensors: dict[str, StoredTensor]
    raw: bytes
    file_bytes: int


def read_header(file: Path) -> ShardHeader:
    """Read and check one file's header; reads no weights.

    Raises: CorruptCheckpoint naming the file (cut off, damaged header, odd extents) and what to
        do; FileAccess if it cannot be read.
    """
    with reading(file), file.open("rb") as handle:
        file_bytes = file.stat().st_size
        start = handle.read(8)
        if (start + handle.read(len(_LFS) - 8)).startswith(_LFS):
            raise CorruptCheckpoint(
                f"{file.name} is only a Git LFS pointer, not the weights.",
                "Fetch the real files (git lfs pull), or download the model again.",
            )
        if len(start) < 8:
            raise _cut_off(file, file_bytes, 8)
        (header_bytes,) = struct.unpack("<Q", start)
        if header_bytes > MAX_HEADER_BYTES:
            raise _damaged(file, "its length is impossible")
        if 8 + header_bytes > file_bytes:
            raise _cut_off(file, file_bytes, 8 + header_bytes)
        handle.seek(8)
        raw = handle.read(header_bytes)
    tensors = _parse(file, raw)
    _check_extents(file, tensors, 8 + header_bytes, file_bytes)
    return ShardHeader(tensors, raw, file_bytes)


def _parse(file: Path, raw: bytes) -> dict[str, StoredTensor]:
    try:
        entries: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        entries.pop("__metadata__", None)
        known = msgspec.convert(entries, dict[str, _Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise _damaged(file, str(problem)) from problem
    tensors: dict[str, StoredTensor] = {}
    for name, entry in known.items():
        begin, end = entry.data_offsets
        if begin < 0 or end < begin or any(size < 0 for size in entry.shape):
            raise _damaged(file, f"tensor {name} has impossible offsets or sizes")
        need = expected_bytes(entry.dtype, entry.shape)
        if need is not None and need != end - begin:
            raise _damaged(file, f"tensor {name} has {end - begin} bytes instead of {need}")
        offset = 8 + len(raw) + begin
        tensors[name] = StoredTensor(name, entry.dtype, entry.shape, file, offset, end - begin)
    return tensors


def _check_extents(
    file: Path, tensors: dict[str, StoredTensor], data_start: int, file_bytes: int
) -> None:
    position = data_start
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.num_bytes)):
        if tensor.offset != position:
            raise _damaged(file, f"the extent of tensor {tensor.name} does not follow the last one")
        position += tensor.num_bytes
    if position > file_bytes:
        raise _cut_off(file, file_bytes, position)
    if position < file_bytes:
        extra = size_text(file_bytes - position)
        raise CorruptCheckpoint(f"{file.name} has {extra} more than its header describes.", AGAIN)


def _cut_off(file: Path, have: int, need: int) -> CorruptCheckpoint:
    held, whole = size_text(have), size_text(need)
    if held == whole:
        held, whole = f"{have} bytes", f"{need} bytes"
    return CorruptCheckpoint(f"{file.name} is cut off: it holds {held} of at least {whole}.", AGAIN)


def _damaged(file: Path, why: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"The header of {file.name} is damaged: {why.rstrip('.')}.", AGAIN)
