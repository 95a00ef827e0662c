"""What a model costs, from facts that are known before anything is read.

Numbers only. Called by `engine.loader.open`.
"""

from dataclasses import dataclass

from engine.loader.chunk import PromptChunk
from engine.memory.budget import (
    MIB,
    Division,
    MemoryBudget,
    check_host,
    device_total,
    emulated_total,
    host_limit,
    with_total,
)
from engine.models.spec import ModelSpec
from engine.protocol.messages import Budget
from kernels.device.virtual import granule_size
from kernels.reference.dense import BLOCK_SCORES, MIN_BLOCK_QUERIES

FLOAT_BYTES = 4
LEAST_GRANULE_BYTES = 2 * MIB  # what drivers map at once
HIDDEN_COPIES = 16  # live activations of one layer, in vectors of the hidden size
STAGING_SHARE = 0.15  # of the device; above it, staging is smaller than two layers
LAYER_SHARE = 0.2  # up to it, staging holds one: else what is missing crosses once a tile
# Values of one expert that keep a thread busy. Waking a thread for less costs more than it saves:
# the built-in model (110,592) decodes at 188 tok/s with one thread, 79 with two (two Zen 5 cores,
# 2026-11-30).
VALUES_PER_THREAD = 1 << 18


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Sizes of one checkpoint.

    Attributes:
        dense_values: values of all dense weights.
        record_bytes: one expert.
        num_records: experts over all layers.
        num_experts: experts of one layer.
        chunk_tokens: prompt tokens per step.
        tile_tokens: of a chunk that attention takes at once, where steps are captured.
        kv_token_bytes: keys and values of one token, and its share of what reads them.
        dense_bytes: dense weights as they lie on the device.
        scratch_bytes: buffers of captured steps and of a prompt's experts; 0 = steps are not
            captured, and attention of a chunk works out its scores block by block.
    """

    dense_values: int
    record_bytes: int
    num_records: int
    num_experts: int
    chunk_tokens: int
    kv_token_bytes: int
    dense_bytes: int
    scratch_bytes: int = 0
    tile_tokens: int = 0

    @property
    def pool_bytes(self) -> int:
        """All experts in main memory."""
        return self.record_bytes * self.num_records


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a load will divide the device."""

    budget: MemoryBudget
    division: Division
    staging_records: int


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of a device and of the host, in bytes.

    `asked_bytes` is the emulated total from the settings, 0 = none.
    """

    emulated: bool
    device_total_bytes: int
    device_free_bytes: int
    host_total_bytes: int
    host_available_bytes: int
    asked_bytes: int = 0


def plan_load(
    cost: ModelCost, spec: ModelSpec, room: Room, asked: Budget, max_rows: int
) -> LoadPlan:
    """Divide the device and check main memory, before anything is read (cases E-04, M-06, M-22).

    Raises: BudgetError with the sum and what would fit.
    """
    total = _total_bytes(room, asked)
    staging = _staging_records(cost, spec, total)
    parts = MemoryBudget(
        total_bytes=total or 0,
        weights_bytes=cost.dense_bytes,
        runtime_bytes=_activation_bytes(cost, spec, max_rows)
        + staging * cost.record_bytes
        + (0 if room.emulated else _rounding_bytes(cost, spec, staging, max_rows)),
        kv_token_bytes=cost.kv_token_bytes,
        record_bytes=cost.record_bytes,
        num_records=cost.num_records,
        min_slots=min(spec.router.top_k, cost.num_records),
        context_tokens=spec.max_context,
        max_rows=max_rows,
    )
    budget = parts if total is not None else with_total(parts, _emulated_bytes(parts, cost, room))
    division = budget.choose(room.emulated, asked.kv_tokens, asked.expert_slots)
    on_host = budget.need_bytes(division) if room.emulated else 0
    check_host(cost.pool_bytes + on_host, room.host_available_bytes, room.host_total_bytes)
    return LoadPlan(budget, division, staging)


def choose_threads(expert_values: int, num_cores: int) -> int:
    """Return the threads that one operation is spread over, from the values of one expert.

    A fixed rule and no measurement, because the number of threads may change the last bits.
    Returns: 1 <= threads <= num_cores.
    """
    return max(1, min(num_cores, expert_values // VALUES_PER_THREAD))


def total_params(cost: ModelCost, spec: ModelSpec) -> tuple[int, int]:
    """Return (all parameters, parameters that one token uses)."""
    expert = 3 * spec.hidden * spec.moe_intermediate
    routed = len(spec.moe_layers) * spec.router.top_k
    return cost.dense_values + cost.num_records * expert, cost.dense_values + routed * expert


def _emulated_bytes(parts: MemoryBudget, cost: ModelCost, room: Room) -> int:
    """Return the emulated device's size: what main memory has beside the pool, if all is too much.

    So a model loads wherever its pool and the smallest division fit (M-06), and no slider leads
    beyond what there is.
    """
    spare = host_limit(room.host_available_bytes, room.host_total_bytes) - cost.pool_bytes
    return min(emulated_total(parts), max(parts.smallest_bytes, spare // MIB * MIB))


def staged_records(cost: ModelCost, spec: ModelSpec, room: Room, asked: Budget) -> int:
    """Return the experts that `plan_load` will let stream through; they depend on no chunk.

    Raises: BudgetError if more is asked for than the device has free.
    """
    return _staging_records(cost, spec, _total_bytes(room, asked))


def _total_bytes(room: Room, asked: Budget) -> int | None:
    """Return what the engine may take; None = an emulated device that nobody gave a size."""
    total = asked.total_bytes or (room.asked_bytes if room.emulated else 0) or None
    if room.emulated:
        return total
    return device_total(room.device_total_bytes, room.device_free_bytes, total)


def _staging_records(cost: ModelCost, spec: ModelSpec, total: int | None) -> int:
    """Experts that stream through during prefill: two layers, fewer on a small device."""
    layer = cost.num_experts
    if total is None:
        return 2 * layer
    fit = int(total * STAGING_SHARE) // cost.record_bytes
    if fit < layer and layer * cost.record_bytes <= total * LAYER_SHARE:
        fit = layer
    return min(2 * layer, max(2 * spec.router.top_k, fit))


def _rounding_bytes(cost: ModelCost, spec: ModelSpec, staging: int, max_rows: int) -> int:
    """Return what slots, pages and staging may take beyond their sizes: a granule each."""
    pages = spec.max_context * max_rows * cost.kv_token_bytes
    reserved = (cost.pool_bytes, pages, staging * cost.record_bytes)
    return sum(granule_size(num_bytes, LEAST_GRANULE_BYTES) for num_bytes in reserved)


def _activation_bytes(cost: ModelCost, spec: ModelSpec, max_rows: int) -> int:
    """Estimate of one step's peak: hidden states, attention scores of a chunk, logits."""
    rows = max(cost.chunk_tokens, max_rows)
    if cost.scratch_bytes:
        return cost.scratch_bytes + PromptChunk(rows, cost.tile_tokens).num_bytes(spec)
    hidden = rows * spec.hidden * HIDDEN_COPIES
    routes = rows * spec.router.top_k * spec.hidden
    # A block of queries, its weights, and their copy in the dtype of the values.
    scores = 3 * max(BLOCK_SCORES, MIN_BLOCK_QUERIES * spec.num_heads * spec.max_context)
    keys = 2 * spec.num_kv_heads * spec.head_dim * spec.max_context
    logits = 2 * max_rows * spec.vocab_size
    return (hidden + routes + scores + keys + logits) * FLOAT_BYTES
