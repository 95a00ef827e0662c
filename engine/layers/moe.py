"""The experts' layer: thin. Routing and residency belong to `engine.moe`."""

from typing import Literal, Protocol

from torch import Tensor

from engine.moe.router import Inputs, Router, Routing

Phase = Literal["prefill", "decode"]


class Experts(Protocol):
    """What is needed of `engine.moe.executor.MoeExecutor`."""

    def start(self, num_tokens: int, top_k: int, last_chunk: bool) -> None:
        """Hear that a prompt chunk comes, before its first layer is queued.

        `last_chunk`: the prompt ends here, so that its experts are those that decode begins with.
        """
        ...

    def add(
        self, moe_layer: int, hidden: Tensor, inputs: Inputs, routing: Routing, phase: Phase
    ) -> None:
        """Add the weighted sum of each token's experts to `hidden` [T, H], in place."""
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

    def __call__(self, hidden: Tensor, phase: Phase) -> None:
        """Add the layer's output. Shapes: hidden [T, H], in place."""
        inputs, routing = self._router(hidden)
        self._experts.add(self.moe_layer, hidden, inputs, routing, phase)
