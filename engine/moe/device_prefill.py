"""A prompt through the experts of every layer on a device with a link: compute where they lie.

Resident experts are used in their slots, only what is missing crosses the link, once per prompt,
while earlier layers compute (layer-major); short chunks load what they route (`device_planner`).
Bits depend on the chunk and its records only: every route's row is computed by the same kernel
with the same launch shape wherever its record lies. Records move from staging to slots, if the
residency has any to give: to free ones after every chunk, so that the next one need not copy them
again, and those of the prompt's last tokens to others as well. Called by the experts' executor; all
calls come from the step loop's thread.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.moe.device_planner import (
    Group,
    LayerPlan,
    Portion,
    PrefillRates,
    hotness,
    plan_groups,
    plan_layer,
    prefers_demand,
    tile_bounds,
)
from engine.moe.device_stream import LinkWatch, PassTables, RecordStream
from engine.moe.pool import ExpertPool
from engine.moe.prompt_routes import Counted, RouteCounter, Routes
from engine.moe.router import TILE_TOKENS, Inputs, Routing
from kernels.cuda.residency import NO_SLOT
from kernels.device.base import Device
from kernels.grouped import GroupedKernel, RecordTable

PREPARED_ROWS = (1, 32, 512)  # of an expert in a chunk: short, middle and long ones


class Residency(Protocol):
    """Who lies in a slot as a whole. Nothing changes during a forward but through `admit`."""

    def slots(self) -> NDArray[np.int32]:
        """Return each expert's slot, NO_SLOT unless all its units are there: a copy, [L, E]."""
        ...

    def addresses(self, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where slots' bytes begin on the device; anything for NO_SLOT."""
        ...

    def slot(self, slot: int) -> Tensor:
        """Return a slot's bytes, uint8 [record_bytes]."""
        ...

    def credit(self, moe_layer: int, uses: NDArray[np.float32], num_tokens: int) -> None:
        """Count a chunk's routes to one layer's experts, [E]; before that layer's `admit`."""
        ...

    def admit(self, records: Sequence[int], hotness: Sequence[float]) -> Mapping[int, int]:
        """Give slots to records of one layer, hottest first; 0 = only a free slot will do.

        Called layer by layer, for records that are not resident; the caller fills what it gets on
        the compute queue, behind what reads those slots. Only slots that are free, or whose record
        is colder and of this layer: later ones were planned with theirs.

        Returns: record -> slot, for any of them.
        """
        ...


@dataclass(frozen=True, slots=True)
class PrefillOptions:
    """What a loader may choose.

    Attributes:
        staging_records: records of the ring; None = two layers. Any number from 2 works, but with
            less than one layer a chunk is computed in one tile.
        tile_tokens: tokens that are computed together; bounds the scratch.
        warm_tokens: last tokens of a prompt whose experts are offered to the residency.
        loading: "auto" chooses by arithmetic; the others are for measurements.
        rates: what the choice begins with.
        clock: seconds, monotonic.
    """

    staging_records: int | None = None
    tile_tokens: int = TILE_TOKENS
    warm_tokens: int = 64
    loading: Literal["auto", "stream", "demand"] = "auto"
    rates: PrefillRates = field(default_factory=PrefillRates)
    clock: Callable[[], float] = time.perf_counter


class DevicePrefill:
    """Computes chunks: `start`, then `forward` for each layer in order.

    Closes its staging with itself; pool, residency and device belong to the caller.

    Attributes:
        rates: what the choice of loading rests on now.

    Raises: BudgetError if the device has no room for staging.
    """

    def __init__(
        self,
        pool: ExpertPool,
        residency: Residency,
        device: Device,
        kernel: GroupedKernel,
        options: PrefillOptions = PrefillOptions(),
    ) -> None:
        self._pool, self._residency, self._device = pool, residency, device
        self._kernel, self._options = kernel, options
        self.rates = options.rates
        asked = options.staging_records
        self._stream = RecordStream(device, pool, 2 * pool.num_experts if asked is None else asked)
        # Groups of a layer that the ring cannot hold give way to the next: one tile then.
        holds_layer = self._stream.ring_records >= pool.num_experts
        self._tile_tokens = options.tile_tokens if holds_layer else 0
        self._tables = PassTables(device, pool.num_layers, pool.num_experts)
        self._resident: list[Mapping[int, int]] = []
        self._addresses = np.zeros((pool.num_layers, pool.num_experts), np.int64)
        self._complete: NDArray[np.int32] | None = None  # slots, while the tables say them all
        self._layers: dict[int, LayerPlan] = {}
        self._next_layer = pool.num_layers  # no chunk is under way
        self._demand = self._warm = False
        self._routed = self._missing = 0  # records of the chunk that are routed, and are missing
        self._watch = LinkWatch(self._stream.meter, options.clock)

    @property
    def num_bytes(self) -> int:
        """Bytes of records that crossed the link since load."""
        return self._stream.meter.num_bytes

    @property
    def seconds(self) -> float:
        """Seconds that their copies took."""
        return self._stream.meter.seconds

    @property
    def staging_bytes(self) -> int:
        """Device memory of the staging."""
        return self._stream.num_bytes

    def start(self, num_tokens: int, top_k: int, last_chunk: bool = True) -> None:
        """Plan a chunk and start its copies; what an earlier one left undone is given up.

        Call it before the chunk's first layer is queued: copies then run beside that layer too.
        Until the last `forward`, slots change through `Residency.admit` only. `last_chunk` says
        that the prompt ends with this chunk, so that its last experts may take slots of others.
        """
        self.rates = self._watch.learn_link(self.rates)
        slots = self._residency.slots()
        addresses = self._residency.addresses(slots)
        num_missing = int(np.count_nonzero(slots == NO_SLOT))
        self._demand = num_missing > 0 and self._loads_on_demand(num_tokens, top_k, num_missing)
        self._warm, self._next_layer = last_chunk, 0
        self._routed, self._missing = 0, num_missing
        if self._says(slots, addresses):
            return
        self._complete, self._addresses = None, addresses
        rows = [list(enumerate(row)) for row in slots.tolist()]
        self._resident = [{e: slot for e, slot in row if slot != NO_SLOT} for row in rows]
        if not self._demand:
            self._open(0, [[e for e, slot in row if slot == NO_SLOT] for row in rows])
        if not num_missing:
            self._complete = slots

    def add(
        self,
        moe_layer: int,
        inputs: Inputs,
        routing: Routing,
        out: Tensor,
        counted: Counted | None = None,
    ) -> None:
        """Add one layer's experts' output to `out`. Layers come in order.

        A tile's inputs are asked for before its rows of `out` change, which may be what they are
        made from. `counted` are the routes on their way to the host: the residency is credited with
        them, and the choice of loading learns from them; None = nobody has counted them.

        Shapes: inputs of T tokens, routing [T, K], out [T, H] of any float type, contiguous.
        Raises: ValueError for a layer whose turn it is not.
        """
        if moe_layer != self._next_layer or moe_layer >= self._pool.num_layers:
            raise ValueError(f"layer {moe_layer} is not the next one ({self._next_layer})")
        self._next_layer = self._pool.num_layers  # if it fails, the chunk is over
        learned = _Learned(counted, lambda routes: self._learn(moe_layer, routing, routes))
        if self._demand:
            self._open_demand(moe_layer, routing, learned)
        self._compute(moe_layer, inputs, routing, out, learned)
        self._next_layer = moe_layer + 1

    def counter(self, top_k: int) -> RouteCounter:
        """Return what counts routes for `add`; the caller closes it."""
        return RouteCounter(self._device, self._pool.num_experts, top_k, self._options.warm_tokens)

    def prepare(self, top_k: int, dtype: torch.dtype) -> None:
        """Compute a route for each length of chunk that has its own kernels: they are compiled now.

        Nobody reads what comes out, of the `dtype` of hidden states; what lies in the staging is as
        good as any record.
        """
        pool, here = self._pool, self._device.torch_device
        x = torch.zeros(1, pool.layout.hidden, device=here)
        ids = torch.zeros(1, top_k, dtype=torch.int32, device=here)
        first = torch.full((pool.num_experts,), self._stream.address(0), device=here)
        ranks = torch.arange(pool.num_experts, dtype=torch.int32, device=here)
        table = RecordTable(ranks, first, lambda _: self._stream.view(0))
        for rows in PREPARED_ROWS:
            task = self._kernel.begin(x, ids, table, max(1, rows * pool.num_experts // top_k))
            task.compute(0, pool.num_experts)
            task.merge(torch.zeros(1, top_k, device=here), torch.zeros_like(x, dtype=dtype))

    def close(self) -> None:
        """Give device and host memory back."""
        self._stream.close()
        self._tables.close()

    def _loads_on_demand(self, num_tokens: int, top_k: int, num_missing: int) -> bool:
        if self._options.loading != "auto":
            return self._options.loading == "demand"
        pool = self._pool
        missing_bytes = num_missing * pool.layout.record_bytes / pool.num_layers
        return prefers_demand(num_tokens, top_k, pool.num_experts, missing_bytes, self.rates)

    def _says(self, slots: NDArray[np.int32], addresses: NDArray[np.int64]) -> bool:
        """Return whether plans and tables of the chunk before hold: all was there, and still is."""
        known = self._complete
        return (
            known is not None
            and np.array_equal(slots, known)
            and np.array_equal(addresses, self._addresses)
        )

    def _open(self, first_layer: int, missing: Sequence[Sequence[int]]) -> None:
        """Plan `missing` of the layers from `first_layer` on, and let the copies go."""
        pool, stream = self._pool, self._stream
        groups = plan_groups(missing, pool.layout.record_bytes, stream.ring_records, first_layer)
        mine: list[list[tuple[int, Group]]] = [[] for _ in missing]
        for number, group in enumerate(groups):
            mine[group.layer - first_layer].append((number, group))
        self._layers = {
            layer: plan_layer(pool.num_experts, self._resident[layer], numbered)
            for layer, numbered in enumerate(mine, first_layer)
        }
        addresses = self._addresses[first_layer : first_layer + len(missing)].copy()
        for group in groups:
            places = [stream.address(place) for place in group.places]
            addresses[group.layer - first_layer, list(group.experts)] = places
        experts = np.array([plan.experts for plan in self._layers.values()])
        self._tables.wait()
        self._tables.write(first_layer, experts, addresses)
        stream.open(groups, self._tables)

    def _learn(self, moe_layer: int, routing: Routing, routes: Routes) -> None:
        """Credit the residency, and note how much of what was missing a chunk routes."""
        pool, resident = self._pool, self._resident[moe_layer]
        num_tokens, top_k = routing.ids.shape
        self._residency.credit(moe_layer, routes.uses, num_tokens)
        self._routed += sum(expert not in resident for expert in routes.routed)
        if moe_layer + 1 == pool.num_layers and self._missing:
            share = self._routed / self._missing
            self.rates = self.rates.with_routes(num_tokens, top_k, pool.num_experts, share)

    def _open_demand(self, moe_layer: int, routing: Routing, learned: "_Learned") -> None:
        """Read a layer's routes on the host, and copy what they miss."""
        routes = learned.routes()
        routed = set(routing.ids.flatten().tolist() if routes is None else routes.routed)
        self.rates = self._watch.learn_layer(self.rates, moe_layer, self._pool.num_layers)
        self._open(moe_layer, [sorted(routed.difference(self._resident[moe_layer]))])

    def _compute(
        self,
        moe_layer: int,
        inputs: Inputs,
        routing: Routing,
        out: Tensor,
        learned: "_Learned",
    ) -> None:
        """Compute a layer portion by portion, tile by tile.

        What the host waits for is read once compute is queued: behind the first portion if there is
        one tile, else behind all.
        """
        plan, num_tokens = self._layers[moe_layer], routing.ids.shape[0]
        slots: Mapping[int, int] | None = None
        table = self._tables.of(moe_layer, lambda rank: self._view(plan, rank))
        tiles = tile_bounds(num_tokens, self._tile_tokens or num_tokens)
        everything = (Portion(0, plan.num_available, None),)
        for number, (begin, end) in enumerate(tiles):
            x = inputs(begin, end)
            task = self._kernel.begin(x, routing.ids[begin:end], table, num_tokens)
            for portion in everything if number else plan.portions:
                if portion.group is not None:
                    self._stream.wait(portion.group)
                task.compute(portion.first, portion.last)
                if len(tiles) == 1:
                    if slots is None:
                        slots = self._admit(moe_layer, plan, routing, learned)
                    self._hand_over(plan, portion, slots)
            task.merge(routing.weights[begin:end], out[begin:end])
            del task, x  # before the next tile's: the scratch is that of one
        if slots is None:
            slots = self._admit(moe_layer, plan, routing, learned)
            for portion in plan.portions:
                self._hand_over(plan, portion, slots)

    def _admit(
        self, moe_layer: int, plan: LayerPlan, routing: Routing, learned: "_Learned"
    ) -> Mapping[int, int]:
        """Return the slots that a layer's staged experts get, by rank.

        All are offered, not only the hot ones: a free slot costs nothing while they lie here.
        """
        routes, window = learned.routes(), self._options.warm_tokens
        if not (plan.places and window):
            return {}
        heat: Mapping[int, float] = {}
        if self._warm:
            heat = hotness((routing.ids[-window:] if routes is None else routes.last).tolist())
        first, base = len(plan.slots), moe_layer * self._pool.num_experts
        staged = plan.experts[first : plan.num_available]
        ranks = {base + expert: rank for rank, expert in enumerate(staged, first)}
        hot = ((heat.get(record - base, 0.0), record) for record in ranks)
        offered = sorted(hot, key=lambda one: (-one[0], one[1]))
        admitted = self._residency.admit(
            [record for _, record in offered], [hotness for hotness, _ in offered]
        )
        return {ranks[record]: slot for record, slot in admitted.items()}

    def _hand_over(self, plan: LayerPlan, portion: Portion, slots: Mapping[int, int]) -> None:
        """Move experts of a group to the slots they get, and give its places back."""
        if portion.group is None:
            return
        for rank in range(portion.first, portion.last):
            if rank in slots:
                staged = self._view(plan, rank)
                self._residency.slot(slots[rank]).copy_(staged, non_blocking=True)
        self._stream.give_back(portion.group)

    def _view(self, plan: LayerPlan, rank: int) -> Tensor:
        place = plan.place(rank)
        if place is not None:
            return self._stream.view(place)
        return self._residency.slot(plan.slots[rank])


class _Learned:
    """A layer's routes: waited for and learned from once, when somebody asks."""

    def __init__(self, counted: Counted | None, learn: Callable[[Routes], None]) -> None:
        self._counted, self._learn = counted, learn
        self._routes: Routes | None = None

    def routes(self) -> Routes | None:
        """Return them; None if nobody has counted."""
        if self._routes is None and self._counted is not None:
            self._routes = self._counted.read()
            self._learn(self._routes)
        return self._routes
