"""The fused steps of a layer, op by op: the truth for fast ones, and what serves where none is.

Their parts come from the registry, so a device that has faster ones uses them here too.
"""

import torch
from torch import Tensor

from kernels.reference.dense import (
    attention_decode,
    attention_prefill,
    norm_and_rotary_,
    rms_norm,
)
from kernels.steps import AttentionParts, Places, RouterParts


class ReferenceAttentionStep:
    """Decode: hidden += attention(norm(hidden)), with this step's keys and values stored."""

    def __init__(self, parts: AttentionParts) -> None:
        self._parts = parts
        self._scale = float(parts.head_norms.shape[1]) ** -0.5

    def __call__(self, hidden: Tensor, places: Places) -> None:
        """Work in place, row by row: a row's result does not depend on who shares the batch.

        Shapes: hidden [B, H], one token of each of B sequences.
        """
        parts, rows = self._parts, places.rows
        num_tokens, num_heads = hidden.shape[0], parts.num_heads
        head_dim = parts.head_norms.shape[1]
        qkv = parts.qkv(rms_norm(hidden, parts.norm, parts.eps)).view(num_tokens, -1, head_dim)
        queries_keys = qkv[:, : num_heads + parts.num_kv_heads]
        norm_and_rotary_(queries_keys, parts.head_norms, parts.eps, places.cos, places.sin)
        parts.kv.write(rows, parts.layer_id, qkv[:, num_heads:])
        attended = [
            attention_decode(query, *parts.kv.read(rows, parts.layer_id, row), self._scale)
            for row, query in enumerate(qkv[:, :num_heads].unbind(0))
        ]
        hidden.add_(parts.output(torch.stack(attended).flatten(1)))


class ReferenceAttentionChunk:
    """Prefill: hidden += attention(norm(hidden)), with this chunk's keys and values stored."""

    def __init__(self, parts: AttentionParts) -> None:
        self._parts = parts
        self._scale = float(parts.head_norms.shape[1]) ** -0.5

    def __call__(self, hidden: Tensor, places: Places) -> None:
        """Work in place on the last T tokens of one sequence. Shapes: hidden [T, H]."""
        parts, rows, num_tokens = self._parts, places.rows, hidden.shape[0]
        num_heads, head_dim = parts.num_heads, parts.head_norms.shape[1]
        qkv = parts.qkv(rms_norm(hidden, parts.norm, parts.eps)).view(num_tokens, -1, head_dim)
        queries_keys = qkv[:, : num_heads + parts.num_kv_heads]
        norm_and_rotary_(queries_keys, parts.head_norms, parts.eps, places.cos, places.sin)
        parts.kv.write(rows, parts.layer_id, qkv[:, num_heads:])
        keys, values = parts.kv.read(rows, parts.layer_id, 0)
        attended = attention_prefill(qkv[:, :num_heads], keys, values, self._scale)
        hidden.add_(parts.output(attended.flatten(1)))


class ReferenceRouterStep:
    """Norm, router logits, and the choice of experts."""

    def __init__(self, parts: RouterParts) -> None:
        self._parts = parts

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the experts' input and the routes; `hidden` stays.

        Shapes: [T, H] -> x [T, H], ids [T, K] int32, weights [T, K] float32.
        """
        parts = self._parts
        x = rms_norm(hidden, parts.norm, parts.eps)
        logits = parts.gate(x).float()
        return x, *parts.choose(logits, parts.top_k, parts.normalise, parts.scale)
