"""The gated MLP of a layer without experts."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from engine.layers.norm import RmsNorm
from kernels.api import linear
from kernels.reference.dense import silu_multiply
from kernels.weights import DenseWeight


class MlpWeights(NamedTuple):
    """One layer's weights. Shapes: gate and up [I, H], down [H, I]."""

    gate: DenseWeight
    up: DenseWeight
    down: DenseWeight


class GatedMlp:
    """down(silu(gate(x)) * up(x)) of the normed stream, added to it."""

    __slots__ = ("_down", "_gate_up", "_norm")

    def __init__(
        self, norm: RmsNorm, weights: MlpWeights, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._norm = norm
        self._gate_up = linear((weights.gate, weights.up), device, dtype)
        self._down = linear((weights.down,), device, dtype)

    def __call__(self, hidden: Tensor, phase: Literal["prefill", "decode"]) -> None:
        """Add the layer's output, the same way in both phases. Shapes: hidden [T, H], in place."""
        del phase
        hidden.add_(self._down(silu_multiply(self._gate_up(self._norm(hidden)))))
