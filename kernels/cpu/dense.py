"""Dense products and norms on the CPU by the C++ kernels: fast forms of `kernels.reference.dense`.

Weights are read where they lie, as stored; there is no dequantised copy. Few tokens follow the
canonical order (`kernels/csrc/canonical.h`) on every instruction-set tier, so a token's bits depend
on its own values only; more of them, a prompt chunk, are one matrix product of the values, written
out for it. Sizes are checked here, because the kernels take addresses. Chosen by the registry.
"""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.cpu import IsaTier, load_native
from kernels.layouts import DenseEncoding
from kernels.weights import DenseWeight

FEW_TOKENS = 8  # that share one reading of the weights; `kDenseTokens` in dense.h
NativePart = tuple[DenseEncoding, int, int, int, int]


class NativeProduct(Protocol):
    """Weights that take the same input; addresses are those of C-contiguous host memory."""

    def run(self, x: int, tokens: int, out: int) -> None:
        """float32 x [T, K] -> out [T, N1 + N2 + ..]."""
        ...

    def expand(self, out: int) -> None:
        """Every value to float32 out [N1 + N2 + .., K]."""
        ...


class _Native(Protocol):
    """What `_native` offers for this; `kernels/csrc/dense_module.cpp`."""

    def Linear(self, parts: list[NativePart], width: int, tier: str) -> NativeProduct: ...

    def rms_norm(
        self, x: int, weight: int, out: int, sizes: tuple[int, int], eps: float, tier: str
    ) -> None: ...

    def merge_routes(
        self, rows: int, weights: int, out: int, sizes: tuple[int, int, int]
    ) -> None: ...

    def isa_tier(self) -> IsaTier: ...


class NativeLinear:
    """Products with weights that take the same input; see `ReferenceLinear`.

    Keeps the weights as they are, and their memory is read in every call.

    Attributes:
        native: the C++ object, for steps that include this product.
        shape: (N1 + N2 + .., K).

    Raises: ValueError for a device, activation dtype, weights or tier that it does not have.
    """

    def __init__(
        self,
        weights: Sequence[DenseWeight],
        device: torch.device,
        dtype: torch.dtype,
        tier: IsaTier | None = None,
    ) -> None:
        width = weights[0].shape[1]
        if device.type != "cpu" or dtype != torch.float32:
            raise ValueError(f"the C++ kernels take float32 on the CPU, not {dtype} on {device}")
        if any(not one.values.is_cpu or one.shape[1] != width for one in weights):
            raise ValueError(f"weights {[list(one.shape) for one in weights]} of one input")
        self._weights = tuple(weights)
        self.shape = (sum(one.shape[0] for one in weights), width)
        native = cast("_Native", load_native())
        self.native = native.Linear(
            [_part(one) for one in weights], width, tier or native.isa_tier()
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Return x W^T. Shapes: [T, K] float32 -> [T, N1 + N2 + ..]."""
        num_tokens, (rows, width) = len(x), self.shape
        if num_tokens > FEW_TOKENS:
            return F.linear(x, self.values())
        x = x.contiguous()
        check(x, (num_tokens, width))
        out = torch.empty(num_tokens, rows)
        self.native.run(x.data_ptr(), num_tokens, out.data_ptr())
        return out

    def values(self) -> Tensor:
        """Return every value as float32 [N1 + N2 + .., K], for one use."""
        out = torch.empty(self.shape)
        self.native.expand(out.data_ptr())
        return out


def rms_norm(x: Tensor, weight: Tensor, eps: float, tier: IsaTier | None = None) -> Tensor:
    """Divide each row by its root mean square and multiply by `weight`.

    Shapes: x [..., H], weight [H] -> [..., H], all float32.
    """
    native = cast("_Native", load_native())
    x, width = x.contiguous(), weight.shape[0]
    check(x, (*x.shape[:-1], width))
    check(weight, (width,))
    out = torch.empty_like(x)
    native.rms_norm(
        x.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        (x.numel() // width, width),
        eps,
        tier or native.isa_tier(),
    )
    return out


def merge_routes(rows: Tensor, weights: Tensor) -> Tensor:
    """Add up each token's weighted rows in router order; the reference's bits.

    Shapes: rows [T, K, H], weights [T, K] -> [T, H], all float32.
    """
    rows = rows.contiguous()
    num_tokens, top_k, hidden = rows.shape
    check(rows, (num_tokens, top_k, hidden))
    check(weights, (num_tokens, top_k))
    out = torch.empty(num_tokens, hidden)
    native = cast("_Native", load_native())
    native.merge_routes(
        rows.data_ptr(), weights.data_ptr(), out.data_ptr(), (num_tokens, top_k, hidden)
    )
    return out


def check(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    """Raise ValueError unless the kernels can read `tensor` as this shape and dtype."""
    if (
        tensor.shape != shape
        or tensor.dtype != dtype
        or not tensor.is_contiguous()
        or not tensor.is_cpu
    ):
        raise ValueError(
            f"expected {dtype} {list(shape)} in host memory, contiguous; "
            f"got {tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        )


def _part(weight: DenseWeight) -> NativePart:
    scales = 0 if weight.scales is None else weight.scales.data_ptr()
    return weight.encoding, weight.values.data_ptr(), scales, weight.shape[0], weight.group
