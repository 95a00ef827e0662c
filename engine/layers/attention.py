"""Grouped-query attention over the paged cache, with a norm on each head of q and k.

Knows no page layout (that is the pool's) and no model. Called by families.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.kv import KvPool, KvRows
from engine.forward import ForwardBatch
from engine.layers.linear import Linear
from engine.layers.rotary import Rotary
from kernels.reference.dense import attention_decode, attention_prefill, norm_and_rotary_


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

    q_proj: Tensor
    k_proj: Tensor
    v_proj: Tensor
    o_proj: Tensor
    q_norm: Tensor
    k_norm: Tensor


class Attention:
    """One layer's attention. q, k and v are one product, their norms and rotation one step."""

    __slots__ = (
        "_eps",
        "_head_dim",
        "_kv",
        "_layer_id",
        "_norms",
        "_num_heads",
        "_o",
        "_qk_heads",
        "_qkv",
        "_scale",
    )

    def __init__(self, layer_id: int, weights: AttentionWeights, eps: float, kv: KvPool) -> None:
        head_dim = weights.q_norm.shape[0]
        num_heads = weights.q_proj.shape[0] // head_dim
        num_kv_heads = weights.k_proj.shape[0] // head_dim
        self._layer_id, self._eps, self._kv = layer_id, eps, kv
        self._head_dim, self._num_heads = head_dim, num_heads
        self._qk_heads = num_heads + num_kv_heads
        self._scale = head_dim**-0.5
        self._qkv = Linear(weights.q_proj, weights.k_proj, weights.v_proj)
        self._o = Linear(weights.o_proj)
        self._norms = torch.cat(
            (weights.q_norm.expand(num_heads, -1), weights.k_norm.expand(num_kv_heads, -1))
        )

    def __call__(self, hidden: Tensor, inputs: AttentionInputs) -> Tensor:
        """Store this batch's keys and values, then attend. Shapes: [T, H] -> [T, H]."""
        num_tokens, num_heads, head_dim = hidden.shape[0], self._num_heads, self._head_dim
        qkv = self._qkv(hidden).view(num_tokens, -1, head_dim)
        norm_and_rotary_(qkv[:, : self._qk_heads], self._norms, self._eps, inputs.cos, inputs.sin)
        self._kv.write(inputs.rows, self._layer_id, qkv[:, num_heads:])
        queries = qkv[:, :num_heads]
        attended = (self._prefill if inputs.is_prefill else self._decode)(queries, inputs)
        return self._o(attended.view(num_tokens, num_heads * head_dim))

    def _prefill(self, queries: Tensor, inputs: AttentionInputs) -> Tensor:
        keys, values = self._kv.read(inputs.rows, self._layer_id, 0)
        return attention_prefill(queries, keys, values, self._scale)

    def _decode(self, queries: Tensor, inputs: AttentionInputs) -> Tensor:
        """Attend row by row: a row's result does not depend on who shares the batch."""
        out = []
        for row, query in enumerate(queries.unbind(0)):
            keys, values = self._kv.read(inputs.rows, self._layer_id, row)
            out.append(attention_decode(query, keys, values, self._scale))
        return out[0] if len(out) == 1 else torch.stack(out)
