"""Choice of experts and merge of their rows, against plain rules."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.reference.routing import merge_routes, topk_softmax


@given(st.integers(0, 10_000), st.integers(2, 12), st.booleans())
def test_topk_when_compared_with_a_plain_sort_agrees(seed, num_experts, normalise):
    """Few distinct logits make many ties: the lower id wins."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(0, 4, (3, num_experts), generator=generator).float()
    top_k = 1 + seed % num_experts
    ids, weights = topk_softmax(logits, top_k, normalise, 2.0)
    scores = torch.softmax(logits.double(), dim=-1)
    for token in range(3):
        wanted = sorted(range(num_experts), key=lambda e: (-logits[token, e].item(), e))[:top_k]
        assert ids[token].tolist() == wanted
        chosen = scores[token, wanted]
        expected = 2.0 * chosen / (chosen.sum() if normalise else 1.0)
        torch.testing.assert_close(weights[token].double(), expected, rtol=1e-6, atol=1e-7)
    assert ids.dtype == torch.int32
    assert weights.dtype == torch.float32


def test_merge_when_batched_equals_each_token_alone():
    """A token's sum is one chain in router order, whoever else is in the batch."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(6, 5, 33, generator=generator) * 2.0 ** torch.randint(
        -8, 8, (6, 5, 1), generator=generator
    )
    weights = torch.rand(6, 5, generator=generator)
    merged = merge_routes(rows, weights)
    for token in range(6):
        alone = torch.zeros(33)
        for k in range(5):
            alone = alone + rows[token, k] * weights[token, k]
        assert torch.equal(merged[token], alone)
        assert torch.equal(
            merge_routes(rows[token : token + 1], weights[token : token + 1])[0], alone
        )
