"""Launchers of everything in a decode step but the experts: `source/dense.cu`.

Tensors are checked once, when a launcher is made; a launch then only queues, so that a step can be
captured. Knows no model and no cache: weights and buffers come from the caller, who keeps them in
place as long as a captured step may run. Called by the captured runner.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kernels.cuda.dense_arguments import (
    AttentionArguments,
    EmbedArguments,
    FinishArguments,
    GemvArguments,
)
from kernels.cuda.driver import Argument
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import ATTENTION_WARPS, Card, GemvPlan, GemvPlans, gemv_plans
from kernels.layouts import DENSE_DTYPES, DenseEncoding
from kernels.weights import DenseWeight

REPORT_ROWS = 8
REPORT_COUNTERS = 32
_EMBED_THREADS = 256
_FINISH_THREADS = 256
_FINISH_CTAS = 32


class Launchable(Protocol):
    """A kernel; see `kernels.cuda.driver.Function`."""

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[Argument],
        stream: int = 0,
        shared_bytes: int = 0,
        overlap: bool = False,
    ) -> None:
        """Queue it."""
        ...


class KernelModule(Protocol):
    """Compiled kernels by name; see `kernels.cuda.driver.Module`."""

    def function(self, name: str) -> Launchable:
        """Return one."""
        ...


class StepReport(ctypes.Structure):
    """What a step tells the host, in memory that the device writes. `step` is stored last.

    `ids` holds each row's best token, -1 where a logit is NaN.
    """

    _fields_ = (
        ("step", c_int64),
        ("errors", c_int64),
        ("ids", c_int32 * REPORT_ROWS),
        ("counters", c_int64 * REPORT_COUNTERS),
    )


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """One layer's weights outside its experts, on the device.

    Shapes: q [N D, H], k and v [Nkv D, H], o [H, N D]; norms float32, of the input [H], of each
    head of q and k [D].
    """

    q: DenseWeight
    k: DenseWeight
    v: DenseWeight
    o: DenseWeight
    input_norm: Tensor
    query_norm: Tensor
    key_norm: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ModelWeights:
    """All weights outside the experts, on the device.

    Shapes: embedding and head [V, H], final_norm [H] float32, rotary [positions, D/2, 2] float32:
    cosine and sine.
    """

    embedding: DenseWeight
    head: DenseWeight
    final_norm: Tensor
    rotary: Tensor
    layers: tuple[LayerWeights, ...]
    eps: float


class StepInputs:
    """What the host says before each step, in one buffer that one copy refreshes.

    Attributes:
        packed: int32 [R (2 + P)]: all of it.
        token_ids, positions: int32 [R], views; positions from 0.
        page_table: int32 [R, P], a view.
    """

    def __init__(self, rows: int, pages_of_a_row: int, device: torch.device) -> None:
        self.packed = torch.zeros(rows * (2 + pages_of_a_row), dtype=torch.int32, device=device)
        self.token_ids = self.packed[:rows]
        self.positions = self.packed[rows : 2 * rows]
        self.page_table = self.packed[2 * rows :].view(rows, pages_of_a_row)


class DenseBuffers:
    """What the kernels of a step leave for each other.

    Attributes:
        x: [R, H], the residual stream; logits: [R, V]; ids: [R] int32. float32 but for the ids.
    """

    def __init__(self, shape: DecodeShape, device: torch.device) -> None:
        def room(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=device)

        rows, heads, splits = shape.rows, shape.num_heads, shape.splits
        self.x = room(rows, shape.hidden)
        self.qkv = room(rows, shape.qkv_width)
        self.attended = room(rows, shape.query_width)
        self.sums = room(rows, heads, splits, shape.head_dim)
        self.stats = room(rows, heads, splits, 2)
        self.tickets = room(1 + rows * heads, dtype=torch.int32)
        self.logits = room(rows, shape.vocab)
        self.bests = room(_FINISH_CTAS, rows, dtype=torch.int64)
        self.ids = room(rows, dtype=torch.int32)


class DenseKernels:
    """Launches the kernels of one shape on fixed tensors.

    Raises: ValueError for a tensor that is not what the kernels were compiled for.
    """

    def __init__(  # noqa: PLR0913 - the parts of a step, each from another owner
        self,
        shape: DecodeShape,
        module: KernelModule,
        weights: ModelWeights,
        inputs: StepInputs,
        buffers: DenseBuffers,
        kv_pool: int,
        card: Card,
        plans: GemvPlans | None = None,
    ) -> None:
        """Take the parts; `kv_pool` is the address of page 0 of the keys and values (bf16).

        `plans` are those that the module was compiled with, if not `gemv_plans(shape)`.
        """
        _check_model(shape, weights)
        self._shape, self._card = shape, card
        self._plans = plans or gemv_plans(shape)
        self._kernels = {name: module.function(name) for name in _KERNELS}
        self._embed = EmbedArguments(
            weights.embedding.values.data_ptr(),
            inputs.token_ids.data_ptr(),
            buffers.x.data_ptr(),
        )
        self._head = _gemv_arguments(
            (weights.head,), buffers.x, buffers.logits, weights.final_norm, weights.eps
        )
        self._layers = tuple(
            (
                _gemv_arguments(
                    (layer.q, layer.k, layer.v),
                    buffers.x,
                    buffers.qkv,
                    layer.input_norm,
                    weights.eps,
                ),
                _attention_arguments(index, weights, inputs, buffers, kv_pool),
                _gemv_arguments((layer.o,), buffers.attended, buffers.x, None, weights.eps),
            )
            for index, layer in enumerate(weights.layers)
        )
        self._inputs, self._buffers = inputs, buffers
        self._kept = (weights, inputs, buffers)  # addresses of theirs are in the arguments

    def embed(self, stream: int) -> None:
        """Put the rows of this step's tokens into x; the first kernel of a step."""
        rows = self._shape.rows
        self._kernels["embed"].launch((rows, 1, 1), _EMBED_THREADS, (self._embed,), stream)

    def qkv(self, layer: int, stream: int) -> None:
        """Queries, keys and values of the normed x."""
        self._gemv("qkv_projection", self._plans.qkv, self._layers[layer][0], stream)

    def attention(self, layer: int, stream: int) -> None:
        """Append keys and values to the pool, then attend."""
        shape = self._shape
        blocks = -(-shape.heads_per_kv // ATTENTION_WARPS)
        self._kernels["attention_decode"].launch(
            (shape.splits, shape.num_kv_heads * blocks, shape.rows),
            32 * max(4, -(-shape.heads_per_kv // blocks)),
            (self._layers[layer][1],),
            stream,
            overlap=True,
        )

    def output(self, layer: int, stream: int) -> None:
        """Add the projection of what attention gave to x."""
        self._gemv("output_projection", self._plans.output, self._layers[layer][2], stream)

    def head(self, stream: int) -> None:
        """Logits of the normed x."""
        self._gemv("head_logits", self._plans.head, self._head, stream)

    def finish(
        self, counters: Tensor, errors: Tensor, step: Tensor, report: int
    ) -> "FinishLauncher":
        """Return the launcher of the step's last kernel.

        Shapes: counters int64 [up to 32], errors and step int64 [1]; `report` is the device's
        address of a StepReport in host memory. `step` and the inputs' positions are raised by one
        each time.
        """
        for name, tensor, most in (
            ("counters", counters, REPORT_COUNTERS),
            ("errors", errors, 1),
            ("step", step, 1),
        ):
            if tensor.dtype != torch.int64 or not 1 <= tensor.numel() <= most:
                raise ValueError(f"{name}: {tensor.dtype} {list(tensor.shape)}, not int64 [{most}]")
        buffers = self._buffers
        arguments = FinishArguments(
            buffers.logits.data_ptr(),
            buffers.bests.data_ptr(),
            buffers.tickets.data_ptr(),
            buffers.ids.data_ptr(),
            self._inputs.positions.data_ptr(),
            counters.data_ptr(),
            errors.data_ptr(),
            step.data_ptr(),
            report,
            counters.numel(),
        )
        return FinishLauncher(self._kernels["finish_step"], arguments, (counters, errors, step))

    def _gemv(self, name: str, plan: GemvPlan, arguments: GemvArguments, stream: int) -> None:
        self._kernels[name].launch(
            (plan.num_ctas(self._card), 1, 1),
            plan.threads,
            (arguments,),
            stream,
            shared_bytes=plan.shared_bytes,
            overlap=True,
        )


class FinishLauncher:
    """The step's last kernel on fixed tensors, which it keeps alive; see `DenseKernels.finish`."""

    def __init__(
        self, kernel: Launchable, arguments: FinishArguments, kept: tuple[Tensor, ...]
    ) -> None:
        self._kernel, self._arguments, self._kept = kernel, arguments, kept

    def __call__(self, stream: int) -> None:
        """Take the best tokens and tell the host."""
        self._kernel.launch(
            (_FINISH_CTAS, 1, 1), _FINISH_THREADS, (self._arguments,), stream, overlap=True
        )


_KERNELS = (
    "embed",
    "qkv_projection",
    "attention_decode",
    "output_projection",
    "head_logits",
    "finish_step",
)


def _gemv_arguments(
    parts: Sequence[DenseWeight], x: Tensor, out: Tensor, norm: Tensor | None, eps: float
) -> GemvArguments:
    missing = 3 - len(parts)
    addresses = [part.values.data_ptr() for part in parts]
    scales = [part.scales.data_ptr() if part.scales is not None else None for part in parts]
    rows = [part.shape[0] for part in parts]
    return GemvArguments(
        (c_void_p * 3)(*addresses, *[None] * missing),
        (c_void_p * 3)(*scales, *[None] * missing),
        x.data_ptr(),
        norm.data_ptr() if norm is not None else None,
        out.data_ptr(),
        (c_int * 3)(*rows, *[0] * missing),
        eps,
    )


def _attention_arguments(
    layer: int, weights: ModelWeights, inputs: StepInputs, buffers: DenseBuffers, kv_pool: int
) -> AttentionArguments:
    return AttentionArguments(
        buffers.qkv.data_ptr(),
        weights.layers[layer].query_norm.data_ptr(),
        weights.layers[layer].key_norm.data_ptr(),
        weights.rotary.data_ptr(),
        inputs.positions.data_ptr(),
        inputs.page_table.data_ptr(),
        kv_pool,
        buffers.sums.data_ptr(),
        buffers.stats.data_ptr(),
        buffers.tickets[1:].data_ptr(),
        buffers.attended.data_ptr(),
        inputs.page_table.shape[1],
        layer,
        weights.eps,
    )


def _check_model(shape: DecodeShape, weights: ModelWeights) -> None:
    """Raise ValueError, naming the tensor, unless everything is as it was compiled."""
    hidden, head_dim = shape.hidden, shape.head_dim
    group = shape.dense_group
    vocab = (shape.vocab, hidden)
    _check_weight("embedding", weights.embedding, vocab, shape.embedding, group)
    _check_weight("head", weights.head, vocab, shape.head, group)
    _check("final norm", weights.final_norm, (hidden,))
    _check("rotary", weights.rotary, (weights.rotary.shape[0], head_dim // 2, 2))
    if len(weights.layers) != shape.num_layers:
        raise ValueError(f"{len(weights.layers)} layers, compiled for {shape.num_layers}")
    for index, layer in enumerate(weights.layers):
        for name, weight, sizes in (
            ("q", layer.q, (shape.query_width, hidden)),
            ("k", layer.k, (shape.kv_width, hidden)),
            ("v", layer.v, (shape.kv_width, hidden)),
            ("o", layer.o, (hidden, shape.query_width)),
        ):
            _check_weight(f"layer {index} {name}", weight, sizes, shape.projections, group)
        _check(f"layer {index} input norm", layer.input_norm, (hidden,))
        _check(f"layer {index} query norm", layer.query_norm, (head_dim,))
        _check(f"layer {index} key norm", layer.key_norm, (head_dim,))


def _check_weight(
    name: str, weight: DenseWeight, sizes: tuple[int, ...], encoding: DenseEncoding, group: int
) -> None:
    _check(name, weight.values, sizes, DENSE_DTYPES[encoding])
    if weight.scales is not None and weight.group != group:
        raise ValueError(f"{name}: blocks of {weight.group}, compiled for {group}")


def _check(
    name: str, tensor: Tensor, sizes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> None:
    if tuple(tensor.shape) != sizes or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(
            f"{name}: {tensor.dtype} {list(tensor.shape)}, compiled for {dtype} {list(sizes)}, "
            "contiguous"
        )
