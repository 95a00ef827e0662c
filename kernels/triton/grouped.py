"""All experts of a layer over a prompt chunk: grouped matrix products straight from the records.

Rows are sorted by the *rank* of their expert, the order in which records become available; a table
gives each rank's address, so a record may lie in a slot or in staging. Two products: gate and up
with SwiGLU behind them, then down; at the end a merge in router order, without atomics. A row's
bits depend on its input, its record and the tile only, not on ranks, portions or neighbours.
Weights are exact (FP8 codes become bf16, scales multiply float32 partial sums), sums are float32,
the activation between the products is rounded once. The reference is `kernels.reference.grouped`.
"""

from functools import cache
from typing import Any, NamedTuple

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
SORT_BLOCK = 2048  # routes that a program looks at together
_SORT = CardKernel(jit.sort_routes, BLOCK=SORT_BLOCK, num_warps=8, num_stages=1)


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
        self._products: dict[tuple[Tile, int], _Products] = {}

    def begin(self, x: Tensor, ids: Tensor, table: RecordTable, chunk_tokens: int) -> "TritonTask":
        """Sort a tile's routes. Shapes: x [T, H], ids [T, K] int32."""
        top_k = ids.shape[1]
        average = chunk_tokens * top_k / table.ranks.shape[0]
        tile = choose_tile(average, self._card, self.layout.group)
        products = self._products.get((tile, top_k))
        if products is None:
            products = self._products[tile, top_k] = self._build(tile, top_k)
        return TritonTask(self, x, ids, table, products)

    def _build(self, tile: Tile, top_k: int) -> "_Products":
        layout = self.layout
        facts = {
            **self.record_facts,
            "ROWS": tile.rows,
            "DEPTH": tile.depth,
            "num_warps": tile.warps,
        }
        columns = min(MERGE_COLUMNS, triton.next_power_of_2(layout.hidden))
        return _Products(
            tile.rows,
            triton.cdiv(layout.intermediate, tile.columns),
            triton.cdiv(layout.hidden, tile.down_columns),
            triton.cdiv(layout.hidden, columns),
            _built(jit.gate_up, K=top_k, COLUMNS=tile.columns, num_stages=tile.stages, **facts),
            _built(jit.down, COLUMNS=tile.down_columns, num_stages=tile.down_stages, **facts),
            _built(jit.merge, H=layout.hidden, K=top_k, COLUMNS=columns),
        )


@cache
def _built(kernel: Any, **constants: Any) -> CardKernel:  # noqa: ANN401 - see CardKernel
    """Return the process's one kernel with these constants: a model loaded anew finds it loaded."""
    return CardKernel(kernel, **constants)


class _Products(NamedTuple):
    """What a tile's launches share.

    Attributes:
        rows: of a block.
        across, down_across, merge_across: programs side by side for a block, or a token.
    """

    rows: int
    across: int
    down_across: int
    merge_across: int
    gate_up: CardKernel
    down: CardKernel
    merge: CardKernel


class TritonTask:
    """One token tile; see `kernels.grouped.GroupedTask`. Takes no number from the device."""

    def __init__(
        self,
        kernel: TritonGrouped,
        x: Tensor,
        ids: Tensor,
        table: RecordTable,
        products: _Products,
    ) -> None:
        layout, self._num_routes = kernel.layout, ids.numel()
        self._products = products
        self._x = x.to(kernel.dtype).contiguous()
        self._hidden = x.new_empty(self._num_routes, layout.intermediate, dtype=kernel.dtype)
        self._rows = x.new_empty(self._num_routes, layout.hidden, dtype=torch.float32)
        self._given = (*sort_routes(ids, table.ranks, products.rows), table.addresses)

    def compute(self, first: int, last: int) -> None:
        """Compute the routes to ranks [first, last)."""
        made, given = self._products, self._given
        # As many blocks as there can be; programs behind the last one end at once.
        blocks = self._num_routes // made.rows + min(last - first, self._num_routes)
        made.gate_up.launch((blocks * made.across,), self._x, *given, self._hidden, first, last)
        made.down.launch(
            (blocks * made.down_across,), self._hidden, *given, self._rows, first, last
        )

    def merge(self, weights: Tensor, out: Tensor) -> None:
        """Add each token's weighted rows to `out` [T, H]."""
        made = self._products
        made.merge.launch((len(out), made.merge_across), self._rows, weights.contiguous(), out)


class SortedRoutes(NamedTuple):
    """A tile's R routes, sorted by the rank of their expert, and the blocks of rows they make.

    Attributes:
        order: int32 [R]: the route (token * K + k) of each sorted row.
        row_starts: int32 [E + 1]: first sorted row of each rank.
        block_starts: int32 [E + 1]: first block of each rank.
        block_ranks: int32 [blocks there can be]: the rank of each block that there is.
    """

    order: Tensor
    row_starts: Tensor
    block_starts: Tensor
    block_ranks: Tensor


def sort_routes(ids: Tensor, ranks: Tensor, block_rows: int) -> SortedRoutes:
    """Sort without a word from the device. Shapes: ids [T, K] int32, ranks int32 [E]."""
    num_routes, num_ranks = ids.numel(), len(ranks)
    most = num_routes // block_rows + min(num_ranks, num_routes)
    made = SortedRoutes(
        *(ids.new_empty(size) for size in (num_routes, num_ranks + 1, num_ranks + 1, most))
    )
    _SORT.launch((num_ranks + 1,), ids.contiguous(), ranks, made.order, made.row_starts, num_routes)
    _cut(num_ranks).launch((1,), *made[1:], num_ranks, block_rows)
    return made


@cache
def _cut(num_ranks: int) -> CardKernel:
    return CardKernel(jit.cut_blocks, SIZE=triton.next_power_of_2(num_ranks + 1), num_stages=1)
