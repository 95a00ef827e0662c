"""Choice of experts, and the merge of their rows. Plain torch, any device; see `kernels.api`."""

import torch


def topk_softmax(
    logits: torch.Tensor, top_k: int, normalise: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over all E logits in fp32, then the K largest; equal ones: the lower id first.

    Shapes: logits [T, E] -> ids [T, K] int32, weights [T, K] float32, largest first.
    With `normalise` the K weights are divided by their sum; `scale` multiplies them at the end.
    """
    scores = torch.softmax(logits.to(torch.float32), dim=-1)
    # A stable sort, because topk promises no order among equals.
    best, ids = torch.sort(scores, dim=-1, descending=True, stable=True)
    return ids[:, :top_k].to(torch.int32), weigh(best[:, :top_k], normalise, scale)


def weigh(best: torch.Tensor, normalise: bool, scale: float) -> torch.Tensor:
    """Return the weights of routes from their scores. Shapes: [T, K] -> [T, K], contiguous."""
    weights = best
    if normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    if scale != 1.0:
        weights = weights * scale
    return weights.contiguous()


def merge_routes(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Add up each token's weighted rows in router order, in fp32.

    One multiplication and one addition at a time, so that a token's bits depend on its own rows
    and weights only, not on who computed them or on other tokens.

    Shapes: rows [T, K, H] float32, weights [T, K] float32 -> [T, H] float32.
    """
    first, *others = (rows * weights.unsqueeze(-1)).unbind(1)
    for row in others:
        first = first + row
    return first
