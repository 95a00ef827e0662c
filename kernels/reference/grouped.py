"""All experts of a layer over a prompt chunk, in plain torch: the truth for the fast ones.

Any device. An expert's rows are one matrix product over all of its tokens, whatever portion its
record came in; so bits depend on routes and records, not on where those lie.
"""

import torch
from torch import Tensor
from torch.nn.functional import silu

from kernels.grouped import RecordTable
from kernels.layouts import RecordLayout
from kernels.reference.records import unpack_record
from kernels.reference.routing import merge_routes


class ReferenceGrouped:
    """See `kernels.grouped.GroupedKernel`. Computes in float32 on rounded inputs."""

    def __init__(self, layout: RecordLayout, device: torch.device, dtype: torch.dtype) -> None:
        self._layout, self._dtype = layout, dtype
        del device  # that of the records

    def begin(
        self, x: Tensor, ids: Tensor, table: RecordTable, chunk_tokens: int
    ) -> "ReferenceTask":
        """Sort a tile's routes. Shapes: x [T, H], ids [T, K] int32."""
        del chunk_tokens  # launch shapes do not matter here
        return ReferenceTask(self._layout, self._dtype, x, ids, table)


class ReferenceTask:
    """One token tile; see `kernels.grouped.GroupedTask`."""

    def __init__(
        self, layout: RecordLayout, dtype: torch.dtype, x: Tensor, ids: Tensor, table: RecordTable
    ) -> None:
        num_experts = table.ranks.shape[0]
        self._layout, self._dtype, self._table = layout, dtype, table
        self._x, self._top_k = x.to(dtype).float(), ids.shape[1]
        keys = table.ranks.index_select(0, ids.reshape(-1).to(torch.int64))
        self._order = torch.argsort(keys, stable=True)
        counts = torch.bincount(keys, minlength=num_experts).tolist()
        self._routes = torch.split(self._order, counts)
        self._rows = x.new_empty(keys.shape[0], layout.hidden, dtype=torch.float32)

    def compute(self, first: int, last: int) -> None:
        """Compute the routes to ranks [first, last)."""
        for rank in range(first, last):
            routes = self._routes[rank]
            if not routes.numel():
                continue
            gate, up, down = unpack_record(self._layout, self._table.view(rank))
            x = self._x[routes // self._top_k]
            hidden = (silu(x @ gate.t()) * (x @ up.t())).to(self._dtype).float()
            self._rows[routes] = hidden @ down

    def merge(self, weights: Tensor, out: Tensor) -> None:
        """Add each token's weighted rows to `out` [T, H]."""
        rows = self._rows.view(-1, self._top_k, self._layout.hidden)
        out.add_(merge_routes(rows, weights))
