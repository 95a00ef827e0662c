"""Decode in the canonical order, in plain torch: slow, exact, and the truth for bits.

`kernels/csrc/canonical.h` states the order. fp32 is emulated where torch has no operation for it:
a fused multiply-add is an exact float64 product, a float64 sum that keeps whether it was exact
(round to odd), and one rounding. So the result is that of hardware, for every input. For tests.
"""

import torch
from torch import Tensor

from kernels.layouts import UNIT_ROWS, RecordLayout
from kernels.weights import DenseWeight

NUM_ACCUMULATORS = 256
NUM_DENSE_ACCUMULATORS = 64
PIECE_VALUES = 16
FP8_SCALE = 256.0
LOG2E, LN2_HIGH, LN2_LOW = 1.44269504, 0.693145752, 1.42860677e-6
EXP_LOW, EXP_HIGH = -87.0, 88.0
EXP_POLYNOMIAL = (1.0, 1.0, 0.5, 0.166666672, 0.0416664853, 0.00833340455, 0.00139304355)


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a * b + c, rounded once. Shapes broadcast; float32."""
    product = a.double() * b.double()  # exact: 24 + 24 bits
    addend = c.double()
    total = product + addend
    shadow = total - product
    error = (product - (total - shadow)) + (addend - shadow)
    # Round to odd: an inexact sum with an even last bit moves one step towards the exact one.
    # With 53 bits that keeps the rounding to 24 from happening twice.
    bits = total.view(torch.int64)
    step = torch.where((error > 0) == (total > 0), 1, -1)
    inexact = (error != 0) & error.isfinite() & (bits & 1 == 0)
    return torch.where(inexact, bits + step, bits).view(torch.float64).float()


def exponential(values: Tensor) -> Tensor:
    """Return e to the power of `values`, clamped to [-87, 88], by the canonical polynomial."""
    t = values.clamp(EXP_LOW, EXP_HIGH)
    n = (t * _like(t, LOG2E)).round()  # half to even
    r = fma(-n, _like(t, LN2_LOW), fma(-n, _like(t, LN2_HIGH), t))
    out = _like(t, EXP_POLYNOMIAL[-1])
    for factor in reversed(EXP_POLYNOMIAL[:-1]):
        out = fma(out, r, _like(t, factor))
    return out * torch.ldexp(torch.ones_like(n), n)


def dots(rows: Tensor, x: Tensor, num_accumulators: int = NUM_ACCUMULATORS) -> Tensor:
    """Return each row's product with x. Shapes: rows [R, H], x [H] or [R, H] -> [R]."""
    pairs = _accumulate(rows, x, num_accumulators).view(len(rows), -1, PIECE_VALUES, 2)
    line = pairs[..., 0] + pairs[..., 1]
    while (size := line.shape[1] // 2) > 0:
        line = line[:, :size] + line[:, size:]
    return _sum_lanes(line[:, 0])


def short_dots(rows: Tensor, x: Tensor) -> Tensor:
    """Return each row's product with x by 16 accumulators. Shapes as in `dots`."""
    return _sum_lanes(_accumulate(rows, x, PIECE_VALUES))


def _accumulate(rows: Tensor, x: Tensor, num_accumulators: int) -> Tensor:
    """Element i goes to accumulator i modulo their number, i rising: [R, accumulators]."""
    num_rows, width = rows.shape
    x = x.expand(num_rows, width)
    acc = rows.new_zeros(num_rows, num_accumulators)
    for first in range(0, width, num_accumulators):
        part = slice(first, min(first + num_accumulators, width))
        taken = slice(0, part.stop - first)
        acc[:, taken] = fma(rows[:, part], x[:, part], acc[:, taken])
    return acc


def _sum_lanes(place: Tensor) -> Tensor:
    """Add 16 lanes by a tree: l + (l + 8), then + 4, + 2, + 1. Shapes: [R, 16] -> [R]."""
    for size in (8, 4, 2, 1):
        place = place[:, :size] + place[:, size:]
    return place[:, 0]


def linear(weight: DenseWeight, x: Tensor) -> Tensor:
    """Return x W^T of one token. Shapes: weight [N, K], x [K] float32 -> [N]."""
    values, scales = weight.values.float(), weight.scales
    if scales is None:
        return dots(values, x, NUM_DENSE_ACCUMULATORS)
    rows, columns = values.shape
    wide = (scales * FP8_SCALE).repeat_interleave(weight.group, 0)[:rows]
    wide = wide.repeat_interleave(weight.group, 1)[:, :columns]
    return dots(values / FP8_SCALE, x * wide, NUM_DENSE_ACCUMULATORS)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / rms(x) * weight. Shapes: x [R, H], weight [H] or [R, H] -> [R, H]."""
    mean = short_dots(x, x) / x.shape[1]
    return x * inverse_root(mean + eps).unsqueeze(1) * weight


def inverse_root(values: Tensor) -> Tensor:
    """Return 1 / sqrt, each of the two rounded once; torch's own root may be off by a bit."""
    root = values.double().sqrt().float()
    return torch.ones_like(root) / root


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads by tables whose sines are signed. Shapes: x [R, D], tables [R, D] -> [R, D]."""
    return fma(x.roll(x.shape[1] // 2, 1), sin, x * cos)


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax of each row. Shapes: [R, C] -> [R, C]."""
    weights = exponential(scores - scores.amax(1, keepdim=True))
    return weights / short_dots(weights, torch.ones_like(weights)).unsqueeze(1)


def attend(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return one token's attention. Shapes: query [N, D], keys and values [C, Nkv, D] -> [N, D]."""
    group = query.shape[0] // keys.shape[1]
    keys = keys.repeat_interleave(group, 1)
    values = values.repeat_interleave(group, 1)
    scores = [short_dots(keys[:, head], query[head]) * scale for head in range(len(query))]
    weights = softmax(torch.stack(scores))
    out = torch.zeros_like(query)
    for place in range(len(keys)):
        out = fma(weights[:, place : place + 1], values[place], out)
    return out


def activate(gate: Tensor, up: Tensor, dtype: torch.dtype) -> Tensor:
    """SwiGLU, rounded once to `dtype`; float32."""
    silu = gate / (1.0 + exponential(-gate))
    return (silu * up).to(dtype).float()


def expert_row(
    layout: RecordLayout, record: Tensor, x: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return one route's row. Shapes: record uint8 [record_bytes], x [H] float32 -> [H] float32."""
    total: Tensor | None = None
    for unit in range(layout.num_units - 1, -1, -1):
        start = unit * layout.unit_bytes
        partial = unit_sums(layout, record[start : start + layout.unit_bytes], x, dtype)
        total = partial if total is None else total + partial
    if total is None:
        raise ValueError("an expert has at least one unit")
    return total


def unit_sums(layout: RecordLayout, unit: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return one unit's part of a row. Shapes: unit uint8 [unit_bytes], x [H] -> [H]."""
    width = layout.hidden
    stored = unit[: layout.unit_value_bytes].view(layout.value_dtype)
    values = stored.float().view(3 * UNIT_ROWS, width)
    inputs = (x, x)
    down_scale: Tensor | None = None
    if layout.group:
        values = values / FP8_SCALE
        end = layout.unit_value_bytes + layout.unit_scale_bytes
        scales = unit[layout.unit_value_bytes : end].view(torch.float32).view(3, -1) * FP8_SCALE
        gate_scale, up_scale, down_scale = scales.repeat_interleave(layout.group, 1)[:, :width]
        inputs = (x * gate_scale, x * up_scale)
    gate = dots(values[0 : 2 * UNIT_ROWS : 2], inputs[0])
    up = dots(values[1 : 2 * UNIT_ROWS : 2], inputs[1])
    weight = activate(gate, up, dtype)
    sums = torch.zeros(width)
    for row in range(UNIT_ROWS):
        sums = fma(weight[row], values[2 * UNIT_ROWS + row], sums)
    return sums if down_scale is None else sums * down_scale


def _like(tensor: Tensor, value: float) -> Tensor:
    return torch.full_like(tensor, value)
