"""The dense references, each against a formula written out another way."""

import math

import pytest
import torch
from torch import Tensor

from kernels.reference.dense import (
    attention_decode,
    attention_prefill,
    norm_and_rotary_,
    put_rows,
    rms_norm,
    rotary,
    rotary_frequencies,
    rotary_tables,
    silu_multiply,
    take_rows,
)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rms_norm_when_rows_differ_then_each_by_its_own_root() -> None:
    """x / sqrt(mean(x^2) + eps) * w, in float64."""
    x, w = seeded(3, 8) * 5, seeded(8, seed=1)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-3).sqrt() * w.double()
    torch.testing.assert_close(rms_norm(x, w, 1e-3).double(), expected, rtol=1e-6, atol=1e-6)


def test_rms_norm_when_bfloat16_then_the_mean_is_float32() -> None:
    """A long row would lose its sum in bfloat16."""
    x = torch.ones(1, 4096, dtype=torch.bfloat16) * 3
    assert torch.equal(rms_norm(x, torch.ones(4096, dtype=torch.bfloat16), 0.0), x / 3)


def test_rotary_when_written_as_complex_numbers_then_equal() -> None:
    """Value d and value d + D/2 are a complex number, turned by position * frequency."""
    tokens, heads, size, theta = 5, 3, 8, 100.0
    positions = torch.tensor([0, 1, 7, 900, 20_000])
    x = seeded(tokens, heads, size)
    frequencies = rotary_frequencies(size, theta, torch.device("cpu"))
    cos, sin = rotary_tables(positions, frequencies, torch.float32)
    numbers = torch.complex(x[..., : size // 2].double(), x[..., size // 2 :].double())
    angles = torch.tensor(
        [[int(p) * theta ** (-2 * i / size) for i in range(size // 2)] for p in positions]
    )
    turned = numbers * torch.polar(torch.ones_like(angles), angles).to(numbers.dtype).unsqueeze(1)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    # float32 angles of 20,000 are off by up to 1e-3
    torch.testing.assert_close(rotary(x, cos, sin).double(), expected, rtol=0, atol=3e-3)
    torch.testing.assert_close(rotary(x, cos, sin)[:3].double(), expected[:3], rtol=0, atol=1e-5)


def test_norm_and_rotary_when_heads_have_own_weights_then_as_one_by_one() -> None:
    """q and k share one call, each head with its weight; what lies beside them stays."""
    whole, weight = seeded(4, 5, 8), seeded(3, 8, seed=1)
    before = whole.clone()
    cos, sin = rotary_tables(
        torch.arange(4), rotary_frequencies(8, 1e4, torch.device("cpu")), torch.float32
    )
    norm_and_rotary_(whole[:, :3], weight, 1e-6, cos, sin)
    for head in range(3):
        normed = rms_norm(before[:, head], weight[head], 1e-6).unsqueeze(1)
        torch.testing.assert_close(whole[:, head : head + 1], rotary(normed, cos, sin))
    assert torch.equal(whole[:, 3:], before[:, 3:])


def test_silu_multiply_when_called_then_gate_is_the_first_half() -> None:
    """silu(g) * u, written out; the input stays as it was."""
    x = seeded(3, 6)
    before = x.clone()
    expected = [
        [g / (1 + math.exp(-g)) * u for g, u in zip(row[:3], row[3:], strict=True)]
        for row in x.tolist()
    ]
    torch.testing.assert_close(silu_multiply(x), torch.tensor(expected))
    assert torch.equal(x, before)


def test_put_rows_when_taken_back_then_the_same() -> None:
    """Rows go where they are sent and nowhere else."""
    table = torch.zeros(6, 2)
    rows, values = torch.tensor([4, 1]), seeded(2, 2)
    put_rows(table, rows, values)
    assert torch.equal(take_rows(table, rows), values)
    assert table[[0, 2, 3, 5]].abs().sum() == 0


def naive_attention(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One query, one head, one key at a time, in float64."""
    tokens, heads, _ = queries.shape
    context, kv_heads, _ = keys.shape
    out = torch.zeros(queries.shape, dtype=torch.float64)
    for t in range(tokens):
        seen = context - tokens + t + 1
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = keys[:seen, kv].double() @ queries[t, head].double() * scale
            out[t, head] = torch.softmax(scores, 0) @ values[:seen, kv].double()
    return out


@pytest.mark.parametrize(
    ("tokens", "context"), [(1, 1), (1, 9), (5, 5), (7, 40), (33, 33), (40, 47)]
)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_attention_prefill_when_chunk_or_whole_then_naive(
    monkeypatch: pytest.MonkeyPatch, tokens: int, context: int, heads: int, kv_heads: int
) -> None:
    """Causal over past and chunk; small blocks, so that borders fall inside the chunk."""
    monkeypatch.setattr("kernels.reference.dense.BLOCK_SCORES", 1)
    args = (
        seeded(tokens, heads, 8),
        seeded(context, kv_heads, 8, seed=1),
        seeded(context, kv_heads, 8, seed=2),
    )
    got = attention_prefill(*args, 0.3)
    torch.testing.assert_close(got.double(), naive_attention(*args, 0.3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("context", [1, 16, 37])
def test_attention_decode_when_heads_share_keys_then_naive(
    context: int, heads: int, kv_heads: int
) -> None:
    """Grouped heads read the right keys."""
    query, keys, values = (
        seeded(heads, 8),
        seeded(context, kv_heads, 8),
        seeded(context, kv_heads, 8),
    )
    got = attention_decode(query, keys, values, 0.3)
    expected = naive_attention(query.unsqueeze(0), keys, values, 0.3)[0]
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)
