"""From router logits to routes, by the checkpoint's rule. Knows no experts and no residency.

Called by the families (`engine.models`), which hold the rule (`RouterSpec`).
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.api import TopK, topk_softmax


class RouterRule(Protocol):
    """What is needed of `engine.models.spec.RouterSpec`, which lies above this step."""

    @property
    def num_experts(self) -> int:
        """E."""
        ...

    @property
    def top_k(self) -> int:
        """K."""
        ...

    @property
    def score(self) -> str:
        """How logits become scores: "softmax"."""
        ...

    @property
    def normalise(self) -> bool:
        """Whether the K weights are divided by their sum."""
        ...

    @property
    def scale(self) -> float:
        """Factor of all weights."""
        ...


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of T tokens.

    Attributes:
        ids: [T, K] int32; a token's experts are distinct, the heaviest first.
        weights: [T, K] float32.
    """

    ids: torch.Tensor
    weights: torch.Tensor


class Router:
    """A rule on a device. Raises ValueError for a score it does not know."""

    def __init__(self, rule: RouterRule, device: torch.device) -> None:
        if rule.score != "softmax":
            raise ValueError(f"unknown router score {rule.score}")
        if not 1 <= rule.top_k <= rule.num_experts:
            raise ValueError(f"top-{rule.top_k} of {rule.num_experts} experts")
        self._rule = rule
        self._choose: TopK = topk_softmax(device)

    def __call__(self, logits: torch.Tensor) -> Routing:
        """Route. Shapes: logits [T, E] -> Routing of [T, K]."""
        rule = self._rule
        ids, weights = self._choose(logits, rule.top_k, rule.normalise, rule.scale)
        return Routing(ids, weights)


def route(logits: torch.Tensor, rule: RouterRule) -> Routing:
    """Softmax over all logits in fp32, top-k (equal scores: the lower id), then the rule's weights.

    Shapes: logits [T, E] -> Routing of [T, K].
    """
    return Router(rule, logits.device)(logits)
