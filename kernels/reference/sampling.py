"""Choosing one token from one row of logits, in plain torch, without waiting for the device.

Filters are thresholds on values: equal logits are kept or dropped together, so no order among them
matters. Randomness comes in as a number. Order of the filters: top-k, top-p, min-p, each on what
the one before left, as in transformers. Called by `engine.runner.sampler`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Filters:
    """How a distribution is cut; the defaults cut nothing. `temperature` > 0."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


def greedy(logits: Tensor) -> Tensor:
    """Return the highest token of each row, the lowest id among equals, -1 for a row with NaN.

    Shapes: [B, V] -> [B] int64.
    """
    best, ids = logits.max(dim=-1)
    return torch.where(best.isnan(), -1, ids)


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that occurred less likely: divide positive logits, multiply negative ones.

    Shapes: logits [V], seen [V] bool -> [V].
    """
    changed = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, changed, logits)


def penalise_counts(logits: Tensor, counts: Tensor, presence: float, frequency: float) -> Tensor:
    """Subtract `presence` from tokens that were output, and `frequency` for each time.

    Shapes: logits [V], counts [V] float32 -> [V].
    """
    return logits - presence * (counts > 0) - frequency * counts


def weights(logits: Tensor, filters: Filters) -> Tensor:
    """Return what each token weighs in the draw; the likeliest weighs 1, a dropped one 0.

    Shapes: [V] -> [V] float64. At least one token stays, whatever the filters.
    """
    scaled = logits.double().div_(filters.temperature)
    highest = scaled.max()
    kept = scaled.sub_(highest).exp_()
    least = kept.new_full((), filters.min_p)
    if 0 < filters.top_k < kept.shape[0] or filters.top_p < 1.0:
        # Logits order like weights, and half as wide they sort in half the time.
        ordered = _ordered(logits, filters.top_k).double().div_(filters.temperature)
        ordered = ordered.sub_(highest).exp_()
        if filters.top_p < 1.0:
            total = _at_least(kept, ordered[-1]).sum()
            least = torch.maximum(least, _nucleus(ordered, total, filters.top_p))
        else:
            least = torch.maximum(least, ordered[-1])
    return _at_least(kept, least)


def draw(logits: Tensor, filters: Filters, uniform: Tensor) -> Tensor:
    """Draw a token by the inverse of the cumulated weights.

    Shapes: logits [V], uniform [] float64 in [0, 1) -> [1] int64; -1 if a logit is NaN.
    """
    cumulated = weights(logits, filters).cumsum(0)
    total = cumulated[-1]
    # right: the first token whose sum lies above the mark, so never one that weighs 0
    found = torch.searchsorted(cumulated, (uniform * total).reshape(1), right=True)
    return torch.where(total.isnan(), -1, found)


def _at_least(kept: Tensor, threshold: Tensor) -> Tensor:
    return kept.masked_fill(kept < threshold, 0.0)  # so that NaN stays NaN


def _ordered(logits: Tensor, top_k: int) -> Tensor:
    """Return the highest logits, falling; all of them without a top-k."""
    if 0 < top_k < logits.shape[0]:
        return logits.topk(top_k).values
    return logits.sort(descending=True).values


def _nucleus(ordered: Tensor, total: Tensor, top_p: float) -> Tensor:
    """Return the weight of the last token whose predecessors together weigh less than `top_p`."""
    before = ordered.cumsum(0) - ordered
    last = (before < top_p * total).sum() - 1
    # An index that lies on the device, taken as a number, would wait for it.
    return ordered.index_select(0, last.clamp_(min=0).reshape(1)).squeeze(0)
