"""The fused steps of a layer over a prompt chunk on a card; see `kernels.reference.steps`.

The residual stream may be float32 while activations, keys and values are bf16. Nothing waits for
the device.
"""

from functools import cache
from typing import cast

import torch
import triton
from torch import Tensor

from kernels.steps import AttentionParts, Places, RouterParts
from kernels.triton import dense_jit as jit
from kernels.triton.dense import CardLinear, attend, norm_rows, rms_norm_twice
from kernels.triton.launch import CardKernel

HEADS_PER_PROGRAM = 8


class CardRouterStep:
    """Norm, router logits, and the choice of experts.

    Logits come from the unrounded norm in float32, so that a chunk routes as decode does.
    """

    def __init__(self, parts: RouterParts) -> None:
        self._parts = parts
        self._gate = cast("CardLinear", parts.gate).exact().t()

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the experts' input and the routes; `hidden` stays.

        Shapes: [T, H] -> x [T, H] bf16, ids [T, K] int32, weights [T, K] float32.
        """
        parts = self._parts
        x, wide = rms_norm_twice(hidden, parts.norm, parts.eps, parts.norm.dtype)
        logits = torch.mm(wide, self._gate)
        return x, *parts.choose(logits, parts.top_k, parts.normalise, parts.scale)


class CardAttentionChunk:
    """Prefill: hidden += attention(norm(hidden)), with this chunk's keys and values stored.

    A chunk longer than a tile goes tile by tile: each sees the keys before it and its own. Tiles
    begin at multiples of their length, so that launches differ from a whole chunk's in size only.
    """

    def __init__(self, parts: AttentionParts) -> None:
        self._parts = parts
        self._scale = float(parts.head_norms.shape[1]) ** -0.5

    def __call__(self, hidden: Tensor, places: Places) -> None:
        """Work in place on the last T tokens of one sequence. Shapes: hidden [T, H]."""
        parts, rows, num_tokens = self._parts, places.rows, hidden.shape[0]
        if 0 < parts.tile_tokens < num_tokens:
            self._tile_by_tile(hidden, places)
            return
        queries, keys, values = self._heads(hidden, places, 0)
        if rows.lengths[0] != num_tokens:
            keys, values = parts.kv.read(rows, parts.layer_id, 0)
        self._attend(hidden, queries, keys, values)

    def _tile_by_tile(self, hidden: Tensor, places: Places) -> None:
        parts, rows, num_tokens = self._parts, places.rows, hidden.shape[0]
        past = rows.lengths[0] - num_tokens
        if past:
            all_keys, all_values = parts.kv.read(rows, parts.layer_id, 0)
        else:
            shape = (2, num_tokens, parts.num_kv_heads, parts.head_norms.shape[1])
            all_keys, all_values = hidden.new_empty(shape, dtype=parts.norm.dtype).unbind(0)
        for begin in range(0, num_tokens, parts.tile_tokens):
            tile = hidden[begin : begin + parts.tile_tokens]
            queries, keys, values = self._heads(tile, places, begin)
            seen = past + begin + tile.shape[0]
            all_keys[past + begin : seen].copy_(keys)
            all_values[past + begin : seen].copy_(values)
            self._attend(tile, queries, all_keys[:seen], all_values[:seen])

    def _heads(self, hidden: Tensor, places: Places, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of the tokens from `first` on, and store the last two.

        Shapes: hidden [T, H] -> [T, N, D], two of [T, Nkv, D].
        """
        parts = self._parts
        num_heads, num_kv_heads = parts.num_heads, parts.num_kv_heads
        qkv = parts.qkv(norm_rows(hidden, parts.norm, parts.eps, parts.norm.dtype))
        store_heads(qkv, parts, places, first)
        heads = qkv.view(hidden.shape[0], num_heads + 2 * num_kv_heads, -1)
        queries, keys, values = heads.split_with_sizes((num_heads, num_kv_heads, num_kv_heads), 1)
        return queries, keys, values

    def _attend(self, hidden: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> None:
        attended = attend(queries, keys, values, self._scale)
        hidden.add_(self._parts.output(attended.flatten(1)))


def store_heads(qkv: Tensor, parts: AttentionParts, places: Places, first: int = 0) -> None:
    """Norm and rotate queries and keys in place, and copy keys and values to the pool.

    `first` is the place of the first token among those of `places`.

    Shapes: qkv [T, (N + 2 Nkv) * D], contiguous.
    """
    rows, head_dim = places.rows, parts.head_norms.shape[1]
    here = slice(first, first + qkv.shape[0])
    num_heads = parts.num_heads + 2 * parts.num_kv_heads
    kernel = _storing(parts.num_heads, parts.num_kv_heads, head_dim, rows.page_tokens)
    kernel.launch(
        (qkv.shape[0], triton.cdiv(num_heads, HEADS_PER_PROGRAM)),
        qkv,
        parts.head_norms,
        places.cos[here],
        places.sin[here],
        rows.slots[here],
        parts.kv.values,
        parts.layer_id,
        parts.kv.num_layers,
        parts.eps,
    )


@cache
def _storing(num_heads: int, num_kv_heads: int, head_dim: int, page_tokens: int) -> CardKernel:
    return CardKernel(
        jit.rotate_and_store,
        QUERIES=num_heads,
        KEYS=num_kv_heads,
        D=head_dim,
        HALF=triton.next_power_of_2(head_dim // 2),
        PAGE=page_tokens,
        HEADS=HEADS_PER_PROGRAM,
    )
