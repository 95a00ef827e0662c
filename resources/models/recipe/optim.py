"""Muon for the matrices inside the layers, AdamW for embedding, router and norms.

Muon: momentum, then the nearest orthogonal matrix by five Newton-Schulz steps, scaled so that an
AdamW-sized learning rate fits. Source: K. Jordan's public description of Muon (2024); the scale
0.2 * sqrt(larger side) is that of arXiv 2502.16982.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_NS = (3.4445, -4.7750, 2.0315)  # coefficients of the published quintic iteration


def orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest orthogonal matrices, nearly. Shapes: [M, R, C] -> [M, R, C] float32."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x.transpose(1, 2) if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _NS
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon:
    """Steps groups of equally shaped parameters, each group as one batch of matrices.

    A parameter [.., R, C] holds a batch of matrices; `split` cuts its last axis into that many
    independent ones (gate and up side by side).
    """

    def __init__(
        self, groups: Sequence[tuple[list[Tensor], int]], decay: float, momentum: float = 0.95
    ) -> None:
        self._groups, self._decay, self._momentum = groups, decay, momentum
        self._speed = [[torch.zeros_like(p) for p in params] for params, _ in groups]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update every parameter with learning rate `rate`."""
        for (params, split), speeds in zip(self._groups, self._speed, strict=True):
            grads = [p.grad for p in params if p.grad is not None]
            torch._foreach_lerp_(speeds, grads, 1 - self._momentum)
            ahead = torch._foreach_lerp(grads, speeds, self._momentum)
            rows, cols = params[0].shape[-2], params[0].shape[-1] // split
            batch = torch.stack(ahead).reshape(-1, rows, split, cols).transpose(1, 2)
            update = orthogonal(batch.reshape(-1, rows, cols))
            update = update.view(-1, split, rows, cols).transpose(1, 2)
            scale = 0.2 * max(rows, cols) ** 0.5
            parts = update.reshape(len(params), *params[0].shape).unbind(0)
            torch._foreach_mul_(params, 1 - rate * self._decay)
            torch._foreach_add_(params, list(parts), alpha=-rate * scale)
