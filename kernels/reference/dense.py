"""Everything of a transformer layer but the experts, in plain torch.

Shapes: T tokens, H hidden, N heads, D head size, V vocabulary. Every function returns a new tensor
of its input's dtype and device, unless it says otherwise. No function waits for the device.
Attention knows no pages: keys and values arrive in order. Its products and softmax are written out,
so that the order of work depends on shapes only and is the same on every device.
Called by `engine.layers`, `engine.cache` and `engine.runner`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.weights import DenseWeight

# Scores held at once: a query block of this many values stays in the cache of a core.
BLOCK_SCORES = 1 << 18
MIN_BLOCK_QUERIES = 16


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide each row by its root mean square and multiply by `weight`.

    Shapes: x [..., H], weight [H] -> [..., H]; the mean is taken in float32.
    """
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class ReferenceLinear:
    """Products with weights that take the same input, as one: dequantised and stacked.

    Shapes: weights [N1, K], [N2, K], ..; x [T, K] -> [T, N1 + N2 + ..].
    """

    def __init__(
        self, weights: Sequence[DenseWeight], device: torch.device, dtype: torch.dtype
    ) -> None:
        parts = [one.dequantise().to(device, dtype) for one in weights]
        self._weight = parts[0] if len(parts) == 1 else torch.cat(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x W^T."""
        return F.linear(x, self._weight)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Pick rows. Shapes: ids [T] int64, table [V, H] -> [T, H]."""
    return table.index_select(0, ids)


def silu_multiply(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up. Shapes: [T, 2 * I], gate first -> [T, I]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def rotary_frequencies(head_dim: int, theta: float, device: torch.device) -> Tensor:
    """Return the angle per position of each pair of values: [D / 2] float32.

    Worked out on the host, so that every device turns by the same angles.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return (1.0 / torch.pow(theta, exponents)).to(device)


def rotary_tables(
    positions: Tensor, frequencies: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and signed sines for `rotary`.

    Shapes: positions [T] int64, frequencies [D / 2] float32 -> two of [T, 1, D] in `dtype`. The
    first half of the sines is negated, so that a rotation is a product with the halves swapped.
    Angles are float32, as in transformers; positions up to 2**24 are exact.
    """
    angles = positions.to(torch.float32).unsqueeze(1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    return (
        torch.cat((cos, cos), dim=-1).unsqueeze_(1).to(dtype),
        torch.cat((-sin, sin), dim=-1).unsqueeze_(1).to(dtype),
    )


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate value d with value d + D/2 by the angle of its token.

    Shapes: x [T, N, D], cos and sin [T, 1, D] from `rotary_tables` -> [T, N, D].
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos, swapped, sin)


def norm_and_rotary_(x: Tensor, weight: Tensor, eps: float, cos: Tensor, sin: Tensor) -> None:
    """RMS-norm each head with its own weight, then rotate it; in place.

    Shapes: x [T, N, D] (a view may be strided), weight [N, D] (heads of q, then of k), tables
    [T, 1, D].
    """
    normed = F.rms_norm(x, (x.shape[-1],), None, eps).mul_(weight)
    swapped = normed.roll(normed.shape[-1] // 2, -1)
    torch.addcmul(normed.mul_(cos), swapped, sin, out=x)


def put_rows(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Write `values` [T, W] to the given `rows` [T] int64 of `table` [R, W], in place.

    Rows must differ, else which one stays is not defined.
    """
    table.index_copy_(0, rows, values)


def take_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Return copies of rows. Shapes: table [R, W], rows [P] int64 -> [P, W]."""
    return table.index_select(0, rows)


def attention_decode(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend with one token over all of `keys`.

    Shapes: query [N, D], keys and values [C, Nkv, D] with N a multiple of Nkv -> [N, D].
    Head n of the query reads head n // (N / Nkv) of the keys. Softmax in float32.
    """
    num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    grouped = query.reshape(num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.bmm(grouped, keys.permute(1, 2, 0)).mul_(scale)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    return torch.bmm(weights, values.transpose(0, 1)).view(num_heads, head_dim)


def attention_prefill(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend causally with the last T tokens of a sequence of C.

    Shapes: queries [T, N, D], keys and values [C, Nkv, D], C >= T -> [T, N, D]. Query t sees the
    keys [0, C - T + t]. Works in blocks of queries, whose length follows from the shapes only.
    """
    num_tokens, num_heads, head_dim = queries.shape
    context, num_kv_heads, _ = keys.shape
    past = context - num_tokens
    group = num_heads // num_kv_heads
    block = max(MIN_BLOCK_QUERIES, BLOCK_SCORES // (num_heads * context))
    grouped = queries.reshape(num_tokens, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    keys_t, values_t = keys.permute(1, 2, 0), values.transpose(0, 1)
    out = torch.empty_like(queries).view(num_tokens, num_kv_heads, group, head_dim)
    for begin in range(0, num_tokens, block):
        end = min(begin + block, num_tokens)
        size, seen = end - begin, past + end
        rows = grouped[:, :, begin:end].reshape(num_kv_heads, group * size, head_dim)
        scores = torch.bmm(rows, keys_t[:, :, :seen]).mul_(scale)
        later = torch.ones(size, size, dtype=torch.bool, device=queries.device).triu_(1)
        by_query = scores.view(num_kv_heads, group, size, seen)
        by_query[..., past + begin :].masked_fill_(later, float("-inf"))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
        part = torch.bmm(weights, values_t[:, :seen]).view(num_kv_heads, group, size, head_dim)
        out[begin:end] = part.permute(2, 0, 1, 3)
    return out.view(num_tokens, num_heads, head_dim)
