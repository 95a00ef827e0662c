"""The experts' layer: thin. Routing and residency belong to `engine.moe`."""

from typing import Literal, Protocol

from torch import Tensor

from engine.moe.router import Router, Routing

Phase = Literal["prefill", "decode"]


class Experts(Protocol):
    """What is needed of `engine.moe.executor.MoeExecutor`."""

    def forward(
        self, moe_layer: int, hidden: Tensor, routing: Routing, phase: Phase, last_chunk: bool
    ) -> Tensor:
        """Return the weighted sum of each token's experts. Shapes: [T, H] -> [T, H].

        `last_chunk`: a prompt ends here, so that its experts are those that decode begins with.
        """
        ...


class MoeLayer:
    """Router, then experts, added to the residual stream.

    Attributes:
        moe_layer: index among the layers that have experts (not the layer id).
    """

    __slots__ = ("_experts", "_router", "moe_layer")

    def __init__(self, moe_layer: int, router: Router, experts: Experts) -> None:
        self.moe_layer = moe_layer
        self._router, self._experts = router, experts

    def __call__(self, hidden: Tensor, phase: Phase, last_chunk: bool = True) -> None:
        """Add the layer's output. Shapes: hidden [T, H], in place."""
        x, routing = self._router(hidden)
        hidden.add_(self._experts.forward(self.moe_layer, x, routing, phase, last_chunk))
