"""Root-mean-square norm."""

import torch
from torch import Tensor

from kernels.api import rms_norm
from kernels.weights import DenseWeight


class RmsNorm:
    """x / rms(x) * weight. Shapes: x [..., H], weight [H] -> [..., H]."""

    __slots__ = ("_eps", "_norm", "_weight")

    def __init__(
        self, weight: DenseWeight, eps: float, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._weight, self._eps = weight.dequantise().to(device, dtype), eps
        self._norm = rms_norm(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normed rows."""
        return self._norm(x, self._weight, self._eps)
