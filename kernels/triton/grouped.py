"""All experts of a layer over a prompt chunk: grouped matrix products straight from the records.

Rows are sorted by the *rank* of their expert, the order in which records become available; a table
gives each rank's address, so a record may lie in a slot or in staging. Two products: gate and up
with SwiGLU behind them, then down; at the end a merge in router order, without atomics. A row's
bits depend on its input, its record and the tile only, not on ranks, portions or neighbours.
Weights are exact (FP8 codes become bf16, scales multiply float32 partial sums), sums are float32,
the activation between the products is rounded once. The reference is `kernels.reference.grouped`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.grouped import RecordTable
from kernels.layouts import RecordLayout
from kernels.triton import grouped_jit as jit
from kernels.triton.device import card, interpreted
from kernels.triton.launch import CardKernel
from kernels.triton.tiles import Tile, choose_tile

MERGE_COLUMNS = 1024
_GATE_UP, _DOWN, _MERGE = CardKernel(jit.gate_up), CardKernel(jit.down), CardKernel(jit.merge)


class TritonGrouped:
    """See `kernels.grouped.GroupedKernel`. `dtype` is bfloat16 on a card."""

    def __init__(self, layout: RecordLayout, device: torch.device, dtype: torch.dtype) -> None:
        self.layout, self.dtype = layout, dtype
        self._card = card(device)
        row_bytes = layout.hidden * layout.value_bytes
        self.record_facts = {
            "H": layout.hidden,
            "I": layout.intermediate,
            "UNIT_BYTES": layout.unit_bytes,
            "GROUP": layout.group,
            # What the hidden size leaves of the 16 bytes that a record and its units start at.
            "ALIGN": next(size for size in (16, 8, 4, 2, 1) if row_bytes % size == 0),
            "NATIVE": self._card.native_fp8,
            # The interpreter multiplies bf16 wrongly.
            "DOT": tl.float32 if interpreted() else tl.bfloat16,
        }

    def begin(self, x: Tensor, ids: Tensor, table: RecordTable, chunk_tokens: int) -> "TritonTask":
        """Sort a tile's routes. Shapes: x [T, H], ids [T, K] int32."""
        average = chunk_tokens * ids.shape[1] / table.ranks.shape[0]
        tile = choose_tile(average, self._card, self.layout.group)
        return TritonTask(self, x, ids, table, tile)


class TritonTask:
    """One token tile; see `kernels.grouped.GroupedTask`. Takes no number from the device."""

    def __init__(
        self, kernel: TritonGrouped, x: Tensor, ids: Tensor, table: RecordTable, tile: Tile
    ) -> None:
        layout, self._num_routes = kernel.layout, ids.numel()
        self._layout, self._tile, self._top_k = layout, tile, ids.shape[1]
        self._addresses = table.addresses
        self._facts = {
            **kernel.record_facts,
            "ROWS": tile.rows,
            "DEPTH": tile.depth,
            "num_warps": tile.warps,
        }
        self._x = x.to(kernel.dtype).contiguous()
        self._hidden = x.new_empty(self._num_routes, layout.intermediate, dtype=kernel.dtype)
        self._rows = x.new_empty(self._num_routes, layout.hidden, dtype=torch.float32)
        self._sorted = sort_routes(ids, table.ranks, tile.rows)

    def compute(self, first: int, last: int) -> None:
        """Compute the routes to ranks [first, last)."""
        layout, tile = self._layout, self._tile
        # As many blocks as there can be; programs behind the last one end at once.
        blocks = self._num_routes // tile.rows + min(last - first, self._num_routes)
        given = (*self._sorted, self._addresses)
        grid = (blocks * triton.cdiv(layout.intermediate, tile.columns),)
        _GATE_UP.launch(
            grid,
            self._x,
            *given,
            self._hidden,
            first,
            last,
            K=self._top_k,
            COLUMNS=tile.columns,
            num_stages=tile.stages,
            **self._facts,
        )
        grid = (blocks * triton.cdiv(layout.hidden, tile.down_columns),)
        _DOWN.launch(
            grid,
            self._hidden,
            *given,
            self._rows,
            first,
            last,
            COLUMNS=tile.down_columns,
            num_stages=tile.down_stages,
            **self._facts,
        )

    def merge(self, weights: Tensor, out: Tensor) -> None:
        """Add each token's weighted rows to `out` [T, H]."""
        hidden = self._layout.hidden
        columns = min(MERGE_COLUMNS, triton.next_power_of_2(hidden))
        grid = (out.shape[0], triton.cdiv(hidden, columns))
        _MERGE.launch(
            grid,
            self._rows,
            weights.contiguous(),
            out,
            H=hidden,
            K=self._top_k,
            COLUMNS=columns,
        )


class SortedRoutes(NamedTuple):
    """A tile's R routes, sorted by the rank of their expert, and the blocks of rows they make.

    Attributes:
        order: int32 [R]: the route (token * K + k) of each sorted row.
        row_starts: int32 [E + 1]: first sorted row of each rank.
        block_starts: int32 [E + 1]: first block of each rank.
        block_ranks: int32 [blocks there can be]: the rank of each block.
    """

    order: Tensor
    row_starts: Tensor
    block_starts: Tensor
    block_ranks: Tensor


def sort_routes(ids: Tensor, ranks: Tensor, block_rows: int) -> SortedRoutes:
    """Sort without a word from the device. Shapes: ids [T, K] int32, ranks int32 [E]."""
    num_routes, num_ranks = ids.numel(), ranks.shape[0]
    keys, order = ranks.index_select(0, ids.reshape(-1)).sort(stable=True)
    numbers = torch.arange(num_ranks + 1, dtype=torch.int32, device=ids.device)
    row_starts = torch.searchsorted(keys, numbers, out_int32=True)
    blocks = (row_starts.diff() + (block_rows - 1)).div_(block_rows, rounding_mode="floor")
    block_starts = torch.zeros_like(row_starts)
    torch.cumsum(blocks, 0, dtype=torch.int32, out=block_starts[1:])
    most = num_routes // block_rows + min(num_ranks, num_routes)
    numbers = torch.arange(most, dtype=torch.int32, device=ids.device)
    block_ranks = torch.searchsorted(block_starts[1:], numbers, right=True, out_int32=True)
    return SortedRoutes(order.to(torch.int32), row_starts, block_starts, block_ranks)
