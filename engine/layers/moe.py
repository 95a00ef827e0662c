"""The experts' layer: thin. Routing and residency belong to `engine.moe`."""

from collections.abc import Callable
from typing import Literal, Protocol

from torch import Tensor

from engine.layers.linear import Linear
from engine.moe.router import Routing

Phase = Literal["prefill", "decode"]


class Experts(Protocol):
    """What is needed of `engine.moe.executor.MoeExecutor`."""

    def forward(self, moe_layer: int, hidden: Tensor, routing: Routing, phase: Phase) -> Tensor:
        """Return the weighted sum of each token's experts. Shapes: [T, H] -> [T, H]."""
        ...


class MoeLayer:
    """Router, then experts.

    Attributes:
        moe_layer: index among the layers that have experts (not the layer id).
    """

    __slots__ = ("_experts", "_gate", "_route", "moe_layer")

    def __init__(
        self,
        moe_layer: int,
        gate: Tensor,
        route: Callable[[Tensor], Routing],
        experts: Experts,
    ) -> None:
        """Take the router's weight [E, H] and the rule that turns logits [T, E] into routes."""
        self.moe_layer = moe_layer
        self._gate, self._route, self._experts = Linear(gate), route, experts

    def __call__(self, hidden: Tensor, phase: Phase) -> Tensor:
        """Return the layer's output. Shapes: [T, H] -> [T, H] of the same dtype."""
        routing = self._route(self._gate(hidden).float())
        return self._experts.forward(self.moe_layer, hidden, routing, phase).to(hidden.dtype)
