"""Random dense weights and places in a paged cache for tests of kernels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.layouts import DENSE_DTYPES, DenseEncoding
from kernels.paged import KvRows
from kernels.weights import DenseWeight

PAGE_TOKENS = 16


def seeded(*shape: int, seed: int = 0) -> Tensor:
    """Return normal values over several binades, so that errors of order show."""
    draw = torch.Generator().manual_seed(seed)
    powers = torch.randint(-4, 5, shape, generator=draw)
    return torch.randn(shape, generator=draw) * 2.0**powers


def random_weight(
    rows: int, columns: int, encoding: DenseEncoding, seed: int = 0, group: int = 0
) -> DenseWeight:
    """Return a weight; with `group` it has scales."""
    values = seeded(rows, columns, seed=seed).clamp(-400, 400).to(DENSE_DTYPES[encoding])
    if not group:
        return DenseWeight(values)
    draw = torch.Generator().manual_seed(seed + 1)
    blocks = (-(-rows // group), -(-columns // group))
    return DenseWeight(values, torch.rand(blocks, generator=draw) * 0.3 + 0.01, group)


@dataclass(frozen=True)
class Place:
    """Positions and pages of one decode step; see `kernels.steps.Places`."""

    rows: KvRows
    cos: Tensor
    sin: Tensor
