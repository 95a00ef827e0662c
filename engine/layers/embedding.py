"""Token ids to rows, and rows to logits."""

from torch import Tensor

from kernels.reference.dense import embedding, linear


class Embedding:
    """The table of token vectors. Shapes: table [V, H]."""

    __slots__ = ("table",)

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, ids: Tensor) -> Tensor:
        """Return one row per id. Shapes: [T] int64 -> [T, H]."""
        return embedding(ids, self.table)


class Head:
    """Logits over the vocabulary; a model with tied embeddings gives it their table."""

    __slots__ = ("table",)

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return logits. Shapes: [R, H] -> [R, V] float32."""
        return linear(hidden, self.table).float()


def pick_rows(hidden: Tensor, rows: tuple[int, ...]) -> Tensor:
    """Return the wanted rows, as a view where they lie side by side.

    Shapes: hidden [T, H], rows R host integers -> [R, H].
    """
    if not rows:
        return hidden[:0]
    if rows == tuple(range(rows[0], rows[-1] + 1)):
        return hidden[rows[0] : rows[-1] + 1]
    return hidden[list(rows)]
