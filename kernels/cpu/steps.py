"""Halves of a layer's decode step, each in one C++ call: fast forms of `kernels.reference.steps`.

Every tier gives the same bits (`kernels/csrc/canonical.h`), and a token's bits depend on its own
sequence only. Chosen by `kernels.registry`; the products in their parts were chosen by it too.
"""

from typing import Protocol, cast

import torch
from torch import Tensor

from kernels.cpu import IsaTier, load_native
from kernels.cpu.dense import FEW_TOKENS, NativeLinear, NativeProduct, check
from kernels.reference.steps import ReferenceRouterStep
from kernels.steps import AttentionParts, Linear, Places, RouterParts


class _Attention(Protocol):
    def run(
        self,
        hidden: int,
        pool: int,
        angles: tuple[int, int],
        pages: tuple[int, int, int, int],
        lengths: tuple[int, ...],
    ) -> None: ...


class _Router(Protocol):
    def run(self, hidden: int, tokens: int, x: int, ids: int, weights: int) -> None: ...


class _Native(Protocol):
    """What `_native` offers for this; `kernels/csrc/dense_module.cpp`."""

    def AttentionStep(
        self,
        layer: tuple[int, int],
        heads: tuple[int, int, int],
        norms: tuple[int, int, float],
        qkv: NativeProduct,
        output: NativeProduct,
        tier: str,
    ) -> _Attention: ...

    def RouterStep(
        self,
        norm: tuple[int, float],
        gate: NativeProduct,
        rule: tuple[int, bool, float],
        tier: str,
    ) -> _Router: ...

    def isa_tier(self) -> IsaTier: ...


class NativeAttentionStep:
    """Decode: hidden += attention(norm(hidden)); see `ReferenceAttentionStep`.

    Raises: ValueError for parts of other sizes or kinds.
    """

    def __init__(self, parts: AttentionParts, tier: IsaTier | None = None) -> None:
        native = cast("_Native", load_native())
        head_dim = parts.head_norms.shape[1]
        query, pair = parts.num_heads * head_dim, 2 * parts.num_kv_heads * head_dim
        qkv, output = _native(parts.qkv), _native(parts.output)
        width = qkv.shape[1]
        if qkv.shape != (query + pair, width) or output.shape != (width, query):
            raise ValueError(f"products {qkv.shape} and {output.shape} for {query} + {pair} values")
        check(parts.norm, (width,))
        check(parts.head_norms, (parts.num_heads + parts.num_kv_heads, head_dim))
        self._parts = parts
        self._width, self._head_dim = width, head_dim
        self._native = native.AttentionStep(
            (parts.layer_id, parts.kv.num_layers),
            (parts.num_heads, parts.num_kv_heads, head_dim),
            (parts.norm.data_ptr(), parts.head_norms.data_ptr(), parts.eps),
            qkv.native,
            output.native,
            tier or native.isa_tier(),
        )

    def __call__(self, hidden: Tensor, places: Places) -> None:
        """Work in place. Shapes: hidden [B, H] float32, one token of each of B sequences."""
        rows, pool = places.rows, self._parts.kv.values
        num_rows, tables = len(rows.lengths), rows.tables
        check(hidden, (num_rows, self._width))
        check(places.cos, (num_rows, 1, self._head_dim))
        check(places.sin, (num_rows, 1, self._head_dim))
        check(rows.slots, (num_rows,), torch.int64)
        check(tables, (num_rows, tables.shape[-1]), torch.int64)
        self._native.run(
            hidden.data_ptr(),
            pool.data_ptr(),
            (places.cos.data_ptr(), places.sin.data_ptr()),
            (rows.page_tokens, rows.slots.data_ptr(), tables.data_ptr(), tables.shape[1]),
            rows.lengths,
        )


class NativeRouterStep:
    """Norm, router logits, choice of experts; see `ReferenceRouterStep`, which does long chunks.

    Raises: ValueError for parts of other sizes or kinds.
    """

    def __init__(self, parts: RouterParts, tier: IsaTier | None = None) -> None:
        native = cast("_Native", load_native())
        gate = _native(parts.gate)
        check(parts.norm, gate.shape[1:])
        if not 1 <= parts.top_k <= gate.shape[0]:
            raise ValueError(f"top-{parts.top_k} of {gate.shape[0]} experts")
        self._parts, self._width = parts, gate.shape[1]
        self._reference = ReferenceRouterStep(parts)
        self._native = native.RouterStep(
            (parts.norm.data_ptr(), parts.eps),
            gate.native,
            (parts.top_k, parts.normalise, parts.scale),
            tier or native.isa_tier(),
        )

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the experts' input and the routes; `hidden` stays.

        Shapes: [T, H] -> x [T, H], ids [T, K] int32, weights [T, K] float32.
        """
        num_tokens, top_k = len(hidden), self._parts.top_k
        if num_tokens > FEW_TOKENS:
            return self._reference(hidden)
        check(hidden, (num_tokens, self._width))
        x = torch.empty_like(hidden)
        ids = torch.empty(num_tokens, top_k, dtype=torch.int32)
        weights = torch.empty(num_tokens, top_k)
        self._native.run(
            hidden.data_ptr(), num_tokens, x.data_ptr(), ids.data_ptr(), weights.data_ptr()
        )
        return x, ids, weights


def _native(product: Linear) -> NativeLinear:
    if not isinstance(product, NativeLinear):
        raise ValueError(f"a step of C++ kernels with a product of {type(product).__name__}")
    return product
