"""How the dense kernels' work is cut: arithmetic only. Never changes a bit of a result.

A matrix's rows are shared out over warps; each lane keeps some 16-byte loads on their way, because
memory is as fast as its queue is long. Figures are for NVIDIA's H200 and hold for smaller cards,
whose queues are shorter; `tests/perf/gpu_dense.py` prints what others give.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kernels.cuda.driver import max_shared_bytes, num_multiprocessors
from kernels.cuda.shape import DecodeShape
from kernels.layouts import DENSE_DTYPES, DenseEncoding

ATTENTION_WARPS = 8  # query heads of one CTA at most
_LANES = 32
_LOAD_BYTES = 16
_STAGED_BYTES = 64 << 10  # of inputs; one CTA's share even where a multiprocessor has 100 KiB
_CTA_OVERHEAD_BYTES = 1 << 10  # of shared memory that every CTA costs


class Card(NamedTuple):
    """What decides how many CTAs run at once: multiprocessors, and shared memory of each."""

    num_multiprocessors: int
    shared_bytes: int

    @classmethod
    def of(cls, device_index: int = 0) -> "Card":
        """Ask the driver."""
        return cls(num_multiprocessors(device_index), max_shared_bytes(device_index))


@dataclass(frozen=True, slots=True)
class GemvPlan:
    """How one matrix [N, K] is read for R inputs.

    Attributes:
        rows: matrix rows N; vectors: R.
        warps: of a CTA; rows_per_warp: that a warp sums at once.
        step_columns: columns that 32 lanes take with one load each.
        depth: steps on their way in registers; `blocks` times `depth` steps cover K.
        staged: blocks of the inputs that lie in shared memory at a time.
        ctas: CTAs that a multiprocessor must be able to hold: bounds the registers.
    """

    rows: int
    vectors: int
    warps: int
    rows_per_warp: int
    step_columns: int
    depth: int
    blocks: int
    staged: int
    ctas: int

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return self.warps * _LANES

    @property
    def shared_bytes(self) -> int:
        """Of the staged inputs."""
        return self.vectors * self.staged * self.depth * self.step_columns * 4

    def num_ctas(self, card: Card) -> int:
        """Return the grid: a CTA for each warps' worth of rows, at most those that run at once."""
        needed = -(-self.rows // (self.rows_per_warp * self.warps))
        resident = min(self.ctas, card.shared_bytes // (self.shared_bytes + _CTA_OVERHEAD_BYTES))
        return min(needed, max(1, resident) * card.num_multiprocessors)

    def defines(self, name: str) -> dict[str, int]:
        """Return what the source calls these sizes."""
        return {
            f"FT_{name}_WARPS": self.warps,
            f"FT_{name}_ROWS": self.rows_per_warp,
            f"FT_{name}_DEPTH": self.depth,
            f"FT_{name}_BLOCKS": self.blocks,
            f"FT_{name}_STAGED": self.staged,
            f"FT_{name}_CTAS": self.ctas,
        }


class GemvPlans(NamedTuple):
    """The matrices of a step."""

    qkv: GemvPlan
    output: GemvPlan
    head: GemvPlan

    def defines(self) -> dict[str, int]:
        """Return the sizes of all."""
        return self.qkv.defines("QKV") | self.output.defines("OUT") | self.head.defines("LOGITS")


class Tuning(NamedTuple):
    """What may be tried: matrix rows of a warp, 16-byte loads of a lane, warps and CTAs."""

    rows_per_warp: int
    loads: int
    warps: int
    ctas: int


def default_tuning(vectors: int, rows: int) -> Tuning:
    """Return how a matrix of N rows is read for R vectors."""
    if vectors <= 2:
        return Tuning(2 if rows > _SMALL_ROWS else 1, 8, 8, 3)
    if vectors <= 4:
        return Tuning(4 if rows > _SMALL_ROWS else 2, 8, 8, 2)
    return Tuning(4, 8, 8 if rows > _SMALL_ROWS else 4, 2)


_SMALL_ROWS = 2048  # up to here, one CTA a multiprocessor is hard to reach


def plan_gemv(
    rows: int, columns: int, encoding: DenseEncoding, vectors: int, tuning: Tuning
) -> GemvPlan:
    """Cut one matrix [N, K]. Every load of a lane lies in one step; K need not be whole steps."""
    step = _LANES * _LOAD_BYTES // DENSE_DTYPES[encoding].itemsize
    steps = -(-columns // step)
    fitting = max(1, _STAGED_BYTES // (vectors * step * 4))
    depth = min(max(1, tuning.loads // tuning.rows_per_warp), fitting)
    blocks = -(-steps // depth)
    depth = -(-steps // blocks)
    staged = min(blocks, max(1, fitting // depth))
    return GemvPlan(
        rows, vectors, tuning.warps, tuning.rows_per_warp, step, depth, blocks, staged, tuning.ctas
    )


def gemv_plans(shape: DecodeShape, tuning: Tuning | None = None) -> GemvPlans:
    """Cut the matrices of a step; `tuning` instead of the default for all of them."""

    def plan(rows: int, columns: int, encoding: DenseEncoding) -> GemvPlan:
        how = tuning or default_tuning(shape.rows, rows)
        return plan_gemv(rows, columns, encoding, shape.rows, how)

    return GemvPlans(
        plan(shape.qkv_width, shape.hidden, shape.projections),
        plan(shape.hidden, shape.query_width, shape.projections),
        plan(shape.vocab, shape.hidden, shape.head),
    )


def dense_defines(shape: DecodeShape, plans: GemvPlans | None = None) -> dict[str, int]:
    """Return everything that `dense.cu` is compiled with."""
    return shape.defines() | (plans or gemv_plans(shape)).defines()
