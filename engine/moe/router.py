"""From hidden states to routes, by the checkpoint's rule. Knows no experts and no residency.

Called by the families (`engine.models`), which hold the rule (`RouterSpec`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.api import linear, rms_norm, router_step, topk_softmax
from kernels.steps import RouterParts
from kernels.weights import DenseWeight

TILE_TOKENS = 4096  # that are routed together: bounds what norm and logits take

Inputs = Callable[[int, int], torch.Tensor]
"""What the experts read of tokens [begin, end): [n, H], from what the layer's hidden states are
when it is called."""


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
    """One layer's router: the norm before it, its weight, and the rule.

    Raises: ValueError for a score it does not know.
    """

    __slots__ = ("_eps", "_norm", "_rms_norm", "_step")

    def __init__(
        self,
        rule: RouterRule,
        norm: DenseWeight,
        eps: float,
        gate: DenseWeight,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Take the rule, the norm's weight [H] and the router's [E, H]."""
        check_rule(rule)
        parts = RouterParts(
            norm=norm.dequantise().to(device, dtype),
            eps=eps,
            gate=linear((gate,), device, dtype),
            choose=topk_softmax(device),
            top_k=rule.top_k,
            normalise=rule.normalise,
            scale=rule.scale,
        )
        self._step = router_step(parts, device, dtype)
        self._rms_norm, self._norm, self._eps = rms_norm(device, dtype), parts.norm, eps

    def __call__(self, hidden: torch.Tensor) -> tuple[Inputs, Routing]:
        """Return the experts' inputs and the routes. Shapes: hidden [T, H] -> [T, H], [T, K].

        Inputs of many tokens are not kept but worked out again, a tile at a time: so a tile may be
        asked for until its own rows of `hidden` change.
        """
        if hidden.shape[0] <= TILE_TOKENS:
            x, ids, weights = self._step(hidden)
            return kept(x), Routing(ids, weights)
        tiles = [self._step(tile)[1:] for tile in torch.split(hidden, TILE_TOKENS)]
        ids, weights = (torch.cat(parts) for parts in zip(*tiles, strict=True))
        return lambda begin, end: self._input(hidden[begin:end]), Routing(ids, weights)

    def _input(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._rms_norm(hidden, self._norm, self._eps)


def kept(x: torch.Tensor) -> Inputs:
    """Return inputs that are there as a whole. Shapes: x [T, H]."""
    return lambda begin, end: x[begin:end]


def check_rule(rule: RouterRule) -> None:
    """Raise ValueError for a rule that cannot be followed."""
    if rule.score != "softmax":
        raise ValueError(f"unknown router score {rule.score}")
    if not 1 <= rule.top_k <= rule.num_experts:
        raise ValueError(f"top-{rule.top_k} of {rule.num_experts} experts")


def route(logits: torch.Tensor, rule: RouterRule) -> Routing:
    """Softmax over all logits in fp32, top-k (equal scores: the lower id), then the rule's weights.

    Shapes: logits [T, E] -> Routing of [T, K].
    """
    check_rule(rule)
    choose = topk_softmax(logits.device)
    return Routing(*choose(logits, rule.top_k, rule.normalise, rule.scale))
