"""Penalties and filters against transformers' own logits processors."""

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from kernels.reference.sampling import Filters, penalise_repetition, weights

VOCAB = 400
CASES = [
    Filters(),
    Filters(temperature=0.6, min_p=0.1),
    Filters(temperature=1.7, top_k=20),
    Filters(temperature=0.9, top_p=0.8),
    Filters(temperature=1.3, top_k=50, top_p=0.7, min_p=0.05),
    Filters(top_k=1),
    Filters(top_p=0.001),
    Filters(min_p=1.0),
    Filters(top_k=VOCAB + 1),
]


def warpers(filters: Filters) -> list[LogitsProcessor]:
    """transformers' chain, in the order that `generate` builds it."""
    chain: list[LogitsProcessor] = [TemperatureLogitsWarper(filters.temperature)]
    if filters.top_k:
        chain.append(TopKLogitsWarper(filters.top_k))
    if filters.top_p < 1.0:
        chain.append(TopPLogitsWarper(filters.top_p))
    if filters.min_p:
        chain.append(MinPLogitsWarper(filters.min_p))
    return chain


def logits_of(seed: int) -> Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("filters", CASES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_weights_when_filtered_then_transformers_distribution(filters: Filters, seed: int) -> None:
    """The same tokens stay, with the same probabilities."""
    scores = logits_of(seed).unsqueeze(0)
    ids = torch.zeros(1, 1, dtype=torch.int64)
    for warper in warpers(filters):
        scores = warper(ids, scores)
    expected = torch.softmax(scores[0].double(), 0)
    (got,) = weights(logits_of(seed).unsqueeze(0), filters)
    torch.testing.assert_close(got / got.sum(), expected, rtol=1e-5, atol=1e-9)


def test_repetition_when_applied_then_transformers_logits() -> None:
    """Each token that occurred counts once."""
    ids = torch.tensor([[3, 9, 9, 250]])
    expected = RepetitionPenaltyLogitsProcessor(1.15)(ids, logits_of(0).unsqueeze(0).clone())[0]
    seen = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids[0], True)
    assert torch.equal(penalise_repetition(logits_of(0), seen, 1.15), expected)
