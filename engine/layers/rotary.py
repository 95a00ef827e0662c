"""Rotary position embedding of the plain kind, in halves."""

import torch
from torch import Tensor

from kernels.reference.dense import rotary_frequencies, rotary_tables


class Rotary:
    """Cosines and sines for the positions of one forward; nothing is kept per position."""

    __slots__ = ("_frequencies",)

    def __init__(self, head_dim: int, theta: float, device: torch.device) -> None:
        self._frequencies = rotary_frequencies(head_dim, theta, device)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return (cosines, signed sines). Shapes: [T] int64 -> two of [T, 1, D]."""
        return rotary_tables(positions, self._frequencies, dtype)
