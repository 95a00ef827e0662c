"""What a decode step's kernels are compiled for: one model's sizes and a number of rows.

Arithmetic only, no device. Every size becomes a define, so that loops have fixed lengths. Made by
the loader; read by the launchers of this package.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.layouts import DENSE_DTYPES, UNIT_ROWS, DenseEncoding, RecordLayout

MAX_ROWS = 8
MAX_HEAD_DIM = 256
PAGE_TOKENS = 16
ENCODING_CODES: Mapping[DenseEncoding, int] = {name: i for i, name in enumerate(DENSE_DTYPES)}
"""What the sources call an encoding: 0 two bytes, 1 a byte and scales, 2 four bytes a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeShape:
    """Sizes of one captured step.

    Attributes:
        rows: R, tokens of the step, 1..8.
        layout: an expert's record; gives H, I, the experts' encoding and group.
        num_experts, top_k, num_layers: of the MoE layers, which are all layers.
        num_heads, num_kv_heads, head_dim: of attention; D is a multiple of 32 up to 256.
        vocab: V, rows of the head.
        projections, head, embedding, router: how these weights are stored.
        dense_group: side of a scale block of dense weights, 0 if none has any.
        normalise: whether the top-k weights are divided by their sum.
        splits: parts of a context that attention takes at most.
        max_slots: slots that the expert cache can ever have.

    Raises: ValueError, as half a sentence, for sizes that the kernels do not take; the caller
        then uses the reference path.
    """

    rows: int
    layout: RecordLayout
    num_experts: int
    top_k: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    projections: DenseEncoding
    head: DenseEncoding
    embedding: DenseEncoding
    router: DenseEncoding
    dense_group: int = 0
    normalise: bool = True
    splits: int = 32
    max_slots: int = 0

    def __post_init__(self) -> None:
        for problem, found in (
            (f"{self.rows} rows are not within 1..{MAX_ROWS}", not 1 <= self.rows <= MAX_ROWS),
            (f"hidden size {self.hidden} is no multiple of 128", self.hidden % 128 != 0),
            (
                f"head size {self.head_dim} is no multiple of 32 up to {MAX_HEAD_DIM}",
                self.head_dim % 32 != 0 or not 32 <= self.head_dim <= MAX_HEAD_DIM,
            ),
            (
                f"{self.num_heads} heads are no multiple of {self.num_kv_heads}",
                self.num_heads % self.num_kv_heads != 0,
            ),
            (
                f"top {self.top_k} of {self.num_experts} experts",
                not 1 <= self.top_k <= self.num_experts,
            ),
            (f"attention in {self.splits} parts", not 1 <= self.splits <= 64),
            (
                f"dense scale blocks of {self.dense_group}",
                self.dense_group < 0 or self.dense_group % UNIT_ROWS != 0,
            ),
            ("an embedding in scaled blocks", DENSE_DTYPES[self.embedding].itemsize == 1),
        ):
            if found:
                raise ValueError(problem)

    @property
    def hidden(self) -> int:
        """H."""
        return self.layout.hidden

    @property
    def query_width(self) -> int:
        """Values of all query heads of a row."""
        return self.num_heads * self.head_dim

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share a head of keys."""
        return self.num_heads // self.num_kv_heads

    @property
    def kv_width(self) -> int:
        """Values of all heads of keys (or of values) of a row."""
        return self.num_kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Values of q, k and v of a row."""
        return self.query_width + 2 * self.kv_width

    def defines(self) -> dict[str, int]:
        """Return the sizes by the names that the sources use."""
        return {
            "FT_ROWS": self.rows,
            "FT_HIDDEN": self.hidden,
            "FT_UNITS": self.layout.num_units,
            "FT_UNIT_ROWS": UNIT_ROWS,
            "FT_EXPERTS": self.num_experts,
            "FT_TOPK": self.top_k,
            "FT_MOE_LAYERS": self.num_layers,
            "FT_HEADS": self.num_heads,
            "FT_KV_HEADS": self.num_kv_heads,
            "FT_HEAD_DIM": self.head_dim,
            "FT_VOCAB": self.vocab,
            "FT_ENCODING": ENCODING_CODES[self.layout.encoding],
            "FT_GROUP": self.layout.group,
            "FT_UNIT_BYTES": self.layout.unit_bytes,
            "FT_RECORD_BYTES": self.layout.record_bytes,
            "FT_NORMALISE": int(self.normalise),
            "FT_DENSE": ENCODING_CODES[self.projections],
            "FT_HEAD": ENCODING_CODES[self.head],
            "FT_EMBEDDING": ENCODING_CODES[self.embedding],
            "FT_ROUTER": ENCODING_CODES[self.router],
            "FT_DENSE_GROUP": self.dense_group,
            "FT_PAGE_TOKENS": PAGE_TOKENS,
            "FT_SPLITS": self.splits,
            "FT_MAX_SLOTS": self.max_slots,
        }
