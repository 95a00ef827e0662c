"""One expert's work from its record, in plain torch: the truth for every fast expert kernel.

Knows layouts, not models, caches or who calls. A route's row is always computed by `row`, with the
same shapes and no BLAS (products, then a sum along one axis), so its bits depend on the record and
the input alone: not on where the record lies, on other rows, or on the number of threads. `rows`
is the grouped form for prefill (matrix products); it agrees with `row` within tolerance only.
"""

import torch
from torch.nn.functional import silu

from kernels.layouts import UNIT_ROWS, RecordLayout


class ReferenceExperts:
    """Computes with one expert at a time: `load` a record, then `row` or `rows`.

    Holds scratch of three dequantised matrices, so every thread needs an object of its own.
    `dtype` is what the expert's activation is rounded to once, between the two products.
    """

    def __init__(
        self,
        layout: RecordLayout,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        units, hidden, groups = layout.num_units, layout.hidden, layout.scale_groups
        self.layout = layout
        self._dtype = dtype
        # Whole scale blocks stay out of the weights and multiply partial sums instead. A ragged
        # last block is multiplied into the weights at load.
        self._ragged = groups > 0 and hidden % layout.group != 0
        num = groups if groups and not self._ragged else 1
        self._blocks = (num, hidden // num)
        self._values = torch.empty(units, 3 * UNIT_ROWS, hidden, device=device)
        shaped = self._values.view(units, 3 * UNIT_ROWS, *self._blocks)
        self._gate_up, self._down = shaped[:, : 2 * UNIT_ROWS], shaped[:, 2 * UNIT_ROWS :]
        self._scales: torch.Tensor | None = None  # [U, 3, N] of the loaded record
        self._products = torch.empty_like(self._gate_up, memory_format=torch.contiguous_format)
        self._columns = torch.empty_like(self._down, memory_format=torch.contiguous_format)
        self._decoder = _Fp8Decoder(layout, device) if layout.encoding == "fp8_block" else None

    def load(self, record: torch.Tensor) -> None:
        """Unpack a record into scratch; its memory is free again when the call has run.

        Shapes: record uint8 [record_bytes] on this object's device.
        """
        layout = self.layout
        units = record[: layout.num_units * layout.unit_bytes].view(-1, layout.unit_bytes)
        stored = units[:, : layout.unit_value_bytes]
        if self._decoder is None:
            self._values.copy_(stored.view(torch.bfloat16).view(self._values.shape))
            return
        self._decoder.decode(stored, self._values)
        end = layout.unit_value_bytes + layout.unit_scale_bytes
        scales = units[:, layout.unit_value_bytes : end].view(torch.float32)
        # A copy: the record's memory may be overwritten before the row is computed.
        self._scales = scales.clone().view(layout.num_units, 3, layout.scale_groups)
        if self._ragged:
            self._multiply(self._scales)
            self._scales = None

    def row(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loaded expert's output for one token.

        Shapes: x [H] -> [H] float32.
        """
        units = self.layout.num_units
        torch.mul(self._gate_up, x.to(torch.float32).view(self._blocks), out=self._products)
        partial = self._products.sum(-1).view(units, UNIT_ROWS, 2, -1)
        if self._scales is not None:
            partial = partial * self._scales[:, None, :2]
        gate, up = partial.sum(-1).unbind(-1)
        weight = self._activate(gate, up).unsqueeze(-1)  # [U, 16, 1]
        if self._scales is not None:
            weight = weight * self._scales[:, 2:]
        torch.mul(self._down, weight.unsqueeze(-1), out=self._columns)
        return self._columns.view(self.layout.intermediate, -1).sum(0)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loaded expert's output for its tokens of a prompt chunk.

        Shapes: x [R, H] -> [R, H] float32.
        """
        if self._scales is not None:
            self._multiply(self._scales)
            self._scales = None
        hidden = self.layout.hidden
        gate_up = self._values[:, : 2 * UNIT_ROWS].reshape(-1, hidden)
        down = self._values[:, 2 * UNIT_ROWS :].reshape(-1, hidden)
        both = (x.to(torch.float32) @ gate_up.t()).view(-1, self.layout.intermediate, 2)
        return self._activate(both[..., 0], both[..., 1]) @ down

    def _activate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """SwiGLU, rounded once to the activation's dtype; float32."""
        return (silu(gate) * up).to(self._dtype).to(torch.float32)

    def _multiply(self, scales: torch.Tensor) -> None:
        """Multiply scales [U, 3, N] into the values, each block's along H."""
        hidden = self.layout.hidden
        wide = scales.repeat_interleave(self.layout.group, dim=-1)[..., :hidden]
        gate_up = self._values[:, : 2 * UNIT_ROWS].view(-1, UNIT_ROWS, 2, hidden)
        gate_up.mul_(wide[:, None, :2])
        self._values[:, 2 * UNIT_ROWS :].mul_(wide[:, 2:])


class _Fp8Decoder:
    """Exact e4m3 -> float32, all 256 codes.

    On a CPU torch converts one value at a time; a table of byte pairs is ten times faster (110,592
    values: 29 us against 290 us, one Zen 5 core). Elsewhere torch's own conversion is used.
    """

    def __init__(self, layout: RecordLayout, device: torch.device) -> None:
        self._table: torch.Tensor | None = None
        if device.type != "cpu":
            return
        pairs = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.uint8)
        # Two float32 travel as one int64; both ends of the table keep the machine's byte order.
        self._table = pairs.view(torch.float8_e4m3fn).to(torch.float32).view(torch.int64)
        num_pairs = layout.unit_value_bytes // 2
        self._ids = torch.empty(layout.num_units, num_pairs, dtype=torch.int32)

    def decode(self, stored: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values of `stored`, uint8 [U, unit_value_bytes], into float32 `out`."""
        if self._table is None:
            out.copy_(stored.view(torch.float8_e4m3fn).view(out.shape))
            return
        self._ids.copy_(stored.view(torch.uint16))
        pairs = out.view(-1).view(torch.int64)
        torch.index_select(self._table, 0, self._ids.view(-1), out=pairs)


def expert_row(
    layout: RecordLayout,
    record: torch.Tensor,
    x: torch.Tensor,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return one route's row: gate, up, SwiGLU, one rounding to `dtype`, down.

    Shapes: record uint8 [record_bytes], x [H] -> [H] float32. Builds its scratch anew: for tests
    and tools; loops keep a `ReferenceExperts`.
    """
    kernel = ReferenceExperts(layout, record.device, dtype)
    kernel.load(record)
    return kernel.row(x)


def expert_rows(
    layout: RecordLayout,
    record: torch.Tensor,
    x: torch.Tensor,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the rows of all tokens of one expert, as prefill computes them.

    Shapes: record uint8 [record_bytes], x [R, H] -> [R, H] float32.
    """
    kernel = ReferenceExperts(layout, record.device, dtype)
    kernel.load(record)
    return kernel.rows(x)
