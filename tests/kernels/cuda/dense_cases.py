"""Decode steps on random weights, and what they must give: for tests of `kernels.cuda.dense`.

The truth is plain torch in float64 on the dequantised weights. A `Rig` holds one step's kernels and
tensors, on the CPU (emulator) or on a card; both run the same tests.
"""

import ctypes
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.cuda.dense import (
    DenseBuffers,
    DenseKernels,
    LayerWeights,
    ModelWeights,
    StepInputs,
    StepReport,
)
from kernels.cuda.shape import PAGE_TOKENS, DecodeShape
from kernels.cuda.tuning import Card
from kernels.layouts import DENSE_DTYPES, RecordLayout
from kernels.weights import DenseWeight

EPS = 1e-6
THETA = 10000.0
COUNTERS = 5


def decode_shape(rows: int = 1, **changes: object) -> DecodeShape:
    """A small step; `hidden` is a change like any other."""
    hidden = int(str(changes.pop("hidden", 256)))
    stored = changes.pop("stored", "bf16")
    sizes: dict[str, object] = {
        "rows": rows,
        "layout": RecordLayout(hidden, 16, "bf16"),
        "num_experts": 4,
        "top_k": 2,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "vocab": 101,
        "projections": stored,
        "head": "bf16",
        "embedding": "bf16",
        "router": "bf16",
        "dense_group": 128 if stored == "fp8_block" else 0,
        "splits": 3,
    }
    return DecodeShape(**(sizes | changes))  # type: ignore[arg-type]


def random_weight(
    generator: torch.Generator, sizes: tuple[int, int], stored: str, group: int
) -> DenseWeight:
    """A weight over several binades, so that sums are not exact by chance."""
    device = generator.device
    powers = torch.randint(-3, 3, sizes, generator=generator, device=device)
    values = torch.randn(sizes, generator=generator, device=device) * 2.0**powers
    if stored != "fp8_block":
        return DenseWeight((values / sizes[1] ** 0.5).to(DENSE_DTYPES[stored]))
    blocks = (-(-sizes[0] // group), -(-sizes[1] // group))
    scales = torch.rand(blocks, generator=generator, device=device) + 0.5
    scales /= sizes[1] ** 0.5
    return DenseWeight(values.to(DENSE_DTYPES[stored]), scales, group)


@dataclass
class Rig:
    """One step: kernels, weights, inputs and a pool of keys and values with garbage around.

    `contexts` are the rows' lengths, the new token included.
    """

    shape: DecodeShape
    module: object
    contexts: list[int]
    device: torch.device
    card: Card
    seed: int = 1

    def __post_init__(self) -> None:
        shape, device = self.shape, self.device
        self.generator = torch.Generator(device).manual_seed(self.seed)
        self.weights = self._weights()
        pages_of_a_row = max(-(-context // PAGE_TOKENS) for context in self.contexts) + 1
        num_pages = shape.rows * pages_of_a_row
        self.inputs = StepInputs(shape.rows, pages_of_a_row, device)
        pages = torch.randperm(num_pages, generator=self.generator, device=device)
        self.inputs.page_table.copy_(pages.view(shape.rows, -1))
        self.inputs.positions.copy_(torch.tensor(self.contexts) - 1)
        self.inputs.token_ids.copy_(torch.arange(shape.rows) * 37 % shape.vocab)
        sizes = (num_pages, shape.num_layers, 2, PAGE_TOKENS, shape.num_kv_heads, shape.head_dim)
        self.pool = self.random(*sizes).bfloat16()
        self._spoil_what_is_not_context()
        self.buffers = DenseBuffers(shape, device)
        self.kernels = DenseKernels(
            shape,
            self.module,  # type: ignore[arg-type]
            self.weights,
            self.inputs,
            self.buffers,
            self.pool.data_ptr(),
            self.card,
        )
        self.counters = torch.arange(COUNTERS, dtype=torch.int64, device=device) * 10
        self.errors = torch.tensor([3], dtype=torch.int64, device=device)
        self.step = torch.tensor([41], dtype=torch.int64, device=device)
        # Pinned memory has one address on both sides.
        self._told = torch.zeros(
            ctypes.sizeof(StepReport), dtype=torch.uint8, pin_memory=device.type != "cpu"
        )
        self.report = StepReport.from_address(self._told.data_ptr())
        self.finish = self.kernels.finish(
            self.counters, self.errors, self.step, self._told.data_ptr()
        )

    def random(self, *sizes: int) -> Tensor:
        """Normally distributed, on the device."""
        return torch.randn(sizes, generator=self.generator, device=self.device)

    def random_x(self) -> Tensor:
        """Fill the residual stream; returns a copy."""
        rows, hidden = self.buffers.x.shape
        sizes = torch.tensor([4.0**row for row in range(rows)], device=self.device)
        self.buffers.x.copy_(self.random(rows, hidden) * sizes.unsqueeze(1))
        return self.buffers.x.clone()

    def synchronize(self) -> None:
        """Wait for what was launched."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def whole_step(self, alone: bool) -> Tensor:
        """All kernels of a step in order; `alone`: each waits for the one before. Returns x."""
        self.inputs.positions.copy_(torch.tensor(self.contexts) - 1)  # a step leaves the next ones
        kernels = self.kernels
        launches = [kernels.embed]
        for layer in range(self.shape.num_layers):
            for kernel in (kernels.qkv, kernels.attention, kernels.output):
                launches.append(partial(kernel, layer))
        for launch in (*launches, kernels.head, self.finish):
            launch(0)
            if alone:
                self.synchronize()
        self.synchronize()
        return self.buffers.x.clone()

    def cached(self, row: int, layer: int) -> tuple[Tensor, Tensor]:
        """A row's keys and values in the pool, in order: two of [context, Nkv, D] float64."""
        pages = self.inputs.page_table[row].long()
        taken = self.pool[pages, layer].double()  # [P, 2, 16, Nkv, D]
        keys, values = taken.transpose(0, 1).flatten(1, 2)
        return keys[: self.contexts[row]], values[: self.contexts[row]]

    def _spoil_what_is_not_context(self) -> None:
        """NaN in every cell that no step may read, the new token's own included."""
        for row, context in enumerate(self.contexts):
            pages = self.inputs.page_table[row].long()
            for token in range(context - 1, len(pages) * PAGE_TOKENS):
                self.pool[pages[token // PAGE_TOKENS], :, :, token % PAGE_TOKENS] = float("nan")

    def _weights(self) -> ModelWeights:
        shape, hidden = self.shape, self.shape.hidden
        group = shape.dense_group

        def norm(size: int) -> Tensor:
            return torch.rand(size, generator=self.generator, device=self.device) + 0.5

        def weight(rows: int, columns: int, stored: str) -> DenseWeight:
            return random_weight(self.generator, (rows, columns), stored, group)

        def layer() -> LayerWeights:
            return LayerWeights(
                weight(shape.query_width, hidden, shape.projections),
                weight(shape.kv_width, hidden, shape.projections),
                weight(shape.kv_width, hidden, shape.projections),
                weight(hidden, shape.query_width, shape.projections),
                norm(hidden),
                norm(shape.head_dim),
                norm(shape.head_dim),
            )

        return ModelWeights(
            weight(shape.vocab, hidden, shape.embedding),
            weight(shape.vocab, hidden, shape.head),
            norm(hidden),
            rotary_table(max(self.contexts), shape.head_dim).to(self.device),
            tuple(layer() for _ in range(shape.num_layers)),
            EPS,
        )


def rotary_table(positions: int, head_dim: int) -> Tensor:
    """Cosines and sines: [positions, D/2, 2] float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.arange(positions, dtype=torch.float64).unsqueeze(1) / THETA**exponents
    return torch.stack((angles.cos(), angles.sin()), dim=-1).float().contiguous()


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm in float64."""
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def exact(weight: DenseWeight) -> Tensor:
    """The weight's values as they count, in float64."""
    return weight.dequantise().double()


def rotated(x: Tensor, table: Tensor, position: int) -> Tensor:
    """Turn value d with value d + D/2. Shapes: x [N, D]."""
    cos, sin = table[position].double().unbind(-1)
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def expected_qkv(rig: Rig, layer: int, x: Tensor) -> Tensor:
    """Shapes: x [R, H] -> [R, q + k + v]."""
    of = rig.weights.layers[layer]
    together = torch.cat([exact(part) for part in (of.q, of.k, of.v)])
    return normed(x, of.input_norm) @ together.T


def expected_new_entries(rig: Rig, layer: int, row: int) -> tuple[Tensor, Tensor]:
    """Key and value that a row's new token adds, not rounded: two of [Nkv, D]."""
    shape, of = rig.shape, rig.weights.layers[layer]
    parts = rig.buffers.qkv[row].double().split((shape.query_width, shape.kv_width, shape.kv_width))
    key, value = (part.view(shape.num_kv_heads, shape.head_dim) for part in parts[1:])
    position = rig.contexts[row] - 1
    return rotated(normed(key, of.key_norm), rig.weights.rotary, position), value


def expected_attention(rig: Rig, layer: int, row: int) -> Tensor:
    """What a row's heads give, from the keys and values that lie in the pool: [N D]."""
    shape, of = rig.shape, rig.weights.layers[layer]
    query = rig.buffers.qkv[row, : shape.query_width].double().view(-1, shape.head_dim)
    query = rotated(normed(query, of.query_norm), rig.weights.rotary, rig.contexts[row] - 1)
    keys, values = rig.cached(row, layer)
    share = shape.heads_per_kv
    scores = torch.einsum("nd,cnd->nc", query, keys.repeat_interleave(share, 1))
    weights = (scores * shape.head_dim**-0.5).softmax(-1)
    return torch.einsum("nc,cnd->nd", weights, values.repeat_interleave(share, 1)).flatten()
