"""Choosing one token from each row of logits, in plain torch, without waiting for the device.

Filters are thresholds on values: equal logits are kept or dropped together, so no order among them
matters. Randomness comes in as a number. Order of the filters: top-k, top-p, min-p, each on what
the one before left, as in transformers. Called by `engine.runner.sampler`.

`weights` and `draw` define the draw over a whole vocabulary; `draw_rows` gives the same tokens, and
with a top-k works on a few candidates only. Rows of one call have the same filters.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_TOP_K = 1024  # above it the whole vocabulary is weighed
MAX_TIES = 64  # tokens beyond a top-k that stay because they equal its last one


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
    return ids.masked_fill_(best.isnan(), -1)


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that occurred less likely: divide positive logits, multiply negative ones.

    Shapes: logits [B, V], seen [B, V] bool -> [B, V].
    """
    changed = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, changed, logits)


def penalise_counts(logits: Tensor, counts: Tensor, presence: float, frequency: float) -> Tensor:
    """Subtract `presence` from tokens that were output, and `frequency` for each time.

    Shapes: logits [B, V], counts [B, V] float32 -> [B, V].
    """
    return logits - presence * (counts > 0) - frequency * counts


def weights(logits: Tensor, filters: Filters) -> Tensor:
    """Return what each token weighs in its row's draw; the likeliest weighs 1, a dropped one 0.

    Shapes: [B, V] -> [B, V] float64. At least one token stays, whatever the filters.
    """
    scaled = logits.double().div_(filters.temperature)
    highest = scaled.amax(1, keepdim=True)
    kept = scaled.sub_(highest).exp_()
    has_top_k = 0 < filters.top_k < kept.shape[1]
    if has_top_k or filters.top_p < 1.0:
        # Logits order like weights, and half as wide they sort in half the time.
        ordered = _ordered(logits, filters.top_k).double().div_(filters.temperature)
        ordered = ordered.sub_(highest).exp_()
        least = ordered[:, -1:]
        if filters.top_p < 1.0:
            cumulated = _cumulated(ordered)
            total = cumulated[:, -1:]
            if has_top_k:  # equal logits beyond it count as well
                total = kept.masked_fill(kept < least, 0.0).sum(1, keepdim=True)
            least = _nucleus(ordered, cumulated, total * filters.top_p)
        kept.masked_fill_(kept < least, 0.0)  # so that NaN stays NaN
    if filters.min_p > 0.0:
        kept.masked_fill_(kept < filters.min_p, 0.0)
    return kept


def candidates(logits: Tensor, filters: Filters) -> tuple[Tensor, Tensor]:
    """Return the ids that a top-k leaves, rising, and what each weighs in the draw.

    Those weights are the ones of `weights`, and every id that is not among them weighs 0; but of
    the tokens that equal the last of the top-k no more than `MAX_TIES` beyond it stay.
    Shapes: [B, V] -> [B, C] int64, [B, C] float64; 0 < `top_k` < V.
    """
    top_k = filters.top_k
    values, ids = logits.topk(min(top_k + MAX_TIES, logits.shape[1]))
    scaled = values.double().div_(filters.temperature)
    kept = (scaled - scaled[:, :1]).exp_()
    # Products, so that NaN stays NaN; thresholds on logits, so that equal ones share a fate.
    kept.mul_(values >= values[:, top_k - 1 : top_k])
    if filters.top_p < 1.0:
        cumulated = kept.cumsum(1)
        before = cumulated[:, :-1]  # of each token but the first, which always stays
        last = (before < cumulated[:, -1:] * filters.top_p).sum(1, keepdim=True)
        kept.mul_(values >= values.gather(1, last))
    if filters.min_p > 0.0:
        kept.mul_(kept >= filters.min_p)
    ids, order = ids.sort(1)
    return ids, kept.gather(1, order)


def draw(logits: Tensor, filters: Filters, uniforms: Tensor) -> Tensor:
    """Draw a token of each row by the inverse of the cumulated weights.

    Shapes: logits [B, V], uniforms [B] float64 in [0, 1) -> [B] int64; -1 if a logit is NaN.
    """
    cumulated = _cumulated(weights(logits, filters))
    total = cumulated[:, -1:]
    # right: the first token whose sum lies above the mark, so never one that weighs 0
    found = torch.searchsorted(cumulated, total * uniforms.unsqueeze(1), right=True)
    return found.masked_fill_(total.isnan(), -1).squeeze(1)


def draw_rows(logits: Tensor, filters: Filters, uniforms: Tensor) -> Tensor:
    """Draw a token of each row, from few candidates where there is a top-k; see `draw`."""
    if not 0 < filters.top_k < logits.shape[1] or filters.top_k > MAX_TOP_K:
        return draw(logits, filters, uniforms)
    ids, kept = candidates(logits, filters)
    cumulated = kept.cumsum(1)
    total = cumulated[:, -1:]
    # How many sums do not lie above the mark; with NaN none, so never a place that is not there.
    found = (cumulated[:, :-1] <= total * uniforms.unsqueeze(1)).sum(1, keepdim=True)
    return ids.gather(1, found).masked_fill_(total.isnan(), -1).squeeze(1)


def _cumulated(values: Tensor) -> Tensor:
    """Return the sums along each row, row by row: long rows of a matrix keep little of a card busy.

    Shapes: [B, V] -> [B, V].
    """
    if values.shape[0] == 1:
        return values.cumsum(1)
    return torch.stack([row.cumsum(0) for row in values.unbind(0)])


def _ordered(logits: Tensor, top_k: int) -> Tensor:
    """Return the highest logits of each row, falling; all of them without a top-k."""
    if 0 < top_k < logits.shape[1]:
        return logits.topk(top_k).values
    return logits.sort(dim=1, descending=True).values


def _nucleus(ordered: Tensor, cumulated: Tensor, mark: Tensor) -> Tensor:
    """Return the weight of the last token whose predecessors together weigh less than `mark`.

    Shapes: [B, C], [B, C], [B, 1] -> [B, 1].
    """
    last = (cumulated - ordered < mark).sum(1, keepdim=True) - 1
    # An index that lies on the device, taken as a number, would wait for it.
    return ordered.gather(1, last.clamp_(min=0))
