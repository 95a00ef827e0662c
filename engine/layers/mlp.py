"""The gated MLP of a layer without experts."""

from typing import Literal

from torch import Tensor

from engine.layers.linear import Linear
from kernels.reference.dense import silu_multiply


class GatedMlp:
    """down(silu(gate(x)) * up(x)). Shapes: gate and up [I, H], down [H, I]."""

    __slots__ = ("_down", "_gate_up")

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor) -> None:
        self._gate_up, self._down = Linear(gate, up), Linear(down)

    def __call__(self, hidden: Tensor, phase: Literal["prefill", "decode"]) -> Tensor:
        """Return the layer's output, the same way in both phases. Shapes: [T, H] -> [T, H]."""
        del phase
        return self._down(silu_multiply(self._gate_up(hidden)))
