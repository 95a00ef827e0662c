"""Hidden states and routes in, the layer's output out, wherever the experts happen to lie.

Knows phases, not families: plan, publish, hits, wait, merge. Decode computes each route's row by
the same function on device and CPU and merges in router order, so the output does not depend on
residency, policy or split (ARCHITECTURE.md, Numerics). Called by `engine.layers.moe`; between
steps the safe point resizes it. All calls come from the step loop's thread.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from engine.memory.bandwidth import Rates
from engine.moe.branch import CpuBranch, InlineBranch, Job, ThreadedBranch, Work, compute_jobs
from engine.moe.cache import ExpertCache, ResizeOutcome
from engine.moe.meter import CopyMeter
from engine.moe.plan import Miss, MissPlan, plan_misses
from engine.moe.pool import ExpertPool
from engine.moe.prefill import Prefill
from engine.moe.router import Inputs, Routing
from engine.moe.slots import Touched
from engine.moe.stream import LayerStream
from engine.protocol.errors import DeviceError
from engine.protocol.messages import MissPolicy
from kernels.api import expert_kernel, merge_routes
from kernels.device.base import LOST_ERRORS, Device, Event

NO_MISSES = MissPlan()


@dataclass(frozen=True, slots=True)
class MoeOptions:
    """What a loader may choose.

    Attributes:
        staging_records: experts that fit into staging; None = two layers, which full-layer prefill
            needs. Any number from 2 works.
        dtype: what an expert's activation is rounded to.
        warm_tokens: last tokens of a prompt chunk whose experts warm the cache.
        clock: seconds, monotonic.
    """

    staging_records: int | None = None
    dtype: torch.dtype = torch.float32
    warm_tokens: int = 64
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, slots=True)
class MoeCounters:
    """Sums since load. `hits + fills + cpu == routes`, which are decode's; bytes are copied bytes.

    `fills` counts routes whose expert was copied for this use, `cpu` those computed in host memory;
    `warm_up_bytes` were copied in idle moments.
    """

    routes: int = 0
    hits: int = 0
    fills: int = 0
    cpu: int = 0
    fill_bytes: int = 0
    cpu_bytes: int = 0
    fill_s: float = 0.0
    cpu_s: float = 0.0
    prefill_bytes: int = 0
    warm_up_bytes: int = 0


class _Step(NamedTuple):
    """One layer's decode step, planned: who uses which record, and who serves it."""

    users: dict[int, list[tuple[int, int]]]
    touched: Touched
    plan: MissPlan

    def job(self, record: int) -> Job:
        return Job(record, self.users[record])


class MoeExecutor:
    """Runs the experts of every layer.

    Closes cache, staging and threads with itself; the pool belongs to the caller.

    Raises: BudgetError if the device has no room for staging.
    """

    def __init__(
        self,
        pool: ExpertPool,
        cache: ExpertCache,
        policy: MissPolicy,
        rates: Rates | None,
        device: Device,
        options: MoeOptions = MoeOptions(),
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._policy = policy
        self._rates = rates
        self._device = device
        self._kernel = expert_kernel(pool.layout, device.torch_device, options.dtype)
        self._merge = merge_routes(device.torch_device)
        staging = options.staging_records
        self._stream = LayerStream(
            device, pool, 2 * pool.num_experts if staging is None else staging
        )
        self._prefill = Prefill(pool, cache, self._stream, device, options.warm_tokens)
        self._branch: CpuBranch
        if device.inline:
            self._branch = InlineBranch(pool, self._kernel, options.clock)
        else:
            own = expert_kernel(pool.layout, torch.device("cpu"), options.dtype)
            self._branch = ThreadedBranch(pool, own, options.clock)
        self._fills = CopyMeter()
        self._routes = {"hits": 0, "fills": 0, "cpu": 0}

    @property
    def num_slots(self) -> int:
        """Slots of the cache."""
        return self._cache.num_slots

    @property
    def min_slots(self) -> int:
        """Fewest slots that work."""
        return 1

    @property
    def max_slots(self) -> int:
        """Most slots that `resize` may ask for."""
        return self._cache.max_slots

    @property
    def record_bytes(self) -> int:
        """Bytes of one slot."""
        return self._pool.layout.record_bytes

    @property
    def arena_bytes(self) -> int:
        """Device memory of the slots."""
        return self._cache.num_bytes

    @property
    def staging_bytes(self) -> int:
        """Device memory of the staging; part of the engine's runtime memory."""
        return self._stream.num_bytes

    @property
    def num_resident(self) -> int:
        """Filled slots."""
        return self._cache.num_resident

    @property
    def policy(self) -> MissPolicy:
        """How misses are served."""
        return self._policy

    def set_policy(self, policy: MissPolicy) -> None:
        """Serve misses this way from the next layer on."""
        self._policy = policy

    def set_rates(self, rates: Rates | None) -> None:
        """Split by these rates from the next layer on; None = both sides count as equally fast."""
        self._rates = rates

    def warm_up(self) -> bool:
        """Return False: layers that run one by one leave the cache to the replies."""
        return False

    def resize(self, slots: int) -> ResizeOutcome:
        """Change the number of slots; only between steps.

        Raises: BudgetError with the old size kept.
        """
        return self._cache.resize(slots)

    def forward(
        self,
        moe_layer: int,
        hidden: torch.Tensor,
        routing: Routing,
        phase: Literal["prefill", "decode"],
    ) -> torch.Tensor:
        """Return the experts' output of one layer; every chunk of a prompt warms the cache.

        Shapes: hidden [T, H], routing [T, K] -> [T, H] of hidden's dtype. `moe_layer` counts the
        layers that have experts.
        Raises: DeviceError if the device is lost.
        """
        x = hidden.to(torch.float32)
        try:
            if phase == "prefill":
                rows = self._prefill.rows(moe_layer, x, routing, self._kernel)
                if self._policy is not MissPolicy.CPU_ONLY:
                    self._prefill.warm(moe_layer, routing)
            else:
                rows = self._decode(moe_layer, x, routing)
            output = self._merge(rows, routing.weights)
        except LOST_ERRORS as problem:
            raise DeviceError(str(problem), "Restart the engine.") from problem
        return output.to(hidden.dtype)

    def add(
        self,
        moe_layer: int,
        hidden: torch.Tensor,
        inputs: Inputs,
        routing: Routing,
        phase: Literal["prefill", "decode"],
    ) -> None:
        """Add the experts' output of one layer to `hidden` [T, H], in place; see `forward`."""
        x = inputs(0, hidden.shape[0])
        hidden.add_(self.forward(moe_layer, x, routing, phase))

    def start(self, num_tokens: int, top_k: int, last_chunk: bool) -> None:
        """Every chunk of a prompt is alike here: each layer says what it needs."""

    def counters(self) -> MoeCounters:
        """Return the sums since load."""
        routes = self._routes
        return MoeCounters(
            routes=sum(routes.values()),
            **routes,
            fill_bytes=self._fills.num_bytes,
            cpu_bytes=self._branch.num_bytes,
            fill_s=self._fills.seconds,
            cpu_s=self._branch.seconds,
            prefill_bytes=self._prefill.num_bytes,
        )

    def heat(self) -> tuple[bytes, bytes, int]:
        """Return (uses, resident, most uses): uint8 [L*E], uses scaled so that 255 = the most."""
        return self._cache.heat_map()

    def close(self) -> None:
        """End threads and give device memory back."""
        self._branch.close()
        self._stream.close()
        self._cache.close()

    def _decode(self, moe_layer: int, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """One layer of a decode step: rows [T, K, H] of all routes."""
        step = self._plan(moe_layer, routing)
        rows = torch.empty(*routing.ids.shape, x.shape[1], device=x.device)
        filled: dict[int, tuple[torch.Tensor, Event]] = {}
        try:
            self._publish(step, x, filled)
            self._branch.wait(rows, self._compute(step, x, rows, filled))
        except BaseException:
            self._branch.cancel()
            self._cache.drop(filled)
            raise
        self._count(step)
        return rows

    def _plan(self, moe_layer: int, routing: Routing) -> _Step:
        """Find out who is resident, set recency, and share out the misses."""
        base = moe_layer * self._pool.num_experts
        users: dict[int, list[tuple[int, int]]] = {}
        for token, experts in enumerate(routing.ids.tolist()):
            for k, expert in enumerate(experts):
                users.setdefault(base + expert, []).append((token, k))
        touched = self._cache.touch(users)
        if not touched.misses:
            return _Step(users, touched, NO_MISSES)
        misses = [
            Miss(record, last, self._pool.memory_class(record) == "pinned")
            for record, last in touched.misses.items()
        ]
        return _Step(
            users, touched, plan_misses(misses, self._policy, self._rates, self._cache.room)
        )

    def _publish(
        self,
        step: _Step,
        x: torch.Tensor,
        filled: dict[int, tuple[torch.Tensor, Event]],
    ) -> None:
        """Start the CPU first, then the copies of those fills that get a slot."""
        self._branch.publish(x, [step.job(record) for record in step.plan.cpu])
        if not step.plan.fills:
            return
        after = self._device.record()
        for record in step.plan.fills[: self._cache.room]:
            filled[record] = self._cache.fill(record, after)
            self._fills.add(filled[record][1], self.record_bytes)

    def _compute(
        self,
        step: _Step,
        x: torch.Tensor,
        rows: torch.Tensor,
        filled: dict[int, tuple[torch.Tensor, Event]],
    ) -> Work:
        """Compute hits, then fills as they land; what has no slot passes through staging.

        Returns: on an inline device the work that lies in slots, for the branch to do with its own.
        """
        work = [(step.job(record), self._cache.slot_of(record)) for record in step.touched.hits]
        for record, (slot, event) in filled.items():
            if not self._device.inline:  # what is there is computed while the next one lands
                compute_jobs(self._kernel, work, x, rows)
                work = []
            self._device.wait(event)
            work.append((step.job(record), slot))
        if not self._device.inline:
            compute_jobs(self._kernel, work, x, rows)
            work = []
        if len(filled) == len(step.plan.fills):
            return work
        rest = step.plan.fills[len(filled) :]
        for record, staged in self._stream.records(rest, self._fills):
            compute_jobs(self._kernel, [(step.job(record), staged)], x, rows)
        return work

    def _count(self, step: _Step) -> None:
        users = step.users
        for kind, records in (
            ("hits", step.touched.hits),
            ("fills", step.plan.fills),
            ("cpu", step.plan.cpu),
        ):
            if records:
                self._routes[kind] += sum([len(users[record]) for record in records])
        self._cache.count([record for record, routes in users.items() for _ in routes])
