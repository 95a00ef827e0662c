"""The layers, each alone: shapes, order of stacked weights, what is handed on."""

import pytest
import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import ForwardBatch
from engine.layers.attention import Attention, AttentionInputs, AttentionWeights
from engine.layers.embedding import Embedding, Head, pick_rows
from engine.layers.mlp import GatedMlp, MlpWeights
from engine.layers.moe import MoeLayer, Phase
from engine.layers.norm import RmsNorm
from engine.layers.rotary import Rotary
from engine.models.spec import RouterSpec
from engine.moe.router import Inputs, Router, Routing
from kernels.device.cpu import CpuDevice
from kernels.reference.dense import rms_norm
from kernels.weights import DenseWeight

CPU = torch.device("cpu")
PLACE = (CPU, torch.float32)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weight(*shape: int, seed: int = 0) -> DenseWeight:
    return DenseWeight(seeded(*shape, seed=seed))


@pytest.mark.parametrize("rows", [(), (0,), (4,), (1, 2, 3), (0, 2, 4), (3, 1)])
def test_pick_rows_when_any_then_those_rows(rows: tuple[int, ...]) -> None:
    """A run of rows is a view, anything else a copy, none an empty tensor."""
    hidden = seeded(5, 3)
    picked = pick_rows(hidden, rows)
    assert picked.shape == (len(rows), 3)
    assert all(torch.equal(picked[i], hidden[row]) for i, row in enumerate(rows))


def test_embedding_when_tied_then_the_head_is_the_table() -> None:
    """A token's own row scores the square of its length."""
    table = weight(7, 4)
    rows = Embedding(table, *PLACE)(torch.tensor([3, 3, 0]))
    logits = Head(table, *PLACE)(rows)
    torch.testing.assert_close(logits[:, 3], (rows * table.values[3]).sum(1))
    assert logits.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding_when_stored_in_any_way_then_rows_are_the_values(dtype: torch.dtype) -> None:
    """bf16 stays bf16 in memory, and blocks with scales are multiplied out."""
    codes = seeded(20, 40).to(torch.float8_e4m3fn)
    ids = torch.tensor([19, 2])
    for table in (
        DenseWeight(seeded(20, 40).bfloat16()),
        DenseWeight(codes, seeded(2, 3), 16),
    ):
        rows = Embedding(table, CPU, dtype)(ids)
        assert torch.equal(rows, table.dequantise()[ids].to(dtype))


def test_gated_mlp_when_called_then_gate_and_up_are_not_swapped() -> None:
    """Written out with three products."""
    weights = MlpWeights(weight(5, 4), weight(5, 4, seed=1), weight(4, 5, seed=2))
    norm, hidden = weight(4, seed=3), seeded(3, 4)
    gate, up, down = (one.values for one in weights)
    x = rms_norm(hidden, norm.values, 1e-6)
    expected = hidden + (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    GatedMlp(RmsNorm(norm, 1e-6, *PLACE), weights, *PLACE)(hidden, "decode")
    torch.testing.assert_close(hidden, expected)


class Recorded:
    """Experts that answer with ones and keep what they were asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Phase, Tensor, Routing]] = []

    def add(
        self,
        moe_layer: int,
        hidden: Tensor,
        inputs: Inputs,
        routing: Routing,
        phase: Phase,
    ) -> None:
        tiles = [(0, 2), (2, len(hidden))]
        x = torch.empty_like(hidden)
        for begin, end in tiles:  # a tile's rows change before the next one is asked for
            x[begin:end] = inputs(begin, end)
            hidden[begin:end] += 1
        self.calls.append((moe_layer, phase, x, routing))


@pytest.mark.parametrize("tile", [1, 2, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moe_layer_when_called_then_routes_and_phase_are_handed_on(
    dtype: torch.dtype, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experts see the normed stream, and their output is added to it.

    Also where more tokens come than are routed together, and inputs are worked out again.
    """
    monkeypatch.setattr("engine.moe.router.TILE_TOKENS", tile)
    experts, norm, gate = Recorded(), weight(4, seed=2), weight(5, 4)
    router = Router(RouterSpec(5, 2), norm, 1e-6, gate, CPU, dtype)
    hidden = seeded(3, 4, seed=1).to(dtype)
    before = hidden.clone()
    MoeLayer(2, router, experts)(hidden, "prefill")
    moe_layer, phase, x, routing = experts.calls[0]
    assert (moe_layer, phase, routing.weights.dtype) == (2, "prefill", torch.float32)
    assert torch.equal(hidden, before + 1)
    expected = rms_norm(before, norm.values.to(dtype), 1e-6)
    torch.testing.assert_close(x, expected)
    logits = expected @ gate.values.to(dtype).T
    assert torch.equal(routing.ids[:, 0].long(), logits.argmax(1))


HIDDEN, HEADS, KV_HEADS, SIZE = 12, 4, 2, 6


def make_attention(kv: KvPool) -> Attention:
    weights = AttentionWeights(
        weight(HEADS * SIZE, HIDDEN, seed=1),
        weight(KV_HEADS * SIZE, HIDDEN, seed=2),
        weight(KV_HEADS * SIZE, HIDDEN, seed=3),
        weight(HIDDEN, HEADS * SIZE, seed=4),
        weight(SIZE, seed=5),
        weight(SIZE, seed=6),
    )
    return Attention(0, weight(HIDDEN, seed=9), weights, 1e-6, kv, CPU)


def batch(phase: Phase, spans: list[tuple[int, int]], tables: list[list[int]]) -> ForwardBatch:
    """Tokens [start, end) of each sequence."""
    positions = [p for start, end in spans for p in range(start, end)]
    slots = [
        table[p // 16] * 16 + p % 16
        for (start, end), table in zip(spans, tables, strict=True)
        for p in range(start, end)
    ]
    at = torch.tensor(positions)
    ends = tuple(end for _, end in spans)
    return ForwardBatch(phase, at, at, torch.tensor(slots), torch.tensor(tables), ends, ())


def test_attention_when_rows_are_batched_then_as_alone() -> None:
    """A row does not depend on who shares the step; one prompt at once gives the same."""
    kv = KvPool(1, KV_HEADS, SIZE, torch.float32, CpuDevice(1 << 20), 8, 8)
    attention, rotary = make_attention(kv), Rotary(SIZE, 1e4, CPU)
    texts = [seeded(20, HIDDEN, seed=7), seeded(9, HIDDEN, seed=8)]
    tables = [[3, 0], [5, 0]]

    def run(phase: Phase, hidden: Tensor, one: ForwardBatch) -> Tensor:
        out = hidden.clone()
        attention(out, AttentionInputs.of(one, kv, rotary, torch.float32))
        return out

    for text, table in zip(texts, tables, strict=True):
        run("prefill", text[:-1], batch("prefill", [(0, len(text) - 1)], [table]))
    spans = [(len(text) - 1, len(text)) for text in texts]
    alone = [
        run("decode", text[-1:], batch("decode", [span], [table]))
        for text, span, table in zip(texts, spans, tables, strict=True)
    ]
    both = run("decode", torch.stack([t[-1] for t in texts]), batch("decode", spans, tables))
    torch.testing.assert_close(both, torch.cat(alone), rtol=1e-5, atol=1e-5)
    whole = run("prefill", texts[0], batch("prefill", [(0, 20)], [[1, 2]]))
    torch.testing.assert_close(whole[-1:], alone[0], rtol=1e-5, atol=1e-5)


def test_attention_when_memory_was_never_written_then_it_is_never_read() -> None:
    """NaN in the unused part of a page, and in the pages of others, changes nothing."""
    kv = KvPool(1, KV_HEADS, SIZE, torch.float32, CpuDevice(1 << 20), 8, 8)
    attention, rotary = make_attention(kv), Rotary(SIZE, 1e4, CPU)
    text = seeded(21, HIDDEN, seed=7)
    nan = torch.full((8 * 16, 2 * KV_HEADS, SIZE), float("nan"))
    every = batch("prefill", [(0, 128)], [list(range(8))])
    kv.write(kv.rows(every), 0, nan)
    first = batch("prefill", [(0, 20)], [[6, 2]])
    last = batch("decode", [(20, 21)], [[6, 2]])
    attention(text[:20], AttentionInputs.of(first, kv, rotary, torch.float32))
    attention(text[20:], AttentionInputs.of(last, kv, rotary, torch.float32))
    assert not text.isnan().any()
