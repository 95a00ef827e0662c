"""The layers, each alone: shapes, order of stacked weights, what is handed on."""

import pytest
import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import ForwardBatch
from engine.layers.attention import Attention, AttentionInputs, AttentionWeights
from engine.layers.embedding import Embedding, Head, pick_rows
from engine.layers.mlp import GatedMlp
from engine.layers.moe import MoeLayer, Phase
from engine.layers.rotary import Rotary
from engine.moe.router import Routing
from kernels.device.cpu import CpuDevice

CPU = torch.device("cpu")


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [(), (0,), (4,), (1, 2, 3), (0, 2, 4), (3, 1)])
def test_pick_rows_when_any_then_those_rows(rows: tuple[int, ...]) -> None:
    """A run of rows is a view, anything else a copy, none an empty tensor."""
    hidden = seeded(5, 3)
    picked = pick_rows(hidden, rows)
    assert picked.shape == (len(rows), 3)
    assert all(torch.equal(picked[i], hidden[row]) for i, row in enumerate(rows))


def test_embedding_when_tied_then_the_head_is_the_table() -> None:
    """A token's own row scores the square of its length."""
    table = seeded(7, 4)
    rows = Embedding(table)(torch.tensor([3, 3, 0]))
    logits = Head(table)(rows)
    torch.testing.assert_close(logits[:, 3], (rows * table[3]).sum(1))
    assert logits.dtype == torch.float32


def test_gated_mlp_when_called_then_gate_and_up_are_not_swapped() -> None:
    """Written out with three products."""
    gate, up, down, x = seeded(5, 4), seeded(5, 4, seed=1), seeded(4, 5, seed=2), seeded(3, 4)
    expected = (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    torch.testing.assert_close(GatedMlp(gate, up, down)(x, "decode"), expected)


class Recorded:
    """Experts that answer with zeros and keep what they were asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Phase, Routing]] = []

    def forward(self, moe_layer: int, hidden: Tensor, routing: Routing, phase: Phase) -> Tensor:
        self.calls.append((moe_layer, phase, routing))
        return torch.zeros_like(hidden, dtype=torch.float32)


def test_moe_layer_when_called_then_routes_and_phase_are_handed_on() -> None:
    """The layer itself decides nothing; its output has the activations' dtype."""
    experts, seen = Recorded(), []

    def route(logits: Tensor) -> Routing:
        seen.append(logits)
        return Routing(logits.argmax(1, keepdim=True).int(), torch.ones(logits.shape[0], 1))

    gate, hidden = seeded(5, 4).bfloat16(), seeded(3, 4, seed=1).bfloat16()
    out = MoeLayer(2, gate, route, experts)(hidden, "prefill")
    moe_layer, phase, routing = experts.calls[0]
    assert (moe_layer, phase, out.dtype, out.shape) == (2, "prefill", torch.bfloat16, (3, 4))
    assert seen[0].dtype == torch.float32
    assert torch.equal(routing.ids[:, 0].long(), (hidden @ gate.T).argmax(1))


HIDDEN, HEADS, KV_HEADS, SIZE = 12, 4, 2, 6


def make_attention(kv: KvPool) -> Attention:
    weights = AttentionWeights(
        seeded(HEADS * SIZE, HIDDEN, seed=1),
        seeded(KV_HEADS * SIZE, HIDDEN, seed=2),
        seeded(KV_HEADS * SIZE, HIDDEN, seed=3),
        seeded(HIDDEN, HEADS * SIZE, seed=4),
        seeded(SIZE, seed=5),
        seeded(SIZE, seed=6),
    )
    return Attention(0, weights, 1e-6, kv)


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
        return attention(hidden, AttentionInputs.of(one, kv, rotary, torch.float32))

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
    out = attention(text[:20], AttentionInputs.of(first, kv, rotary, torch.float32))
    one = attention(text[20:], AttentionInputs.of(last, kv, rotary, torch.float32))
    assert not out.isnan().any()
    assert not one.isnan().any()
