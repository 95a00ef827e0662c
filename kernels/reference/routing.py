"""Choice of experts from router logits. Plain torch, any device; called through `kernels.api`."""

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
    weights = best[:, :top_k]
    if normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    if scale != 1.0:
        weights = weights * scale
    return ids[:, :top_k].to(torch.int32), weights.contiguous()
