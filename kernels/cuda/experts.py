"""Launcher of an MoE layer in a decode step: router, plan, experts, merge (`source/moe.cu`).

Tensors are checked once, when a launcher is made or a layer is bound; a launch only queues three
kernels, so that a step can be captured. Knows no model and no pool of threads: the mailbox is two
addresses. Called by the captured runner.
"""

import ctypes
from ctypes import c_float, c_int32, c_void_p
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.cuda.dense import KernelModule
from kernels.cuda.driver import Argument
from kernels.cuda.moe_state import MAX_WORKERS, MoeScratch, MoeState
from kernels.cuda.shape import DecodeShape
from kernels.layouts import DENSE_DTYPES

MERGE_COLUMNS = 32
DEFAULT_WORKERS = 6
# Until a step gives the CPU pool up. Windows takes a card away from whoever keeps it busy for 2 s,
# so a dead pool must be noticed well before; a live one answers within milliseconds.
WATCHDOG_NS = 1_200_000_000
_THREADS = 256
_WARPS = 8


def moe_defines(shape: DecodeShape) -> dict[str, int]:
    """Return everything that `moe.cu` is compiled with."""
    return shape.defines() | {"FT_WATCHDOG_NS": WATCHDOG_NS}


class MoeArguments(ctypes.Structure):
    """`MoeArguments` of the source: device addresses."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "x",
            "normed",
            "logits",
            "partial",
            "slots",
            "staging",
            "mail",
            "reply",
            "slot_of",
            "valid",
            "owner",
            "score",
            "stamp",
            "uses",
            "victims",
            "link_ok",
            "policy",
            "clock",
            "plan",
            "counters",
        )
    )


class MoeLayerArguments(ctypes.Structure):
    """`MoeLayer` of the source."""

    _fields_ = (
        ("router", c_void_p),
        ("norm", c_void_p),
        ("records", c_void_p),
        ("eps", c_float),
        ("weight_scale", c_float),
        ("layer", c_int32),
        ("workers", c_int32),
        ("next_router", c_void_p),
        ("next_norm", c_void_p),
    )


@dataclass(frozen=True, slots=True)
class MoeMemory:
    """Where things lie that others own, as the device sees them.

    Attributes:
        x: float32 [R, H], the residual stream; read and written.
        slots: address of the first slot; a reserved range may be mapped in part.
        mail, reply: addresses of the mailbox (`kernels.cpu.pool`), 64-byte aligned, zeroed.
    """

    x: Tensor
    slots: int
    mail: int
    reply: int


@dataclass(frozen=True, slots=True)
class MoeLayerWeights:
    """One layer's router, and where its experts lie.

    Attributes:
        router: [E, H] in the shape's encoding.
        norm: float32 [H], of the layer's input.
        records: the device's address of the layer's first record in host memory; 0 if the device
            cannot read it, which the state must be told (`MoeState.set_link`).
        eps: of the norm.
        weight_scale: of every route's weight.
    """

    router: Tensor
    norm: Tensor
    records: int
    eps: float
    weight_scale: float = 1.0


class BoundLayer(NamedTuple):
    """What `launch` wants of a layer.

    Attributes:
        arguments: of every kernel.
        routers: that are asked: its own, and the next layer's if there is one.
    """

    arguments: tuple[Argument, ...]
    routers: int


class MoeKernels:
    """The kernels for one row count; `bind` each layer once, then `launch` it in every step.

    `workers` CTAs read missing units over the link.

    Raises: ValueError for tensors that do not fit the shape, RuntimeError for a module that lacks a
        kernel.
    """

    def __init__(
        self,
        shape: DecodeShape,
        module: KernelModule,
        state: MoeState,
        scratch: MoeScratch,
        memory: MoeMemory,
        workers: int = DEFAULT_WORKERS,
    ) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"{workers} link workers are not within 1..{MAX_WORKERS}")
        if shape.rows > scratch.rows:
            raise ValueError(f"{shape.rows} rows, scratch for {scratch.rows}")
        for name, address in (("mail", memory.mail), ("reply", memory.reply)):
            if address <= 0 or address % 64:
                raise ValueError(f"the {name} is at {address:#x}, no multiple of 64")
        _check("x", memory.x, (shape.rows, shape.hidden), torch.float32, state.owner.device)
        self._shape = shape
        self._device = state.owner.device
        self._workers = workers
        self._route_plan = module.function("route_plan")
        self._experts = module.function("experts")
        self._merge = module.function("merge")
        self._hash = module.function("hash")
        self._keep = (state, scratch, memory)  # as long as their addresses may be used
        self._arguments = _arguments(state, scratch, memory)

    def bind(
        self, layer: int, weights: MoeLayerWeights, following: MoeLayerWeights | None = None
    ) -> BoundLayer:
        """Check a layer's weights and return what `launch` wants; the weights must stay alive.

        `following` is the layer behind it: its router is asked ahead, for the pool to know.
        """
        shape = self._shape
        if not 0 <= layer < shape.num_layers:
            raise ValueError(f"layer {layer} of {shape.num_layers}")
        if following is not None and layer + 1 == shape.num_layers:
            raise ValueError(f"layer {layer} is the last one")
        dtype = DENSE_DTYPES[shape.router]
        for one in (weights, following or weights):
            _check("router", one.router, (shape.num_experts, shape.hidden), dtype, self._device)
            _check("norm", one.norm, (shape.hidden,), torch.float32, self._device)
        own = MoeLayerArguments(
            weights.router.data_ptr(),
            weights.norm.data_ptr(),
            weights.records,
            weights.eps,
            weights.weight_scale,
            layer,
            self._workers,
            following.router.data_ptr() if following else None,
            following.norm.data_ptr() if following else None,
        )
        return BoundLayer((self._arguments, own), 2 if following else 1)

    def launch(self, layer: BoundLayer, stream: int = 0, overlap: bool = True) -> None:
        """Queue one layer: x becomes x + experts(norm(x)). Three kernels of the stream's chain.

        With `overlap` their CTAs may start while the kernel before still runs.
        """
        shape, arguments = self._shape, layer.arguments
        ctas = -(-shape.num_experts // _WARPS) * layer.routers
        self._route_plan.launch((ctas, 1, 1), _THREADS, arguments, stream, 0, overlap)
        routes = shape.rows * shape.top_k
        ctas = self._workers + 1 + routes * shape.layout.num_units
        self._experts.launch((ctas, 1, 1), _THREADS, arguments, stream, 0, overlap)
        grid = (shape.hidden // MERGE_COLUMNS, shape.rows, 1)
        self._merge.launch(grid, MERGE_COLUMNS * shape.top_k, arguments[:1], stream, 0, overlap)

    def launch_hash(self, stream: int = 0) -> None:
        """Queue a mix of x into the hash counter, by which tests compare whole runs."""
        self._hash.launch((1, 1, 1), _THREADS, (self._arguments,), stream, 0, True)


def _arguments(state: MoeState, scratch: MoeScratch, memory: MoeMemory) -> MoeArguments:
    return MoeArguments(
        x=memory.x.data_ptr(),
        normed=scratch.normed.data_ptr(),
        logits=scratch.logits.data_ptr(),
        partial=scratch.partial.data_ptr(),
        slots=memory.slots,
        staging=scratch.staging.data_ptr(),
        mail=memory.mail,
        reply=memory.reply,
        slot_of=state.slot_of.data_ptr(),
        valid=state.valid.data_ptr(),
        owner=state.owner.data_ptr(),
        score=state.score.data_ptr(),
        stamp=state.stamp.data_ptr(),
        uses=state.uses.data_ptr(),
        victims=state.victims.data_ptr(),
        link_ok=state.link_ok.data_ptr(),
        policy=state.policy_block.data_ptr(),
        clock=state.clock.data_ptr(),
        plan=scratch.plan.data_ptr(),
        counters=state.counters.data_ptr(),
    )


def _check(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    if (
        tensor.shape != shape
        or tensor.dtype != dtype
        or tensor.device != device
        or not tensor.is_contiguous()
    ):
        raise ValueError(
            f"{name}: expected {dtype} {list(shape)} on {device}, contiguous; "
            f"got {tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        )
