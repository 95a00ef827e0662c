"""Reads an FTW folder: facts, dense tensors, and the expert bank straight into the host pool.

Nothing is mapped: plain large reads into the caller's memory, each record and tensor held against
its xxh3. The format is in `engine.checkpoint.index`. Knows no model family and no device.
Called by `engine.loader` and `engine.checkpoint.verify`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import xxhash

from engine.checkpoint.dtypes import as_tensor
from engine.checkpoint.files import byte_view, read_bytes, read_exactly, read_extent, reading
from engine.checkpoint.index import AGAIN, INDEX_NAME, Index, TensorExtent, decode_index
from engine.protocol.errors import Cancelled, CorruptCheckpoint, FileAccess, UnsupportedCheckpoint
from engine.quant.registry import get_format
from kernels.layouts import RecordLayout
from kernels.weights import DenseWeight

CHUNK_BYTES = 16 << 20
"""Bytes per read: large enough for any disk's full rate, small enough for a prompt cancel."""

READERS = 4
"""Chunks read and checked at once: one thread reaches neither a fast SSD's rate nor memory's."""


class FtwReader:
    """One FTW folder, its index read and checked against the files' lengths.

    Raises (constructor): UnsupportedCheckpoint (not converted, foreign, another version),
        CorruptCheckpoint (damaged index, file missing or cut off), FileAccess. Each names the file.

    Attributes:
        folder: where it lies.
        index: everything `model.ftw` says.
        layout: of one expert's record.
    """

    def __init__(self, folder: Path, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.folder = folder
        self._chunk_bytes = chunk_bytes
        if not (folder / INDEX_NAME).is_file():
            raise _no_index(folder)
        self.index: Index = decode_index(read_bytes(folder / INDEX_NAME), folder)
        self.layout: RecordLayout = self.index.bank.layout.layout()
        self._tensors = {tensor.name: tensor for tensor in self.index.tensors}
        for file in self.index.files:
            _check_length(folder / file.name, file.num_bytes)

    @property
    def config(self) -> dict[str, Any]:
        """The checkpoint's own config.json."""
        return self.index.config

    @property
    def model_type(self) -> str:
        """The name of the model family."""
        return self.index.model_type

    @property
    def quant(self) -> str:
        """The name of the quant format."""
        return self.index.quant

    @property
    def name(self) -> str:
        """The model's name, to show."""
        return self.index.name

    @property
    def num_moe_layers(self) -> int:
        """Layers that have experts."""
        return len(self.index.bank.layer_ids)

    @property
    def num_experts(self) -> int:
        """E, experts per layer."""
        return self.index.bank.num_experts

    @property
    def num_records(self) -> int:
        """Experts over all layers."""
        return self.num_moe_layers * self.num_experts

    @property
    def record_bytes(self) -> int:
        """Bytes of one expert's record."""
        return self.layout.record_bytes

    @property
    def pool_bytes(self) -> int:
        """Bytes of all records: what the host pool takes."""
        return self.num_records * self.record_bytes

    @property
    def dense_bytes(self) -> int:
        """Stored bytes of dense weights and their scales; auxiliary tensors do not count."""
        return sum(t.num_bytes for t in self.index.tensors if t.role != "aux")

    @property
    def dense_values(self) -> int:
        """Values of all dense weights, scales and auxiliary tensors aside."""
        return sum(math.prod(t.shape) for t in self.index.tensors if t.role == "dense")

    def dense_names(self) -> tuple[str, ...]:
        """Return the names of dense weights, without scales and auxiliary tensors."""
        return tuple(t.name for t in self.index.tensors if t.role == "dense")

    def aux_names(self) -> tuple[str, ...]:
        """Return the names of tensors that were kept though nothing loads them."""
        return tuple(t.name for t in self.index.tensors if t.role == "aux")

    def raw(self, name: str) -> torch.Tensor:
        """Read any tensor's bytes, checked: uint8 [n].

        Raises: CorruptCheckpoint naming file and tensor; FileAccess.
        """
        extent = self._extent(name)
        path = self.folder / self.index.files[extent.file].name
        raw = read_extent(path, extent.offset, extent.num_bytes)
        if xxhash.xxh3_64_hexdigest(byte_view(raw)) != extent.xxh3:
            raise _flipped(path, f"tensor {name}")
        return raw

    def dense(self, name: str) -> torch.Tensor:
        """Read a tensor in its stored dtype. Raises as `raw`."""
        extent = self._extent(name)
        return as_tensor(self.raw(name), extent.dtype, extent.shape)

    def weight(self, name: str) -> DenseWeight:
        """Read a dense weight with its scales, if it has any. Raises as `raw`."""
        scale = self._extent(name).scale
        quant = get_format(self.quant, self.layout.group)
        return quant.dense(self.dense(name), self.dense(scale) if scale else None)

    def read_pool(
        self,
        out: torch.Tensor,
        progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Read every expert into the host pool: in order, in place, checked per record.

        Shapes: out uint8 [num_records, record_bytes], contiguous, on the CPU (pinned or not);
        record (layer, expert) is row layer * num_experts + expert.
        Units: progress(done_bytes, total_bytes), after each chunk.
        Raises: Cancelled; CorruptCheckpoint naming file and record; FileAccess; ValueError if
            `out` has another shape.
        """
        shape = (self.num_records, self.record_bytes)
        if tuple(out.shape) != shape or out.dtype != torch.uint8 or not out.is_contiguous():
            raise ValueError(f"the pool must be contiguous uint8 {list(shape)}")
        done = 0
        for chunk in self._read_chunks(lambda first, count: out[first : first + count], cancelled):
            done += chunk
            progress(done, self.pool_bytes)

    def check_pool(
        self, progress: Callable[[int, int], None], cancelled: Callable[[], bool]
    ) -> None:
        """Read and check every expert in a few chunks of memory. Raises as `read_pool`."""

        def scratch(_: int, count: int) -> torch.Tensor:
            return torch.empty(count, self.record_bytes, dtype=torch.uint8)

        done = 0
        for chunk in self._read_chunks(scratch, cancelled):
            done += chunk
            progress(done, self.pool_bytes)

    @property
    def _chunk_records(self) -> int:
        return min(self.num_records, max(1, self._chunk_bytes // self.record_bytes))

    def _read_chunks(
        self, place: Callable[[int, int], torch.Tensor], cancelled: Callable[[], bool]
    ) -> Iterator[int]:
        """Fill place(first record, count) chunk by chunk; yields the bytes of each checked one.

        In order, with up to `READERS` chunks under way; `place` is called by their threads.
        """

        def read(first: int) -> int:
            count = min(self._chunk_records, self.num_records - first)
            return self._read_chunk(first, place(first, count))

        firsts = range(0, self.num_records, self._chunk_records)
        at_once = max(1, min(READERS, len(firsts) // READERS))
        waiting: deque[Future[int]] = deque()
        with ThreadPoolExecutor(at_once, "read") as readers:
            for first in firsts:
                if cancelled():
                    raise Cancelled("Reading the model was cancelled.")
                waiting.append(readers.submit(read, first))
                if len(waiting) == at_once:
                    yield waiting.popleft().result()
            for chunk in waiting:
                yield chunk.result()

    def _read_chunk(self, first: int, out: torch.Tensor) -> int:
        """Read and check the records from `first` on that fill `out`; returns their bytes."""
        bank = self.index.bank
        path = self.folder / self.index.files[bank.file].name
        view = byte_view(out)
        with reading(path), path.open("rb", buffering=0) as file:
            file.seek(bank.offset + first * self.record_bytes)
            read_exactly(file, view, path)
        self._check_records(path, first, view)
        return view.nbytes

    def _check_records(self, path: Path, first: int, view: memoryview) -> None:
        for index in range(view.nbytes // self.record_bytes):
            record = view[index * self.record_bytes : (index + 1) * self.record_bytes]
            row = first + index
            if xxhash.xxh3_64_hexdigest(record) != self.index.bank.record_xxh3[row]:
                layer, expert = divmod(row, self.num_experts)
                where = f"expert {expert} of layer {self.index.bank.layer_ids[layer]}"
                raise _flipped(path, f"record {row} ({where})")

    def _extent(self, name: str) -> TensorExtent:
        try:
            return self._tensors[name]
        except KeyError:
            raise CorruptCheckpoint(
                f"{INDEX_NAME} in {self.folder} has no tensor {name}.", AGAIN
            ) from None


def _check_length(path: Path, need: int) -> None:
    if not path.is_file():
        raise CorruptCheckpoint(f"{path.name} is missing in {path.parent}.", AGAIN)
    with reading(path):
        have = path.stat().st_size
    if have != need:
        state = "cut off" if have < need else "too long"
        raise CorruptCheckpoint(
            f"{path.name} in {path.parent} is {state}: {have} bytes instead of {need}.", AGAIN
        )


def _no_index(folder: Path) -> UnsupportedCheckpoint | FileAccess:
    if not folder.is_dir():
        return FileAccess(f"There is no folder {folder}.", "Choose a converted model's folder.")
    if (folder / "freetoken_weight.json").is_file():
        return UnsupportedCheckpoint(
            f"{folder} is a FreeToken v1 folder, which cannot be read yet.",
            "Convert the model again from its original safetensors folder.",
        )
    if (folder / "config.json").is_file():
        return UnsupportedCheckpoint(
            f"{folder} is not converted: it has no {INDEX_NAME}.", "Import this folder first."
        )
    return UnsupportedCheckpoint(
        f"{folder} is no FreeToken model: it has no {INDEX_NAME}.",
        "Choose a converted model's folder.",
    )


def _flipped(path: Path, what: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"{path.name} in {path.parent} is damaged: the checksum of {what} does not match.", AGAIN
    )
