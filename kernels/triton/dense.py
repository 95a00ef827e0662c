"""Dense work of a prompt chunk on a card: products through cuBLAS, the rest in Triton.

Weights stay as they are stored: bf16 as they are, FP8 blocks are dequantised into scratch for the
product that needs them. Activations are bf16 (`dtype`), sums and norms float32. The residual stream
may be wider than the activations and is added to in its own type. References are in
`kernels.reference`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.reference.dense import attention_prefill
from kernels.triton import dense_jit as jit
from kernels.triton.device import card
from kernels.triton.launch import CardKernel
from kernels.weights import DenseWeight

DEQUANTISE_COLUMNS = 1024
# cuDNN plans anew for each length, some 70 ms, and is the faster one for long prompts only.
PLANNED_TOKENS = 8192
_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_PLANNED = [SDPBackend.CUDNN_ATTENTION, *_UNPLANNED]
_DEQUANTISE, _RMS_NORM = CardKernel(jit.dequantise), CardKernel(jit.rms_norm)


class CardLinear:
    """Products with weights that take the same input; see `kernels.steps.Linear`.

    A weight that lies on the device in `dtype` is used where it lies: decode has it too.
    Shapes: weights [N1, K], [N2, K], ..; x [T, K] -> [T, N1 + N2 + ..] in `dtype`.
    """

    def __init__(
        self, weights: Sequence[DenseWeight], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._dtype = dtype
        self._parts = [
            DenseWeight(
                one.values.to(device),
                None if one.scales is None else one.scales.to(device),
                one.group,
            )
            for one in weights
        ]
        self._ready: list[Tensor] | None = None
        if all(one.scales is None for one in self._parts):
            self._ready = [one.values.to(dtype) for one in self._parts]

    def __call__(self, x: Tensor) -> Tensor:
        """Return x W^T."""
        x = x.to(self._dtype)
        if self._ready is None:
            return F.linear(x, self._dequantised())
        rows = [F.linear(x, weight) for weight in self._ready]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=-1)

    def exact(self) -> Tensor:
        """Return the weights without any rounding but that of code * scale: float32, a copy."""
        return torch.cat([one.dequantise() for one in self._parts])

    def _dequantised(self) -> Tensor:
        columns = self._parts[0].shape[1]
        rows = [one.shape[0] for one in self._parts]
        out = self._parts[0].values.new_empty(sum(rows), columns, dtype=self._dtype)
        for one, part in zip(self._parts, torch.split(out, rows), strict=True):
            dequantise(one, part)
        return out


def dequantise(weight: DenseWeight, out: Tensor) -> None:
    """Write code * scale, rounded to the dtype of `out`. Shapes: weight and out [N, K]."""
    if weight.scales is None:
        out.copy_(weight.values)
        return
    rows, columns = weight.shape
    grid = (rows, triton.cdiv(columns, DEQUANTISE_COLUMNS))
    _DEQUANTISE.launch(
        grid,
        weight.values.view(torch.uint8),
        weight.scales,
        out,
        columns,
        GROUP=weight.group,
        NATIVE=card(out.device).native_fp8,
        BLOCK=DEQUANTISE_COLUMNS,
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm rows of any float type to bf16; see `kernels.reference.dense.rms_norm`."""
    return norm_rows(x, weight, eps, torch.bfloat16)


def rms_norm_twice(
    x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Norm rows to `dtype`, and to float32 without rounding. Shapes: x [T, H] -> two of [T, H]."""
    wide = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return norm_rows(x, weight, eps, dtype, wide), wide


def attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend causally with the last T tokens of a sequence of C; memory grows with C only.

    See `kernels.reference.dense.attention_prefill`. Shapes: queries [T, N, D], keys and values
    [C, Nkv, D] -> [T, N, D]; any strides with D contiguous.
    """
    num_tokens, context = queries.shape[0], keys.shape[0]
    q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (queries, keys, values))
    if num_tokens == context:
        backends = _PLANNED if num_tokens >= PLANNED_TOKENS else _UNPLANNED
        with sdpa_kernel(backends, set_priority=True):
            out = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=True
            )
    elif can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, False, True)):
        # The public way to a mask that ends at the last key imports torch's compiler: seconds.
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        out = flash(q, k, v, 0.0, True, False, scale=scale)[0]
    else:
        return attention_prefill(queries, keys, values, scale)
    return out[0].transpose(0, 1)


def norm_rows(
    x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, wide: Tensor | None = None
) -> Tensor:
    """Norm rows to `dtype`, and into `wide` if given. Shapes: x, wide [.., H] -> [.., H]."""
    x = x.contiguous()
    hidden = x.shape[-1]
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    _RMS_NORM.launch(
        (x.numel() // hidden,),
        x,
        weight,
        out,
        out if wide is None else wide,
        eps,
        H=hidden,
        BLOCK=triton.next_power_of_2(hidden),
        WIDE=wide is not None,
    )
    return out
