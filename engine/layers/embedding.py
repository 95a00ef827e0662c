"""Token ids to rows, and rows to logits."""

import torch
from torch import Tensor

from kernels.api import linear
from kernels.reference.dense import embedding
from kernels.weights import DenseWeight


class Embedding:
    """The table of token vectors, as stored unless it has scales. Shapes: table [V, H]."""

    __slots__ = ("_dtype", "_table")

    def __init__(self, table: DenseWeight, device: torch.device, dtype: torch.dtype) -> None:
        values = table.values if table.scales is None else table.dequantise()
        self._table, self._dtype = values.to(device), dtype

    def __call__(self, ids: Tensor) -> Tensor:
        """Return one row per id, in the activations' dtype. Shapes: [T] int64 -> [T, H]."""
        return embedding(ids, self._table).to(self._dtype)


class Head:
    """Logits over the vocabulary; a model with tied embeddings gives it their table."""

    __slots__ = ("_linear",)

    def __init__(self, table: DenseWeight, device: torch.device, dtype: torch.dtype) -> None:
        self._linear = linear((table,), device, dtype)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return logits. Shapes: [R, H] -> [R, V] float32."""
        return self._linear(hidden).float()


def pick_rows(hidden: Tensor, rows: tuple[int, ...]) -> Tensor:
    """Return the wanted rows, as a view where they lie side by side.

    Shapes: hidden [T, H], rows R host integers -> [R, H].
    """
    if not rows:
        return hidden[:0]
    if rows == tuple(range(rows[0], rows[-1] + 1)):
        return hidden[rows[0] : rows[-1] + 1]
    return hidden[list(rows)]
