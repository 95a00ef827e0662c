"""Root-mean-square norm."""

from torch import Tensor

from kernels.reference.dense import rms_norm


class RmsNorm:
    """x / rms(x) * weight. Shapes: x [..., H], weight [H] -> [..., H]."""

    __slots__ = ("_eps", "_weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normed rows."""
        return rms_norm(x, self._weight, self._eps)
