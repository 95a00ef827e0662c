"""A dense weight as it is stored. Knows encodings; not names, layers or who computes with it.

Made by `engine.quant` from a checkpoint's tensors; read by every kernel that multiplies with one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.layouts import DENSE_DTYPES, DenseEncoding


@dataclass(frozen=True, slots=True, eq=False)
class DenseWeight:
    """Values and, if they have any, the scales of their blocks: a value counts code * scale.

    Attributes:
        values: [N, K], or [N] of a norm, contiguous, in a dtype of `DENSE_DTYPES`.
        scales: float32 [ceil(N/G), ceil(K/G)], contiguous, with codes of a byte; else None.
        group: side G of a scale block, 0 without scales.

    Raises: ValueError for parts that do not go together.
    """

    values: Tensor
    scales: Tensor | None = None
    group: int = 0

    def __post_init__(self) -> None:
        if self.values.dtype not in DENSE_DTYPES.values() or not self.values.is_contiguous():
            raise ValueError(f"a weight of {self.values.dtype}, or not contiguous")
        has_scales = self.scales is not None
        if has_scales != (self.group > 0) or has_scales != (self.values.dtype.itemsize == 1):
            raise ValueError(f"{self.values.dtype} in blocks of {self.group}, scales: {has_scales}")
        if self.scales is None:
            return
        rows, columns = self.values.shape
        blocks = (-(-rows // self.group), -(-columns // self.group))
        if tuple(self.scales.shape) != blocks or self.scales.dtype != torch.float32:
            raise ValueError(
                f"scales {self.scales.dtype} {list(self.scales.shape)} do not go with a weight "
                f"{[rows, columns]} in blocks of {self.group}"
            )

    @property
    def shape(self) -> torch.Size:
        """Of the values."""
        return self.values.shape

    @property
    def encoding(self) -> DenseEncoding:
        """How a value is stored."""
        return next(name for name, dtype in DENSE_DTYPES.items() if dtype == self.values.dtype)

    def dequantise(self) -> Tensor:
        """Return the exact values, rounded once to float32; of the shape of `values`, a copy."""
        wide = self.values.to(torch.float32, copy=True)
        if self.scales is None:
            return wide
        rows, columns = wide.shape
        scales = self.scales.repeat_interleave(self.group, 0)[:rows]
        return wide.mul_(scales.repeat_interleave(self.group, 1)[:, :columns])
