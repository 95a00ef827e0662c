"""What the fused decode steps of a layer are built from and called with. Interfaces only.

A step does a whole half of a layer, because on a small model the calls cost more than the work.
Filled in by `engine.layers`; the steps are in `kernels.reference.steps` and `kernels.cpu.steps`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from kernels.paged import KvRows


class Linear(Protocol):
    """Products with weights that take the same input; their outputs lie side by side."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return x W^T. Shapes: [T, K] -> [T, N1 + N2 + ..]."""
        ...


class KvStore(Protocol):
    """The pool of keys and values; `engine.cache.kv.KvPool`."""

    @property
    def values(self) -> Tensor:
        """All pages, flat; read it anew in each step, because a resize may move it."""
        ...

    @property
    def num_layers(self) -> int:
        """Layers in a page."""
        ...

    def write(self, rows: KvRows, layer_id: int, keys_values: Tensor) -> None:
        """Store this forward's tokens. Shapes: [T, 2 * Nkv, D], heads of keys, then of values."""
        ...

    def read(self, rows: KvRows, layer_id: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of one sequence in order: two of [C, Nkv, D]."""
        ...


class Places(Protocol):
    """Positions and pages of one forward; `engine.layers.attention.AttentionInputs`."""

    @property
    def rows(self) -> KvRows:
        """Where keys and values lie."""
        ...

    @property
    def cos(self) -> Tensor:
        """[T, 1, D], see `kernels.reference.dense.rotary_tables`."""
        ...

    @property
    def sin(self) -> Tensor:
        """[T, 1, D], the first half negated."""
        ...


class AttentionParts(NamedTuple):
    """One layer's attention.

    A prompt chunk may be taken `tile_tokens` at a time, which bounds what it takes beside its
    keys and values; 0 = all at once.

    Shapes: norm [H]; qkv H -> (N + 2 Nkv) * D; head_norms [N + Nkv, D], those of q, then of k;
    output N * D -> H.
    """

    layer_id: int
    norm: Tensor
    eps: float
    qkv: Linear
    head_norms: Tensor
    num_heads: int
    num_kv_heads: int
    output: Linear
    kv: KvStore
    tile_tokens: int = 0


class RouterParts(NamedTuple):
    """One layer's router: norm [H]; gate H -> E; `choose` turns logits into (ids, weights)."""

    norm: Tensor
    eps: float
    gate: Linear
    choose: Callable[[Tensor, int, bool, float], tuple[Tensor, Tensor]]
    top_k: int
    normalise: bool
    scale: float
