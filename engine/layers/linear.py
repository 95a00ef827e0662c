"""A weight that is multiplied with, as checkpoints store it."""

import torch
from torch import Tensor

from kernels.reference.dense import linear


class Linear:
    """y = x W^T without bias. Shapes: x [T, in], weight [out, in] -> [T, out]."""

    __slots__ = ("weight",)

    def __init__(self, *weights: Tensor) -> None:
        """Take one weight, or several with the same input, stacked into one product."""
        self.weight = weights[0] if len(weights) == 1 else torch.cat(weights)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product."""
        return linear(x, self.weight)
