"""Grouped-query attention over the paged cache, with a norm on each head of q and k.

Knows no page layout (that is the pool's) and no model. Called by families.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import ForwardBatch
from engine.layers.rotary import Rotary
from kernels.api import attention_chunk, attention_step, linear
from kernels.paged import KvRows
from kernels.steps import AttentionParts
from kernels.weights import DenseWeight


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """What every attention layer of one forward shares; made once per forward."""

    is_prefill: bool
    rows: KvRows
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(
        cls, batch: ForwardBatch, kv: KvPool, rotary: Rotary, dtype: torch.dtype
    ) -> "AttentionInputs":
        """Work out rows and angles of a batch."""
        cos, sin = rotary.tables(batch.positions, dtype)
        return cls(batch.phase == "prefill", kv.rows(batch), cos, sin)


class AttentionWeights(NamedTuple):
    """One layer's weights, named as checkpoints name them.

    Shapes: q [N*D, H], k and v [Nkv*D, H], o [H, N*D], norms [D].
    """

    q_proj: DenseWeight
    k_proj: DenseWeight
    v_proj: DenseWeight
    o_proj: DenseWeight
    q_norm: DenseWeight
    k_norm: DenseWeight


class Attention:
    """One layer's attention with the norm before it, added to the residual stream.

    q, k and v are one product, their norms and rotation one step; decode is one step altogether.
    """

    __slots__ = ("_decode", "_prefill")

    def __init__(  # noqa: PLR0913 - a layer's parts
        self,
        layer_id: int,
        norm: DenseWeight,
        weights: AttentionWeights,
        eps: float,
        kv: KvPool,
        device: torch.device,
        tile_tokens: int = 0,
    ) -> None:
        """Take the parts; see `kernels.steps.AttentionParts` for `tile_tokens`."""
        dtype, head_dim = kv.dtype, weights.q_norm.shape[0]
        num_heads = weights.q_proj.shape[0] // head_dim
        num_kv_heads = weights.k_proj.shape[0] // head_dim
        q_norm, k_norm = (
            one.dequantise().to(device, dtype) for one in (weights.q_norm, weights.k_norm)
        )
        parts = AttentionParts(
            layer_id=layer_id,
            norm=norm.dequantise().to(device, dtype),
            eps=eps,
            qkv=linear((weights.q_proj, weights.k_proj, weights.v_proj), device, dtype),
            head_norms=torch.cat((q_norm.expand(num_heads, -1), k_norm.expand(num_kv_heads, -1))),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            output=linear((weights.o_proj,), device, dtype),
            kv=kv,
            tile_tokens=tile_tokens,
        )
        self._decode = attention_step(parts, device, dtype)
        self._prefill = attention_chunk(parts, device, dtype)

    def __call__(self, hidden: Tensor, inputs: AttentionInputs) -> None:
        """Store this batch's keys and values, attend, add. Shapes: hidden [T, H], in place."""
        (self._prefill if inputs.is_prefill else self._decode)(hidden, inputs)
