"""Typed entry points of the registry's operations. Resolve once, when something is built.

Called by `engine.moe` and `engine.layers`; knows no model.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch

from kernels.layouts import RecordLayout
from kernels.registry import choose


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
