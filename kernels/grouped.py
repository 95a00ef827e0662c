"""Typed entry point of grouped experts: a prompt chunk through a layer's experts, as they arrive.

Resolve once, when something is built. Called by `engine.moe`; knows no model and no residency.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from kernels.layouts import RecordLayout
from kernels.registry import choose

ROW_BYTES = 4  # a route's row of H values waits for the merge in float32


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Where a layer's E records lie, by rank: the order in which they become available.

    Attributes:
        ranks: int32 [E], on the kernel's device: the rank of each expert; a permutation.
        addresses: int64 [E], on the kernel's device: the address of each rank's record. One that
            no route needs may be anything.
        view: rank -> the record's bytes, uint8 [record_bytes], on the kernel's device.
    """

    ranks: Tensor
    addresses: Tensor
    view: Callable[[int], Tensor]


class GroupedTask(Protocol):
    """One token tile on its way: `compute` every rank once, then `merge`. Nothing waits."""

    def compute(self, first: int, last: int) -> None:
        """Compute the routes to ranks [first, last); their records must be there by then."""
        ...

    def merge(self, weights: Tensor, out: Tensor) -> None:
        """Add each token's weighted rows to `out`, in router order.

        Sums are float32, and rounded once to the type of `out`.

        Shapes: weights [T, K] float32, out [T, H] of any float type, contiguous.
        """
        ...


class GroupedKernel(Protocol):
    """Computes with whole layers of records. May hold scratch: one task at a time."""

    def begin(self, x: Tensor, ids: Tensor, table: RecordTable, chunk_tokens: int) -> GroupedTask:
        """Sort a tile's routes by rank.

        `chunk_tokens` is the length of the chunk that the tile belongs to: launch shapes, and with
        them a row's bits, follow from it alone.

        Shapes: x [T, H], ids [T, K] int32.
        """
        ...


def grouped_kernel(
    layout: RecordLayout, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> GroupedKernel:
    """Build the kernel for a layout on a device.

    `dtype` is what inputs and an expert's activation are rounded to, once each.
    """
    build = choose("grouped_experts", str(device), layout.encoding).load()
    typed = cast("Callable[[RecordLayout, torch.device, torch.dtype], GroupedKernel]", build)
    return typed(layout, device, dtype)


def grouped_scratch_bytes(layout: RecordLayout, tile_tokens: int, top_k: int) -> int:
    """Return what one task takes of the device: activations of two bytes, and rows."""
    return tile_tokens * top_k * (2 * layout.intermediate + ROW_BYTES * layout.hidden)
