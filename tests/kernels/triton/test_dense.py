"""Dense prefill on a card: each step against plain torch; interpreted in float32 without a card."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from kernels.paged import KvRows
from kernels.reference.dense import (
    attention_prefill,
    norm_and_rotary_,
    rotary_frequencies,
    rotary_tables,
)
from kernels.reference.routing import topk_softmax
from kernels.steps import AttentionParts, RouterParts
from kernels.triton import dense
from kernels.triton.dense import CardLinear, attend, dequantise, rms_norm, rms_norm_twice
from kernels.triton.steps import CardAttentionChunk, CardRouterStep, store_heads
from kernels.weights import DenseWeight
from tests.kernels.triton.where import DEVICE, on_card

DTYPE = torch.float32 if DEVICE == "cpu" else torch.bfloat16
# float32: another order of sums. bf16: inputs and results rounded to 8 bits.
BOUND = 1e-5 if torch.float32 == DTYPE else 2e-2
PAGE = 4


def draw(*shape, seed=0, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def close(got, wanted, bound=BOUND):
    error = (got.cpu().double() - wanted.double()).abs().max() / wanted.abs().max()
    assert error < bound, f"{error:.2e} of the largest value"


def fp8_weight(rows, columns, group, seed):
    values = draw(rows, columns, seed=seed).to(torch.float8_e4m3fn)
    shape = (-(-rows // group), -(-columns // group))
    return DenseWeight(values, draw(*shape, seed=seed + 1).abs() + 0.1, group)


@pytest.mark.parametrize("hidden", [40, 384, 2048])
def test_norm_is_that_of_float64(hidden):
    """Any width, from a residual stream in float32; the wide copy is not rounded."""
    x, weight = draw(5, hidden, seed=1, scale=3.0), draw(hidden, seed=2)
    wanted = torch.nn.functional.rms_norm(x.double(), (hidden,), weight.double(), 1e-6)
    narrow, wide = rms_norm_twice(x.to(DEVICE), weight.to(DEVICE), 1e-6, torch.float16)
    close(wide, wanted, 1e-6)
    close(narrow, wanted, 1e-3)
    got = rms_norm(x.to(DEVICE), weight.to(DEVICE), 1e-6)
    assert got.dtype == torch.bfloat16
    close(got, wanted, 5e-3)


@pytest.mark.parametrize("shape", [(48, 64, 16), (50, 70, 32), (130, 1300, 128)])
def test_dequantised_weight_is_code_times_scale(shape):
    """Exactly the reference's values, ragged blocks included."""
    rows, columns, group = shape
    weight = fp8_weight(rows, columns, group, seed=3)
    there = DenseWeight(weight.values.to(DEVICE), weight.scales.to(DEVICE), group)
    out = torch.empty(rows, columns, device=DEVICE)
    dequantise(there, out)
    assert torch.equal(out.cpu(), weight.dequantise())


def test_linear_takes_weights_as_stored():
    """bf16, float32 and FP8 parts side by side; `exact` rounds nothing."""
    bf16 = DenseWeight(draw(24, 64, seed=4).to(torch.bfloat16))
    parts = (bf16, fp8_weight(16, 64, 16, seed=5), DenseWeight(draw(8, 64, seed=6)))
    x = draw(7, 64, seed=7)
    for weights in (parts, (bf16,), (bf16, bf16), (parts[1],), (parts[2],)):
        linear = CardLinear(weights, torch.device(DEVICE), DTYPE)
        exact = torch.cat([one.dequantise() for one in weights])
        assert torch.equal(linear.exact().cpu(), exact)
        got = linear(x.to(DEVICE))
        assert got.dtype == DTYPE
        close(got, x.double() @ exact.double().T)


@pytest.mark.parametrize("num_experts", [4, 60, 128])
@pytest.mark.parametrize(("top_k", "normalise", "scale"), [(1, True, 1.0), (4, False, 2.5)])
def test_choice_has_the_bits_of_a_stable_sort(num_experts, top_k, normalise, scale):
    """Ties, scores that underflow to zero, one certain expert, and a token that is not a number."""
    logits = draw(64, num_experts, seed=21, scale=4.0)
    logits[:16] = logits[:16].round()
    logits[16:24] *= 100.0
    logits[24] = 0.0
    logits[25] = float("nan")
    logits = logits.to(DEVICE)
    got = dense.topk_softmax(logits, top_k, normalise, scale)
    wanted = topk_softmax(logits, top_k, normalise, scale)
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape, one.is_contiguous()) == (other.dtype, other.shape, True)
        assert torch.equal(
            one.nan_to_num(-1.0) if one.is_floating_point() else one,
            other.nan_to_num(-1.0) if other.is_floating_point() else other,
        )
    assert got[0][25].tolist() == list(range(top_k))


def test_router_takes_float32_logits_of_the_unrounded_norm():
    """A chunk routes as decode does; near ties must not turn by the rounding of inputs."""
    gate = DenseWeight(draw(12, 64, seed=8).to(torch.bfloat16))
    norm = draw(64, seed=9).abs()
    parts = RouterParts(
        norm=norm.to(DEVICE, DTYPE),
        eps=1e-6,
        gate=CardLinear((gate,), torch.device(DEVICE), DTYPE),
        choose=topk_softmax,
        top_k=3,
        normalise=True,
        scale=1.0,
    )
    hidden = draw(33, 64, seed=10)
    x, ids, weights = CardRouterStep(parts)(hidden.to(DEVICE))
    normed = torch.nn.functional.rms_norm(hidden, (64,), parts.norm.cpu().float(), 1e-6)
    wanted = topk_softmax(normed @ gate.dequantise().T, 3, True, 1.0)
    assert torch.equal(ids.cpu(), wanted[0])
    close(weights, wanted[1], 1e-5)
    assert x.dtype == DTYPE
    close(x, normed)


def heads(tokens, num_heads, num_kv, head_dim, seed):
    """Return (parts, places, qkv, pages) of a chunk of `tokens` at positions 3.."""
    device = torch.device(DEVICE)
    pages = torch.zeros(9 * 2 * 2 * PAGE * num_kv * head_dim, dtype=DTYPE, device=device)
    slots = torch.randperm(9 * PAGE, generator=torch.Generator().manual_seed(seed))[:tokens]
    rows = SimpleNamespace(slots=slots.to(device), page_tokens=PAGE, lengths=(tokens,))
    positions = torch.arange(3, 3 + tokens)
    frequencies = rotary_frequencies(head_dim, 10_000.0, torch.device("cpu"))
    cos, sin = (t.to(device) for t in rotary_tables(positions, frequencies, torch.float32))
    norms = draw(num_heads + num_kv, head_dim, seed=seed).abs().to(device, DTYPE)
    kv = SimpleNamespace(values=pages, num_layers=2)
    parts = AttentionParts(1, None, 1e-6, None, norms, num_heads, num_kv, None, kv)
    qkv = draw(tokens, (num_heads + 2 * num_kv) * head_dim, seed=seed + 1).to(device, DTYPE)
    return parts, SimpleNamespace(rows=rows, cos=cos, sin=sin), qkv, pages


@pytest.mark.parametrize("shape", [(6, 4, 2, 16), (5, 6, 2, 24), (9, 32, 4, 128)])
def test_heads_are_normed_rotated_and_stored(shape):
    """Queries and keys turn, values stay, keys and values reach their page; nothing else moves."""
    tokens, num_heads, num_kv, head_dim = shape
    parts, places, qkv, pages = heads(*shape, seed=11)
    wanted = qkv.cpu().float().view(tokens, -1, head_dim)
    turned = wanted[:, : num_heads + num_kv]
    norm_and_rotary_(
        turned, parts.head_norms.cpu().float(), 1e-6, places.cos.cpu(), places.sin.cpu()
    )
    store_heads(qkv, parts, places)
    got = qkv.view(tokens, -1, head_dim)
    close(got, wanted)
    expected = torch.zeros(9, 2, 2, PAGE, num_kv, head_dim, dtype=DTYPE)
    for token, slot in enumerate(places.rows.slots.tolist()):
        kept = got[token, num_heads:].cpu().view(2, num_kv, head_dim)
        expected[slot // PAGE, 1, :, slot % PAGE] = kept
    assert torch.equal(pages.cpu(), expected.flatten())


@pytest.mark.parametrize(("tokens", "context"), [(7, 7), (5, 12), (1, 9), (64, 200)])
def test_attention_of_a_suffix_sees_what_lies_before_it(tokens, context):
    """Grouped heads, strided views, causal from the end of the sequence."""
    queries = draw(tokens, 6, 32, seed=12).to(DEVICE, DTYPE)
    both = draw(context, 4, 32, seed=13).to(DEVICE, DTYPE)
    keys, values = both.split(2, 1)
    wanted = attention_prefill(
        queries.cpu().double(), keys.cpu().double(), values.cpu().double(), 0.2
    )
    close(attend(queries, keys, values, 0.2), wanted)


class Pages:
    """A pool that reads as `engine.cache.kv.KvPool` does."""

    def __init__(self, pages, num_kv, head_dim):
        self.values, self.num_layers, self._shape = pages, 2, (-1, PAGE, num_kv, head_dim)

    def read(self, rows, layer_id, sequence):
        taken = self.values.view(self._shape)[rows.reads[sequence][layer_id]]
        keys, values = taken.view(2, -1, *self._shape[2:]).unbind(0)
        return keys[: rows.lengths[sequence]], values[: rows.lengths[sequence]]


@pytest.mark.parametrize(
    ("tokens", "context", "head_dim", "direct"),
    [(7, 7, 32, True), (5, 12, 32, True), (7, 7, 36, False), (12, 12, 32, False)],
)
def test_attention_asks_flash_itself_where_torch_would(
    monkeypatch, tokens, context, head_dim, direct
):
    """Not for heads that torch pads, nor for prompts that cuDNN plans; the causal end is the last.

    The same question decides as in torch: a causal mask only where queries and keys are as many.
    """
    asked, called = [], []

    def usable(params):
        asked.append(params.is_causal)
        return True

    def flash(q, k, v, *rest, scale):
        called.append(rest)
        out = attention_prefill(*(one[0].transpose(0, 1) for one in (q, k, v)), scale)
        return (out.transpose(0, 1).unsqueeze(0),)

    monkeypatch.setattr(dense, "can_use_flash_attention", usable)
    monkeypatch.setattr(dense, "_FLASH", flash)
    monkeypatch.setattr(dense, "PLANNED_TOKENS", 10)
    queries = draw(tokens, 4, head_dim, seed=31)
    keys, values = draw(context, 4, head_dim, seed=32).split(2, 1)
    if direct or tokens == context:
        got = attend(queries, keys, values, 0.2)
        close(got, attention_prefill(queries, keys, values, 0.2), 1e-5)
    assert called == [(0.0, True, False)] * direct
    assert asked == [tokens == context] * direct


@pytest.mark.parametrize("tile", [0, 1, 4, 5, 11])
def test_chunks_of_a_prompt_agree_with_the_whole_prompt(tile):
    """Two chunks, the second over the pages of the first, add what one chunk adds.

    Whatever tiles they are taken in, and the pages then hold the same keys and values.
    """
    num_heads, num_kv, head_dim, hidden_size, tokens = 4, 2, 16, 40, 11
    device = torch.device(DEVICE)
    pages = torch.zeros(5 * 2 * 2 * PAGE * num_kv * head_dim, dtype=DTYPE, device=device)
    width = (num_heads + 2 * num_kv) * head_dim
    weights = draw(width, hidden_size, seed=14), draw(hidden_size, num_heads * head_dim, seed=15)
    qkv, output = (CardLinear((DenseWeight(w),), device, DTYPE) for w in weights)
    norms = torch.ones(num_heads + num_kv, head_dim, dtype=DTYPE, device=device)
    norm = draw(hidden_size, seed=16).abs().to(device, DTYPE)
    store = Pages(pages, num_kv, head_dim)
    parts = AttentionParts(1, norm, 1e-6, qkv, norms, num_heads, num_kv, output, store)
    stream = draw(tokens, hidden_size, seed=17).to(device)
    table = torch.tensor([[3, 1, 4]], device=device)
    blocks = torch.arange(4, device=device)
    frequencies = rotary_frequencies(head_dim, 10_000.0, torch.device("cpu"))

    def add(begin, end, tile_tokens=tile):
        chunk = CardAttentionChunk(parts._replace(tile_tokens=tile_tokens))
        at = torch.arange(begin, end)
        slots = table[0].cpu()[at // PAGE] * PAGE + at % PAGE
        rows = KvRows(blocks, PAGE, slots.to(device), table, (end,))
        cos, sin = (t.to(device) for t in rotary_tables(at, frequencies, torch.float32))
        part = stream[begin:end].clone()
        chunk(part, SimpleNamespace(rows=rows, cos=cos, sin=sin))
        return part

    pieces = torch.cat([add(0, 6), add(6, tokens)])
    stored = pages.clone()
    pages.zero_()
    whole = add(0, tokens, 0)
    close(stored, pages.cpu())
    assert not torch.equal(whole, stream)
    close(pieces, whole.cpu())


@on_card
def test_attention_of_a_long_prompt_keeps_memory_bounded():
    """32k tokens, 32 heads: the scores alone would take 64 GiB."""
    queries = torch.randn(32_768, 32, 128, device=DEVICE, dtype=DTYPE)
    keys, values = torch.randn(32_768, 8, 128, device=DEVICE, dtype=DTYPE).split(4, 1)
    attended = attend(queries, keys, values, 128**-0.5)
    few = slice(32_767, 32_768)
    wanted = attention_prefill(
        queries[few].cpu().double(), keys.cpu().double(), values.cpu().double(), 128**-0.5
    )
    close(attended[few], wanted)


def test_imports_when_a_card_is_used_then_torch_brings_no_compiler() -> None:
    """It takes seconds of each load, and nothing here is compiled by it."""
    modules = (
        "kernels.triton.dense, kernels.triton.grouped, kernels.triton.steps, engine.loader.open"
    )
    code = f"import sys, {modules}; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
