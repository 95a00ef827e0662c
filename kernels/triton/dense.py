"""Dense work of a prompt chunk on a card: products through cuBLAS, the rest in Triton.

Weights stay as they are stored: bf16 as they are, FP8 blocks are dequantised into scratch for the
product that needs them. Activations are bf16 (`dtype`), sums and norms float32. The residual stream
may be wider than the activations and is added to in its own type. References are in
`kernels.reference`.
"""

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.reference.dense import attention_prefill
from kernels.reference.routing import weigh
from kernels.triton import dense_jit as jit
from kernels.triton.device import card
from kernels.triton.launch import CardKernel
from kernels.weights import DenseWeight

DEQUANTISE_COLUMNS = 1024
# cuDNN plans anew for each length, some 70 ms, and is the faster one for long prompts only.
PLANNED_TOKENS = 8192
FLASH_HEAD_STEP = 8  # torch pads heads of other sizes
_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_PLANNED = [SDPBackend.CUDNN_ATTENTION, *_UNPLANNED]
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default


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
            # Transposed views: what `linear` makes of them at each call.
            self._ready = [one.values.to(dtype).t() for one in self._parts]

    def __call__(self, x: Tensor) -> Tensor:
        """Return x W^T."""
        x = x.to(self._dtype)
        if self._ready is None:
            return F.linear(x, self._dequantised())
        if len(self._ready) == 1:
            return torch.mm(x, self._ready[0])
        widths = [weight.shape[1] for weight in self._ready]
        out = x.new_empty(x.shape[0], sum(widths))
        for weight, part in zip(self._ready, out.split_with_sizes(widths, 1), strict=True):
            torch.mm(x, weight, out=part)  # side by side at once: no copy of them all
        return out

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
    kernel = _dequantisation(weight.group, out.device)
    kernel.launch(grid, weight.values.view(torch.uint8), weight.scales, out, columns)


@cache
def _dequantisation(group: int, device: torch.device) -> CardKernel:
    return CardKernel(
        jit.dequantise, GROUP=group, NATIVE=card(device).native_fp8, BLOCK=DEQUANTISE_COLUMNS
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


def topk_softmax(
    logits: Tensor, top_k: int, normalise: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Choose experts; the same bits as `kernels.reference.routing.topk_softmax`."""
    scores = torch.softmax(logits.to(torch.float32), dim=-1).contiguous()
    num_tokens, num_experts = scores.shape
    ids = scores.new_empty(num_tokens, top_k, dtype=torch.int32)
    _choice(num_experts, top_k).launch((num_tokens,), scores, ids)
    return ids, weigh(scores.narrow(1, 0, top_k), normalise, scale)


@cache
def _choice(num_experts: int, top_k: int) -> CardKernel:
    size = triton.next_power_of_2(num_experts)
    return CardKernel(jit.take_best, E=num_experts, K=top_k, SIZE=size, num_warps=1, num_stages=1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend causally with the last T tokens of a sequence of C; memory grows with C only.

    See `kernels.reference.dense.attention_prefill`. Shapes: queries [T, N, D], keys and values
    [C, Nkv, D] -> [T, N, D]; any strides with D contiguous.
    """
    (num_tokens, _, head_dim), context = queries.shape, keys.shape[0]
    q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (queries, keys, values))
    is_whole = num_tokens == context
    is_planned = is_whole and num_tokens >= PLANNED_TOKENS
    if (
        not is_planned
        and head_dim % FLASH_HEAD_STEP == 0
        and can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, is_whole, True))
    ):
        # What torch takes first of `_UNPLANNED`, without saying so to torch before and after. And
        # the public way to a mask that ends at the last key imports torch's compiler: seconds.
        out: Tensor = _FLASH(q, k, v, 0.0, True, False, scale=scale)[0]
    elif is_whole:
        with sdpa_kernel(_PLANNED if is_planned else _UNPLANNED, set_priority=True):
            out = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=True
            )
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
    kernel, grid = _norm(hidden, wide is not None), (x.numel() // hidden,)
    kernel.launch(grid, x, weight, out, out if wide is None else wide, eps)
    return out


@cache
def _norm(hidden: int, is_wide: bool) -> CardKernel:
    block = triton.next_power_of_2(hidden)
    return CardKernel(jit.rms_norm, H=hidden, BLOCK=block, WIDE=is_wide)
