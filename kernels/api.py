"""Typed entry points of the registry's operations. Resolve once, when something is built.

Called by `engine.moe` and `engine.layers`; knows no model.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch

from kernels.layouts import RecordLayout
from kernels.registry import choose
from kernels.steps import AttentionParts, Linear, Places, RouterParts
from kernels.weights import DenseWeight


class ExpertKernel(Protocol):
    """Some experts at a time: load their records, then compute rows. One object per thread."""

    @property
    def capacity(self) -> int:
        """Records that one `load` takes."""
        ...

    def load(self, records: Sequence[torch.Tensor]) -> None:
        """Take 1 to `capacity` records, each uint8 [record_bytes], on the kernel's device.

        Their memory is read until their rows have been computed: nothing may change it before.
        """
        ...

    def row(self, x: torch.Tensor, place: int = 0) -> torch.Tensor:
        """Decode: x [H] -> [H] float32 of record `place`; bits depend on record and x alone."""
        ...

    def each(self, x: torch.Tensor) -> torch.Tensor:
        """Decode: x [H] -> [B, H] float32, one row per loaded record, the same bits as `row`."""
        ...

    def into(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        routes: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        """Decode: each loaded record's routes (token, k): x [T, H] -> rows out[token, k] [H].

        The same bits as `row`; out is float32 [T, K, H], of which only those rows are written.
        """
        ...

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Prefill: the first record's tokens, x [R, H] -> [R, H] float32; `load` anew after it."""
        ...


class TopK(Protocol):
    """Choice of experts; see `kernels.reference.routing.topk_softmax`."""

    def __call__(
        self, logits: torch.Tensor, top_k: int, normalise: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [T, E] -> ids [T, K] int32, weights [T, K] float32."""
        ...


class Norm(Protocol):
    """Root-mean-square norm; see `kernels.reference.dense.rms_norm`."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Return the normed rows. Shapes: x [..., H], weight [H] -> [..., H]."""
        ...


class AttentionStep(Protocol):
    """Attention's half of a layer; see `kernels.reference.steps`."""

    def __call__(self, hidden: torch.Tensor, places: Places) -> None:
        """Hidden [B, H] += attention(norm(hidden)), in place."""
        ...


class RouterStep(Protocol):
    """Norm and routes; see `kernels.reference.steps.ReferenceRouterStep`."""

    def __call__(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Hidden [T, H] -> x [T, H], ids [T, K] int32, weights [T, K] float32."""
        ...


class Merge(Protocol):
    """Sum of a token's weighted rows; see `kernels.reference.routing.merge_routes`."""

    def __call__(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Rows [T, K, H], weights [T, K] -> [T, H], all float32."""
        ...


def expert_kernel(
    layout: RecordLayout, device: torch.device, dtype: torch.dtype = torch.float32
) -> ExpertKernel:
    """Build the expert kernel for a layout on a device; `dtype` is that of activations."""
    build = choose("expert_rows", str(device), layout.encoding).load()
    typed = cast("Callable[[RecordLayout, torch.device, torch.dtype], ExpertKernel]", build)
    return typed(layout, device, dtype)


def topk_softmax(device: torch.device) -> TopK:
    """Return the routing kernel of a device."""
    return cast("TopK", choose("route", str(device)).load())


def merge_routes(device: torch.device) -> Merge:
    """Return the merge kernel of a device."""
    return cast("Merge", choose("merge_routes", str(device)).load())


def linear(weights: Sequence[DenseWeight], device: torch.device, dtype: torch.dtype) -> Linear:
    """Build the product with weights that take the same input; their outputs lie side by side.

    Shapes: weights [N1, K], [N2, K], ..
    """
    encodings = [weight.encoding for weight in weights]
    build = choose("linear", str(device), *encodings, dtype=dtype).load()
    typed = cast("Callable[[Sequence[DenseWeight], torch.device, torch.dtype], Linear]", build)
    return typed(weights, device, dtype)


def rms_norm(device: torch.device, dtype: torch.dtype) -> Norm:
    """Return the norm of a device, for activations of `dtype`."""
    return cast("Norm", choose("rms_norm", str(device), dtype=dtype).load())


def attention_step(
    parts: AttentionParts, device: torch.device, dtype: torch.dtype
) -> AttentionStep:
    """Build decode's half of a layer from parts that were built for the same device and dtype."""
    build = choose("attention_step", str(device), dtype=dtype).load()
    return cast("Callable[[AttentionParts], AttentionStep]", build)(parts)


def attention_chunk(
    parts: AttentionParts, device: torch.device, dtype: torch.dtype
) -> AttentionStep:
    """Build prefill's half of a layer from parts that were built for the same device and dtype."""
    build = choose("attention_chunk", str(device), dtype=dtype).load()
    return cast("Callable[[AttentionParts], AttentionStep]", build)(parts)


def router_step(parts: RouterParts, device: torch.device, dtype: torch.dtype) -> RouterStep:
    """Build a router from parts that were built for the same device and dtype."""
    build = choose("router_step", str(device), dtype=dtype).load()
    return cast("Callable[[RouterParts], RouterStep]", build)(parts)
