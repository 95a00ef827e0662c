"""Paged keys and values of all layers, in one region of device memory that can grow and shrink.

Page-major: page -> layer -> keys, values -> 16 tokens -> heads -> D. So a page is one block of
bytes, a resize only adds or drops blocks at the end, and one page of one layer is contiguous.
Knows no sequences and no free list (`engine.cache.pages`). Memory that was never written is never
read. Called by `engine.layers.attention`; resized by `engine.scheduler` at safe points.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.forward import PAGE_TOKENS, ForwardBatch
from engine.protocol.errors import BudgetError
from kernels.device.base import Device, DeviceMemoryError
from kernels.paged import KvRows
from kernels.reference.dense import put_rows, take_rows

MOVE_BYTES = 32 << 20  # of pages that are copied at once when the pool shrinks


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> int:
    """Return what one token of context takes on the device, over all layers."""
    return num_layers * 2 * num_kv_heads * head_dim * dtype.itemsize


class KvPool:
    """The keys and values of `num_pages` pages of 16 tokens.

    Raises: BudgetError if `num_pages` is not within 1..`max_pages` or the device has no room.
    """

    def __init__(  # noqa: PLR0913 - sizes of one array; a class around them would be read once
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: Device,
        max_pages: int,
        num_pages: int,
    ) -> None:
        self._num_heads, self._head_dim, self._dtype = num_kv_heads, head_dim, dtype
        self._blocks_per_page = 2 * num_layers
        self._max_pages = max_pages
        self.bytes_per_token = kv_bytes_per_token(num_layers, num_kv_heads, head_dim, dtype)
        self.page_bytes = self.bytes_per_token * PAGE_TOKENS
        self._check(num_pages)
        self._blocks = torch.arange(self._blocks_per_page, device=device.torch_device)
        try:
            self._region = device.region(max_pages * self.page_bytes, num_pages * self.page_bytes)
        except DeviceMemoryError as problem:
            raise _no_room(num_pages, problem) from problem
        self._view(num_pages)

    @property
    def dtype(self) -> torch.dtype:
        """Of keys and values; that of the activations."""
        return self._dtype

    @property
    def values(self) -> Tensor:
        """All pages, flat, page by page; valid until the next resize."""
        return self._values

    @property
    def num_layers(self) -> int:
        """Layers in a page."""
        return self._blocks_per_page // 2

    @property
    def num_pages(self) -> int:
        """Pages there are now."""
        return self._num_pages

    @property
    def max_pages(self) -> int:
        """Pages that a resize may ask for."""
        return self._max_pages

    @property
    def used_bytes(self) -> int:
        """Bytes that the pages take."""
        return self._num_pages * self.page_bytes

    def rows(self, batch: ForwardBatch) -> KvRows:
        """Return where this forward writes and reads, for all layers."""
        return KvRows(
            self._blocks, PAGE_TOKENS, batch.kv_slots, batch.page_tables, batch.context_lens
        )

    def write(self, rows: KvRows, layer_id: int, keys_values: Tensor) -> None:
        """Store this forward's tokens. Shapes: [T, 2 * Nkv, D], heads of keys, then of values."""
        width = self._num_heads * self._head_dim
        put_rows(self._tokens, rows.writes[layer_id], keys_values.reshape(-1, width))

    def read(self, rows: KvRows, layer_id: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Return copies of all keys and values of one sequence in order: two of [C, Nkv, D]."""
        taken = take_rows(self._pages, rows.reads[sequence][layer_id])
        keys, values = taken.view(2, -1, self._num_heads, self._head_dim).unbind(0)
        length = rows.lengths[sequence]
        return keys[:length], values[:length]

    def resize(self, num_pages: int, moves: Sequence[tuple[int, int]] = ()) -> None:
        """Change the number of pages; pages below both sizes keep their place and contents.

        `moves` (source, destination), from `PageAllocator.shrink`, are copied before anything is
        given up, so that a refusal leaves every page as it was, the sources included.

        Raises: BudgetError if out of bounds or the device refuses; nothing has changed then.
        """
        self._check(num_pages)
        self._move(moves)
        size = self._num_pages
        del (
            self._values,
            self._tokens,
            self._pages,
        )  # a region that moves can give its old memory back
        try:
            self._region.resize(num_pages * self.page_bytes)
            size = num_pages
        except DeviceMemoryError as problem:
            raise _no_room(num_pages, problem) from problem
        finally:
            self._view(size)

    def close(self) -> None:
        """Give the memory back; the pool is not used afterwards."""
        del self._values, self._tokens, self._pages
        self._region.close()

    def _move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy pages, some at a time: on their way they take device memory once more."""
        whole = self._tokens.view(self._num_pages, -1)
        step = max(1, MOVE_BYTES // self.page_bytes)
        for first in range(0, len(moves), step):
            part = torch.tensor(moves[first : first + step], device=self._blocks.device)
            sources, targets = part.unbind(1)
            whole.index_copy_(0, targets, whole.index_select(0, sources))

    def _view(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._values = self._region.tensor[: num_pages * self.page_bytes].view(self._dtype)
        width = self._num_heads * self._head_dim
        self._tokens = self._values.view(-1, width)
        self._pages = self._values.view(-1, PAGE_TOKENS * width)

    def _check(self, num_pages: int) -> None:
        if not 1 <= num_pages <= self._max_pages:
            raise BudgetError(
                f"{num_pages * PAGE_TOKENS} tokens of context were asked for; the range is "
                f"{PAGE_TOKENS} to {self._max_pages * PAGE_TOKENS}."
            )


def _no_room(num_pages: int, problem: DeviceMemoryError) -> BudgetError:
    return BudgetError(f"No room for {num_pages * PAGE_TOKENS} tokens of context: {problem}.")
