"""Routes by the checkpoint's rule."""

import dataclasses

import pytest
import torch

from engine.models.spec import RouterSpec
from engine.moe.router import route


def test_route_when_normalised_adds_up_to_the_scale():
    """Softmax over all logits, top-k, then the k weights divided by their sum and scaled."""
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, -50.0]])
    rule = RouterSpec(num_experts=5, top_k=3, scale=2.0)
    routing = route(logits, rule)
    assert routing.ids.tolist() == [[1, 3, 2]]
    assert routing.weights.sum().item() == pytest.approx(2.0)
    plain = route(logits, dataclasses.replace(rule, normalise=False, scale=1.0))
    torch.testing.assert_close(plain.weights[0, 0], torch.softmax(logits, -1)[0, 1])


def test_route_when_the_rule_is_impossible_raises():
    """More routes than experts, or an unknown score, is refused when it is met."""
    with pytest.raises(ValueError, match="top-6 of 5"):
        route(torch.zeros(1, 5), RouterSpec(num_experts=5, top_k=6))
    spec = RouterSpec(num_experts=5, top_k=2, score="sigmoid")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sigmoid"):
        route(torch.zeros(1, 5), spec)
