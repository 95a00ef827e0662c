"""Experts' work from their records, in plain torch: the truth for every fast expert kernel.

Knows layouts, not models, caches or who calls. A route's row is computed without BLAS: products,
then sums along one axis of that row alone. So its bits depend on the record and the input only: not
on where the record lies, on what is computed beside it, or on the number of threads. `rows` is the
grouped form for prefill (matrix products); it agrees with `row` within tolerance only.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import silu

from kernels.layouts import UNIT_ROWS, RecordLayout

# Records unpacked together: fewer, larger calls, but scratch must stay within a core's caches.
MAX_RECORDS = 8
SCRATCH_BYTES = 4 << 20
FP8_SCALE = 256.0  # between the exponent biases of e4m3 and a half: 2 ** (15 - 7)


class ReferenceExperts:
    """Computes with some experts at a time: `load` their records, then `row`, `each` or `rows`.

    Holds scratch, so every thread needs an object of its own. `dtype` is what an expert's
    activation is rounded to once, between the two products.

    Attributes:
        capacity: records that one `load` takes.
    """

    def __init__(
        self,
        layout: RecordLayout,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        expert_bytes = 3 * layout.intermediate * layout.hidden * 4
        self.layout = layout
        self.capacity = max(1, min(MAX_RECORDS, SCRATCH_BYTES // expert_bytes))
        self._dtype = dtype
        self._scratch = _Scratch(layout, self.capacity, device)
        self._cuts: dict[tuple[int, int], _Cut] = {}
        self._num_loaded = 0
        # Whole scale blocks stay out of the weights and multiply partial sums instead. Once they
        # are in the weights (a ragged last block at load, all of them in prefill) they are done.
        self._scales_apart = False

    def load(self, records: Sequence[torch.Tensor]) -> None:
        """Unpack up to `capacity` records; their memory is free again when the call has run.

        Shapes: each uint8 [record_bytes], on this object's device.
        """
        layout, self._num_loaded = self.layout, len(records)
        cut = self._cut(0, len(records))
        size = cut.stored.shape[1]
        torch.stack([record[:size] for record in records], out=cut.stored)
        if not layout.group:
            cut.values.copy_(cut.weights.view(layout.value_dtype))
            return
        _decode_fp8(cut)
        torch.mul(cut.stored_scales, FP8_SCALE, out=cut.scales)
        self._scales_apart = True
        if layout.hidden % layout.group:
            self._multiply_scales()

    def row(self, x: torch.Tensor, place: int = 0) -> torch.Tensor:
        """Return one token's row of the loaded record number `place`.

        Shapes: x [H] -> [H] float32.
        """
        return self._compute(x, self._cut(place, place + 1))[0]

    def each(self, x: torch.Tensor) -> torch.Tensor:
        """Return one token's row of every loaded record; bit for bit what `row` gives for each.

        Shapes: x [H] -> [B, H] float32.
        """
        return self._compute(x, self._cut(0, self._num_loaded))

    def into(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        routes: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        """Write each loaded record's rows of some tokens; bit for bit what `row` gives.

        `routes` names the (token, k) of each record.

        Shapes: x [T, H] -> out[token, k] of out [T, K, H] float32.
        """
        if len(x) == 1:  # one call for all of them
            for row, ((token, k),) in zip(self.each(x[0]).unbind(0), routes, strict=True):
                out[token, k].copy_(row)
            return
        for place, chosen in enumerate(routes):
            for token, k in chosen:
                out[token, k].copy_(self.row(x[token], place))

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Return the first loaded expert's rows for its tokens of a prompt chunk.

        Multiplies scales into the weights: `load` again before `row` or `each`.

        Shapes: x [R, H] -> [R, H] float32.
        """
        if self._scales_apart:
            self._multiply_scales()
        hidden, rows = self.layout.hidden, self._scratch.values[0]
        gate_up = rows[:, : 2 * UNIT_ROWS].reshape(-1, hidden)
        down = rows[:, 2 * UNIT_ROWS :].reshape(-1, hidden)
        both = (x.to(torch.float32) @ gate_up.t()).view(-1, self.layout.intermediate, 2)
        return self._activate(both[..., 0], both[..., 1]) @ down

    def _compute(self, x: torch.Tensor, cut: "_Cut") -> torch.Tensor:
        """Rows of some loaded records for one token: [H] -> [B, H]."""
        torch.mul(cut.gate_up, x.to(torch.float32).view(cut.blocks), out=cut.products)
        partial = cut.products.sum(-1)  # [B, U, 32, N]
        if self._scales_apart:
            partial = partial.view(cut.pairs) * cut.gate_up_scales
        gate, up = partial.sum(-1).view(cut.pairs[:4]).unbind(-1)
        weight = self._activate(gate, up).unsqueeze(-1)  # [B, U, 16, 1]
        if self._scales_apart:
            weight = weight * cut.down_scales
        torch.mul(cut.down, weight.unsqueeze(-1), out=cut.columns)
        return cut.flat_columns.sum(1)

    def _activate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """SwiGLU, rounded once to the activation's dtype; float32."""
        hidden = silu(gate) * up
        return hidden if self._dtype == torch.float32 else hidden.to(self._dtype).float()

    def _multiply_scales(self) -> None:
        """Multiply the scales into the values, each block's along H."""
        cut, hidden = self._cut(0, self._num_loaded), self.layout.hidden
        wide = cut.scales.repeat_interleave(self.layout.group, dim=-1)[..., :hidden]
        values = self._scratch.values[: self._num_loaded]
        gate_up = values[:, :, : 2 * UNIT_ROWS].view(*cut.pairs[:4], hidden)
        gate_up.mul_(wide[:, :, None, :2])
        values[:, :, 2 * UNIT_ROWS :].mul_(wide[:, :, 2:])
        self._scales_apart = False

    def _cut(self, first: int, last: int) -> "_Cut":
        """Return the views for loaded records `first` to `last`; a decode step uses few of them."""
        cut = self._cuts.get((first, last))
        if cut is None:
            cut = self._cuts[first, last] = _Cut(self.layout, self._scratch, first, last)
        return cut


class _Scratch:
    """Memory for `capacity` unpacked records, and for the products of one token with them."""

    def __init__(self, layout: RecordLayout, capacity: int, device: torch.device) -> None:
        units, hidden = layout.num_units, layout.hidden
        lead, codes = (capacity, units), (capacity, units, layout.unit_value_bytes)
        self.stored = torch.empty(
            capacity, units * layout.unit_bytes, dtype=torch.uint8, device=device
        )
        self.values = torch.empty(*lead, 3 * UNIT_ROWS, hidden, device=device)
        self.scales = torch.empty(*lead, 3, layout.scale_groups, device=device)
        self.products = torch.empty(*lead, 2 * UNIT_ROWS, hidden, device=device)
        self.columns = torch.empty(*lead, UNIT_ROWS, hidden, device=device)
        codes = codes if layout.group and device.type == "cpu" else (capacity, 0, 0)
        self.magnitudes = torch.empty(codes, dtype=torch.uint8, device=device)
        self.halves = torch.empty(codes, dtype=torch.int16, device=device)


class _Cut:
    """Views of the scratch of B consecutive records, made once: a decode step is short.

    N blocks of G columns share a scale; without scales, or with a ragged last block, N is 1.
    """

    def __init__(self, layout: RecordLayout, scratch: _Scratch, first: int, last: int) -> None:
        units, hidden, num = layout.num_units, layout.hidden, last - first
        whole = layout.group > 0 and hidden % layout.group == 0
        self.blocks = (layout.scale_groups, layout.group) if whole else (1, hidden)
        self.pairs = (num, units, UNIT_ROWS, 2, self.blocks[0])
        self.stored = scratch.stored[first:last]
        unit = self.stored.view(num, units, layout.unit_bytes)
        self.weights = unit[..., : layout.unit_value_bytes]
        self.magnitudes = scratch.magnitudes[first:last]
        self.halves = scratch.halves[first:last]
        values = scratch.values[first:last]
        self.values = values.view(num, units, -1)
        blocks = values.view(num, units, 3 * UNIT_ROWS, *self.blocks)
        self.gate_up, self.down = blocks[:, :, : 2 * UNIT_ROWS], blocks[:, :, 2 * UNIT_ROWS :]
        self.products = scratch.products[first:last].view(self.gate_up.shape)
        self.columns = scratch.columns[first:last].view(self.down.shape)
        self.flat_columns = self.columns.view(num, layout.intermediate, hidden)
        scale_bytes = unit[..., layout.unit_value_bytes :][..., : layout.unit_scale_bytes]
        self.scales = scratch.scales[first:last]
        self.stored_scales = scale_bytes.view(torch.float32).view(self.scales.shape)
        self.gate_up_scales = self.scales[:, :, None, :2]
        self.down_scales = self.scales[:, :, 2:]


def _decode_fp8(cut: _Cut) -> None:
    """Write the cut's values, exact e4m3 divided by FP8_SCALE, as float32.

    On a CPU torch converts one value at a time. Moved to the place of a half's exponent and
    mantissa, every code but the two NaNs is a half that is FP8_SCALE times smaller, subnormals
    included, and halves convert by the vector: 442,368 values in 75 us against 1.2 ms (one Zen 5
    core). Records that hold a NaN, and other devices, take torch's own conversion.
    """
    if cut.halves.numel():
        torch.bitwise_and(cut.weights, 0x7F, out=cut.magnitudes)
        if int(cut.magnitudes.amax()) != 0x7F:
            # s eeee mmm, sign-extended and shifted by 7, is s s eeee mmm 0000000; clear bit 14.
            cut.halves.copy_(cut.weights.view(torch.int8)).mul_(1 << 7).bitwise_and_(~(1 << 14))
            cut.values.copy_(cut.halves.view(torch.float16))
            return
    cut.values.copy_(cut.weights.view(torch.float8_e4m3fn)).mul_(1.0 / FP8_SCALE)


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
    kernel.load([record])
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
    kernel.load([record])
    return kernel.rows(x)
