"""The dense C++ kernels: every tier equals the canonical order in every bit."""

import pytest
import torch
from torch import Tensor

import kernels.cpu
from engine.cache.kv import KvPool
from kernels.api import linear
from kernels.cpu import isa_tier
from kernels.device.cpu import CpuDevice
from kernels.paged import KvRows
from kernels.reference import canonical, dense
from kernels.reference.routing import merge_routes, topk_softmax
from kernels.reference.steps import ReferenceAttentionStep, ReferenceRouterStep
from kernels.registry import choose
from kernels.steps import AttentionParts, RouterParts
from kernels.weights import DenseWeight
from tests.support.dense import PAGE_TOKENS, Place, random_weight, seeded

pytestmark = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)

CPU = torch.device("cpu")
TIERS = ("scalar", "avx2", "avx512")
WEIGHTS: dict[str, tuple[DenseWeight, ...]] = {
    "bf16": (random_weight(40, 64, "bf16"),),
    "bf16-odd": (random_weight(3, 131, "bf16", 1), random_weight(1, 131, "bf16", 2)),
    "float32": (random_weight(5, 70, "float32", 3),),
    "fp8": (random_weight(40, 64, "fp8_block", 4, 16), random_weight(17, 64, "fp8_block", 5, 16)),
    "fp8-odd": (random_weight(33, 331, "fp8_block", 6, 48),),
    "mixed": (random_weight(6, 384, "fp8_block", 8, 128), random_weight(5, 384, "bf16", 9)),
    "built-in": (random_weight(130, 384, "fp8_block", 10, 128),),
}


@pytest.fixture(params=WEIGHTS)
def weights(request: pytest.FixtureRequest) -> tuple[DenseWeight, ...]:
    return WEIGHTS[request.param]


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    tier = str(request.param)
    if TIERS.index(tier) > TIERS.index(isa_tier() or "scalar"):
        pytest.skip(f"this CPU has no {tier}")
    return tier


def native(weights: tuple[DenseWeight, ...], tier: str | None = None):
    from kernels.cpu.dense import NativeLinear

    return NativeLinear(weights, CPU, torch.float32, tier)


def reference(weights: tuple[DenseWeight, ...]) -> dense.ReferenceLinear:
    return dense.ReferenceLinear(weights, CPU, torch.float32)


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8])
def test_linear_when_few_tokens_then_each_in_the_canonical_order(weights, tier, num_tokens) -> None:
    """Parts side by side, partial blocks, any width; a token's bits do not depend on the others."""
    x = seeded(num_tokens, weights[0].shape[1], seed=20)
    wanted = [torch.cat([canonical.linear(one, token) for one in weights]) for token in x]
    assert torch.equal(native(weights, tier)(x), torch.stack(wanted))


@pytest.mark.parametrize("num_tokens", [1, 8, 9, 40])
def test_linear_when_any_number_of_tokens_then_as_the_reference(weights, num_tokens) -> None:
    """Few tokens and prompt chunks, within what another order of sums may change."""
    x = seeded(num_tokens, weights[0].shape[1], seed=21)
    wanted = reference(weights)(x)
    assert (native(weights)(x) - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_values_when_written_out_then_those_of_the_reference(weights, tier) -> None:
    """Bit for bit what dequantising gives, so a prompt chunk has the reference's bits."""
    wanted = torch.cat([one.dequantise() for one in weights])
    assert torch.equal(native(weights, tier).values(), wanted)


def test_linear_when_every_code_occurs_then_exact(tier) -> None:
    """Zeros and subnormals count exactly; a NaN code makes its own row NaN and no other."""
    codes = torch.arange(256, dtype=torch.uint8).view(1, -1).repeat(4, 1)
    codes[(codes & 0x7F) == 0x7F] = 0x80
    codes[2, 100] = 0xFF
    weight = DenseWeight(codes.view(torch.float8_e4m3fn), torch.full((1, 2), 0.5), 128)
    x = seeded(256, seed=22)
    got, wanted = native((weight,), tier)(x.unsqueeze(0))[0], canonical.linear(weight, x)
    assert got.isnan().tolist() == [False, False, True, False]
    assert torch.equal(got.nan_to_num(7.0), wanted.nan_to_num(7.0))
    values = native((weight,), tier).values()
    assert torch.equal(values.nan_to_num(9.0), weight.dequantise().nan_to_num(9.0))


def test_linear_when_sizes_are_wrong_then_refused_before_memory_is_touched() -> None:
    """No address of a tensor that is too short, of another kind or elsewhere reaches C++."""
    product = native(WEIGHTS["bf16"])
    for x in (torch.zeros(1, 63), torch.zeros(1, 64).double(), torch.zeros(1, 64, device="meta")):
        with pytest.raises(ValueError, match=r"expected torch\.float32"):
            product(x)
    with pytest.raises(ValueError, match="of one input"):
        native((WEIGHTS["bf16"][0], WEIGHTS["float32"][0]))
    with pytest.raises(ValueError, match="cannot run the tier avx9"):
        native(WEIGHTS["bf16"], "avx9")


@pytest.mark.parametrize("width", [6, 16, 64, 100, 384])
def test_rms_norm_when_any_width_then_the_canonical_order(tier, width) -> None:
    """And close to torch's own."""
    from kernels.cpu.dense import rms_norm

    x, weight = seeded(3, width, seed=23), seeded(width, seed=24)
    got = rms_norm(x, weight, 1e-6, tier)
    assert torch.equal(got, canonical.rms_norm(x, weight, 1e-6))
    torch.testing.assert_close(got, dense.rms_norm(x, weight, 1e-6), rtol=1e-5, atol=1e-6)


def test_merge_when_called_then_the_reference_bit_for_bit() -> None:
    """Products and sums are rounded apart, in router order."""
    from kernels.cpu.dense import merge_routes as native_merge

    rows, weights = seeded(5, 3, 37, seed=25), seeded(5, 3, seed=26)
    assert torch.equal(native_merge(rows, weights), merge_routes(rows, weights))
    with pytest.raises(ValueError, match="expected"):
        native_merge(rows, weights[:, :2])


# --- the router --------------------------------------------------------------------------------


def router_parts(gate: object, normalise: bool = True, top_k: int = 3) -> RouterParts:
    norm = seeded(70, seed=27).abs()
    return RouterParts(norm, 1e-6, gate, topk_softmax, top_k, normalise, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 5, 9])
def test_router_when_any_rule_then_the_routes_of_the_reference(tier, num_tokens, normalise) -> None:
    """Same experts in the same order, weights within rounding; every tier has the same bits."""
    from kernels.cpu.steps import NativeRouterStep

    weights, hidden = (random_weight(19, 70, "float32", 28),), seeded(num_tokens, 70, seed=29)
    step = NativeRouterStep(router_parts(native(weights, tier), normalise), tier)
    x, ids, chosen = step(hidden)
    wanted = ReferenceRouterStep(router_parts(reference(weights), normalise))(hidden)
    torch.testing.assert_close(x, wanted[0], rtol=1e-5, atol=1e-6)
    assert torch.equal(ids, wanted[1])
    torch.testing.assert_close(chosen, wanted[2], rtol=1e-4, atol=1e-6)
    scalar = NativeRouterStep(router_parts(native(weights, "scalar"), normalise), "scalar")(hidden)
    assert all(torch.equal(a, b) for a, b in zip((x, ids, chosen), scalar, strict=True))


def test_router_when_scores_are_equal_then_the_lower_number(tier) -> None:
    """As the reference's stable sort; also with a rule that takes all of them."""
    from kernels.cpu.steps import NativeRouterStep

    same = DenseWeight(torch.ones(7, 70))
    for top_k in (3, 7):
        step = NativeRouterStep(router_parts(native((same,), tier), top_k=top_k), tier)
        assert step(seeded(1, 70, seed=30))[1].tolist() == [list(range(top_k))]


def test_router_when_hidden_is_nan_then_routes_exist_and_weights_are_nan(tier) -> None:
    """A broken model is reported as such; it never reads a record that does not exist."""
    from kernels.cpu.steps import NativeRouterStep

    step = NativeRouterStep(router_parts(native((random_weight(9, 70, "float32"),), tier)), tier)
    _, ids, weights = step(torch.full((1, 70), float("nan")))
    assert sorted(set(ids[0].tolist())) == sorted(ids[0].tolist())
    assert all(0 <= expert < 9 for expert in ids[0].tolist())
    assert weights.isnan().all()


# --- attention ---------------------------------------------------------------------------------

HIDDEN, LAYERS = 48, 3


def attention_parts(product: object, heads: int, kv_heads: int, size: int, kv: KvPool):
    """Layer 1 of 3, with `product` to make a product of weights."""
    qkv = tuple(
        random_weight(count * size, HIDDEN, "fp8_block", 31 + count, 16)
        for count in (heads, kv_heads, kv_heads)
    )
    output = (random_weight(HIDDEN, heads * size, "bf16", 35),)
    head_norms = seeded(heads + kv_heads, size, seed=36).abs()
    return AttentionParts(
        layer_id=1,
        norm=seeded(HIDDEN, seed=37).abs(),
        eps=1e-6,
        qkv=product(qkv),  # type: ignore[operator]
        head_norms=head_norms,
        num_heads=heads,
        num_kv_heads=kv_heads,
        output=product(output),  # type: ignore[operator]
        kv=kv,
    )


def place_of(tables: list[list[int]], lengths: list[int], size: int) -> Place:
    """The last token of each sequence."""
    ends = [length - 1 for length in lengths]
    slots = [
        table[end // PAGE_TOKENS] * PAGE_TOKENS + end % PAGE_TOKENS
        for table, end in zip(tables, ends, strict=True)
    ]
    rows = KvRows(
        torch.arange(2 * LAYERS),
        PAGE_TOKENS,
        torch.tensor(slots),
        torch.tensor(tables),
        tuple(lengths),
    )
    frequencies = dense.rotary_frequencies(size, 1e4, CPU)
    return Place(rows, *dense.rotary_tables(torch.tensor(ends), frequencies, torch.float32))


def filled_pool(kv_heads: int, size: int, seed: int = 0) -> KvPool:
    kv = KvPool(LAYERS, kv_heads, size, torch.float32, CpuDevice(1 << 22), 12, 12)
    kv.values.copy_(torch.randn(kv.values.shape, generator=torch.Generator().manual_seed(seed)))
    return kv


SHAPES = [(4, 4, 16), (6, 2, 24), (3, 1, 6), (10, 2, 64)]
TABLES, LENGTHS = [[7, 2, 9], [4, 0, 0], [11, 5, 0]], [40, 1, 32]


@pytest.mark.parametrize(("heads", "kv_heads", "size"), SHAPES)
def test_attention_when_pages_are_scattered_then_as_the_reference(
    tier, heads: int, kv_heads: int, size: int
) -> None:
    """Output and stored keys and values agree; other tokens of the pool stay as they are."""
    from kernels.cpu.steps import NativeAttentionStep

    hidden, place = seeded(3, HIDDEN, seed=40), place_of(TABLES, LENGTHS, size)
    results = []
    for make, step in (
        (lambda one: native(one, tier), lambda parts: NativeAttentionStep(parts, tier)),
        (reference, ReferenceAttentionStep),
    ):
        kv, out = filled_pool(kv_heads, size), hidden.clone()
        before = kv.values.clone()
        step(attention_parts(make, heads, kv_heads, size, kv))(out, place)
        results.append((out, kv.values.clone(), kv.values != before))
        kv.close()
    (got, pages, changed), (wanted, their_pages, their_changed) = results
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
    torch.testing.assert_close(pages, their_pages, rtol=1e-4, atol=1e-4)
    assert torch.equal(changed, their_changed)
    assert changed.sum() == 3 * 2 * kv_heads * size


@pytest.mark.parametrize(("heads", "kv_heads", "size"), SHAPES)
def test_attention_when_written_out_then_the_canonical_order(
    tier, heads: int, kv_heads: int, size: int
) -> None:
    """Every bit, for each row of a batch as if it were alone."""
    from kernels.cpu.steps import NativeAttentionStep

    hidden, place = seeded(3, HIDDEN, seed=41), place_of(TABLES, LENGTHS, size)
    kv, out = filled_pool(kv_heads, size), hidden.clone()
    parts = attention_parts(lambda one: native(one, tier), heads, kv_heads, size, kv)
    NativeAttentionStep(parts, tier)(out, place)
    for row in range(3):
        alone = canonical_attention(parts, hidden[row], place, row)
        assert torch.equal(out[row], alone)
    kv.close()


def canonical_attention(parts: AttentionParts, hidden: Tensor, place: Place, row: int) -> Tensor:
    """The step of one token, from the parts of `canonical`; its keys and values are stored."""
    size, heads = parts.head_norms.shape[1], parts.num_heads
    normed = canonical.rms_norm(hidden.unsqueeze(0), parts.norm, parts.eps)
    qkv = parts.qkv(normed).view(-1, size)
    turned = parts.head_norms.shape[0]
    angles = place.cos[row].expand(turned, -1), place.sin[row].expand(turned, -1)
    heads_normed = canonical.rms_norm(qkv[:turned], parts.head_norms, parts.eps)
    queries = canonical.rotary(heads_normed, *angles)[:heads]
    keys, values = parts.kv.read(place.rows, parts.layer_id, row)
    assert torch.equal(keys[-1], canonical.rotary(heads_normed, *angles)[heads:])
    scale = float(canonical.inverse_root(torch.tensor(float(size))))
    attended = canonical.attend(queries, keys, values, scale)
    return hidden + parts.output(attended.view(1, -1))[0]


def test_attention_when_memory_was_never_written_then_it_is_never_read(tier) -> None:
    """NaN in the unused part of a page, and in the pages of others, changes nothing."""
    from kernels.cpu.steps import NativeAttentionStep

    place, outs = place_of([[3, 6]], [21], 24), []
    for poison in (0.0, float("nan")):
        kv = filled_pool(2, 24)
        tokens = torch.full((12 * PAGE_TOKENS, LAYERS), poison)  # per token of each page, per layer
        kept = kv.values.view(12, LAYERS, 2, PAGE_TOKENS, -1)
        mask = torch.zeros(12, LAYERS, 2, PAGE_TOKENS, 1, dtype=torch.bool)
        mask[3, 1], mask[6, 1, :, :4] = True, True
        kept.copy_(torch.where(mask, kept, tokens.new_full((1,), poison)))
        parts = attention_parts(lambda one: native(one, tier), 6, 2, 24, kv)
        out = seeded(1, HIDDEN, seed=42)
        NativeAttentionStep(parts, tier)(out, place)
        outs.append(out)
        kv.close()
    assert torch.equal(*outs)
    assert not outs[0].isnan().any()


def test_attention_when_parts_do_not_fit_then_refused() -> None:
    """Products of another kind or size, and tensors of another shape, never reach C++."""
    from kernels.cpu.steps import NativeAttentionStep

    kv = filled_pool(2, 24)
    parts = attention_parts(native, 6, 2, 24, kv)
    with pytest.raises(ValueError, match="product of ReferenceLinear"):
        NativeAttentionStep(parts._replace(output=reference(WEIGHTS["bf16"])))
    with pytest.raises(ValueError, match="values"):
        NativeAttentionStep(parts._replace(num_heads=4))
    step = NativeAttentionStep(parts)
    with pytest.raises(ValueError, match="expected"):
        step(torch.zeros(2, HIDDEN), place_of([[3, 6]], [21], 24))
    with pytest.raises(ValueError, match="expected"):
        step(torch.zeros(1, HIDDEN), place_of([[3, 6]], [21], 12))
    kv.close()


# --- which one serves --------------------------------------------------------------------------


def test_registry_when_the_module_is_missing_takes_the_reference(monkeypatch) -> None:
    """Without a compiler everything works; so do other dtypes, and GPUs keep their own."""

    def missing() -> None:
        raise ImportError("no module")

    weights = WEIGHTS["fp8"]
    chosen = type(linear(weights, CPU, torch.float32)).__name__
    assert chosen == ("ReferenceLinear" if isa_tier() == "scalar" else "NativeLinear")
    assert isinstance(linear(weights, CPU, torch.bfloat16), dense.ReferenceLinear)
    monkeypatch.setattr(kernels.cpu, "load_native", missing)
    assert isinstance(linear(weights, CPU, torch.float32), dense.ReferenceLinear)
    for op in ("linear", "rms_norm", "attention_step", "router_step", "merge_routes"):
        choice = choose(op, "cpu")
        assert choice.name == "reference"
        assert "not native: it is not built here" in choice.reason
        assert "it runs on cpu" in choose(op, "cuda:0").reason
