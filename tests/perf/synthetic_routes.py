"""Routes of the synthetic model without the model: `python -m tests.perf.synthetic_routes FILE`.

The forward of `tests.perf.synthetic_weights`, one layer after the other and one expert at a time,
so that little more than embedding and head lies in memory. What it keeps are the router's choices,
for `tests.perf.replay`. Narrow experts add as much to the residual as wide ones and cost less: two
minutes on two cores. Products take bf16 inputs, as a prompt's do; near ties may fall elsewhere than
on a card.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from engine.system import usable_cores
from kernels.reference.records import unpack_record
from tests.perf.synthetic_weights import SEED, Shape, SyntheticWeights

VOCAB = 16_384  # of the ring: enough for some prompts, and quick to make
NARROW = 96  # rows of an expert
EPS = 1e-6
THETA = 1e6


def main(arguments: list[str] | None = None) -> int:
    """Make the routes of some conversations and keep them."""
    options = _parser().parse_args(arguments)
    shape = Shape(vocab=options.vocab, layers=options.layers, intermediate=options.intermediate)
    weights = SyntheticWeights(shape, options.seed, usable_cores())
    embedding = weights.embedding_and_head()[0]
    spans = [range(first, first + options.tokens) for first in options.starts]
    states = embedding[[token % shape.vocab for span in spans for token in span]].float()
    routes = list(layer_routes(weights, states, [options.tokens] * len(spans)))
    lengths = [options.tokens] * len(spans)
    np.savez_compressed(
        options.file,
        route=np.sort(np.stack(routes, 1), -1),  # ascending experts pack better
        length=np.asarray(lengths, np.int32),
        prompt=np.full(len(lengths), options.prompt, np.int32),
        experts=np.int32(shape.experts),
    )
    print(f"{options.file}: {options.file.stat().st_size:,} bytes")
    return 0


@torch.inference_mode()
def layer_routes(
    weights: SyntheticWeights, states: Tensor, lengths: Sequence[int]
) -> Iterator[NDArray[np.uint8]]:
    """Yield each layer's choices, uint8 [T, K], for sequences of these lengths, one after another.

    Shapes: states [T, H] float32, the embeddings; they are changed.
    """
    shape = weights.shape
    ends = np.cumsum([0, *lengths]).tolist()
    source = weights.experts()
    record = np.empty(shape.layout.record_bytes, np.uint8)
    for layer in range(shape.layers):
        dense = weights.layer(layer)
        for first, end in pairwise(ends):
            states[first:end] += _attention(shape, dense, states[first:end])
        normed = _norm(states)
        shares = (normed @ dense["mlp.gate.weight"].float().T).softmax(-1)
        picked, ids = shares.topk(shape.top_k, -1)
        yield ids.to(torch.uint8).numpy()
        if layer + 1 == shape.layers:
            return
        picked /= picked.sum(-1, keepdim=True)
        for expert in range(shape.experts):
            rows, places = (ids == expert).nonzero(as_tuple=True)
            if len(rows):
                source.fill(layer * shape.experts + expert, record)
                gate, up, down = unpack_record(shape.layout, torch.from_numpy(record))
                out = _expert(normed[rows], gate, up, down)
                states.index_add_(0, rows, out * picked[rows, places, None])


def _expert(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    x, gate, up, down = (part.to(torch.bfloat16) for part in (x, gate, up, down))
    return (functional.silu(x @ gate.T) * (x @ up.T) @ down).float()


def _attention(shape: Shape, dense: dict[str, Tensor], states: Tensor) -> Tensor:
    """Return what one sequence's attention adds, [T, H]; all norm weights are 1."""
    length, half = len(states), shape.head_dim // 2
    x = _norm(states).to(torch.bfloat16)
    q, k, v = (
        (x @ dense[f"self_attn.{part}_proj.weight"].T).float().view(length, -1, shape.head_dim)
        for part in "qkv"
    )
    angles = torch.arange(length)[:, None] * THETA ** -(torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def rotated(heads: Tensor) -> Tensor:
        normed = _norm(heads)
        one, other = normed[..., :half], normed[..., half:]
        return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)

    q, k, v = (part.transpose(0, 1)[None] for part in (rotated(q), rotated(k), v))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    flat = mixed[0].transpose(0, 1).reshape(length, -1).to(torch.bfloat16)
    return (flat @ dense["self_attn.o_proj.weight"].T).float()


def _norm(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="an .npz")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--intermediate", type=int, default=NARROW)
    parser.add_argument("--starts", type=int, nargs="+", default=[3000], help="of conversations")
    parser.add_argument("--tokens", type=int, default=704, help="of each, its prompt included")
    parser.add_argument("--prompt", type=int, default=512)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
