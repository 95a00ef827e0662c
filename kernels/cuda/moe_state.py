"""Device memory of the MoE kernels: residency, policy, counters, and one layer's scratch.

The tensors behind the pointers of `source/moe_state.cuh`. `MoeState` outlives graphs and is shared
by all row counts; `MoeScratch` is what the nodes of one layer hand each other. The host reads and
writes them between steps only. Works on any torch device; tests use the CPU.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.cuda.residency import FREE, NO_SLOT, Eviction, Ranking, Residency
from kernels.cuda.shape import MAX_ROWS, DecodeShape
from kernels.layouts import DENSE_DTYPES

NUM_VICTIMS = 64
MAX_WORKERS = 16
MAX_ROUTES = 64
MAX_SLOTS = 1 << 14
MAX_HIDDEN = 8192
HIDDEN_STEP = 32
PLAN_BYTES = 96 + MAX_ROUTES * 16 + MAX_ROUTES * 12
POLICY_FORMAT = "<4i2f2i"


class MissMode(IntEnum):
    """Who computes the units that lie in no slot."""

    TWO_ENDED = 0  # the CPU from the front of the list, the link from the back, until they meet
    SPLIT = 1  # a given share over the link
    FILL_ONLY = 2
    CPU_ONLY = 3


@dataclass(frozen=True, slots=True)
class MoePolicy:
    """What the host may change between steps.

    Attributes:
        mode: see `MissMode`.
        share: `split`: of the missing units, over the link.
        eviction: which expert loses its slot.
        growth: `frequency`: log2 of what a use loses in one step; the default is a loss of 2 %.
        store_min: `two_ended`: units that must be forecast to arrive for an expert to get a slot.
        pool: whether the CPU pool serves the mailbox; without it everything goes over the link.
        look_ahead: whether the pool is told what the next layer will probably miss.
    """

    mode: MissMode = MissMode.TWO_ENDED
    share: float = 0.35
    eviction: Eviction = Eviction.FREQUENCY
    growth: float = 0.0286
    store_min: int = 1
    pool: bool = True
    look_ahead: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or self.growth < 0.0 or self.store_min < 1:
            raise ValueError(f"no policy: {self}")

    def packed(self, num_slots: int, num_records: int) -> bytes:
        """Return `Policy` of the source."""
        asked = self.pool and self.mode is not MissMode.FILL_ONLY
        return struct.pack(
            POLICY_FORMAT,
            self.mode,
            self.eviction,
            num_slots,
            self.store_min,
            self.share,
            self.growth,
            int(self.pool),
            int(self.look_ahead and asked and num_slots < num_records),
        )


class MoeCounts(NamedTuple):
    """Sums since load. A unit that several rows share counts once; times are nanoseconds.

    `wasted_units` came over the link though the pool had them too; `pool_errors` are calls that the
    pool refused and layers that nobody could serve; `fills` are slots that changed owner.
    """

    routes: int
    hit_units: int
    link_units: int
    cpu_units: int
    wasted_units: int
    layers: int
    link_layers: int
    cpu_layers: int
    link_ns: int
    cpu_ns: int
    timeouts: int
    pool_errors: int
    fills: int
    hash: int

    @property
    def errors(self) -> int:
        """Calls whose output must not be used."""
        return self.timeouts + self.pool_errors


def moe_obstacle(shape: DecodeShape) -> str:
    """Return why the MoE kernels do not take a shape, as half a sentence; "" if they do."""
    routes = shape.rows * shape.top_k
    for problem, found in (
        (f"hidden size {shape.hidden} is no multiple of {HIDDEN_STEP}", shape.hidden % HIDDEN_STEP),
        (f"hidden size {shape.hidden} is over {MAX_HIDDEN}", shape.hidden > MAX_HIDDEN),
        (f"{routes} routes a step are over {MAX_ROUTES}", routes > MAX_ROUTES),
        (f"top {shape.top_k} is over 16", shape.top_k > 16),
        (f"{shape.num_experts} experts are over 512", shape.num_experts > 512),
        (
            f"{shape.max_slots} slots are not within 1..{MAX_SLOTS}",
            not 1 <= shape.max_slots <= MAX_SLOTS,
        ),
        (f"a router of {shape.router}", DENSE_DTYPES[shape.router].itemsize == 1),
    ):
        if found:
            return problem
    return ""


class MoeState:
    """Residency, policy and counters.

    Raises: ValueError for a shape that the kernels do not take, or slots out of bounds.
    """

    def __init__(
        self,
        shape: DecodeShape,
        device: torch.device,
        num_slots: int,
        policy: MoePolicy = MoePolicy(),
    ) -> None:
        if problem := moe_obstacle(shape):
            raise ValueError(problem)
        if not 1 <= num_slots <= shape.max_slots:
            raise ValueError(f"{num_slots} slots are not within 1..{shape.max_slots}")
        self._shape = shape
        self._policy = policy
        self._num_slots = num_slots
        num_records = shape.num_layers * shape.num_experts

        def table(length: int, value: int = 0) -> Tensor:
            return torch.full((length,), value, dtype=torch.int32, device=device)

        self.slot_of = table(num_records, NO_SLOT)
        self.valid = table(num_records)
        self.owner = table(shape.max_slots, FREE)
        self.score = torch.zeros(num_records, device=device)
        self.stamp = table(num_records)
        self.uses = table(num_records)
        self.victims = table(2 * NUM_VICTIMS, FREE)
        self.link_ok = torch.ones(shape.num_layers, dtype=torch.uint8, device=device)
        self.policy_block = table(struct.calcsize(POLICY_FORMAT) // 4)
        self.clock = table(4)
        self.counters = torch.zeros(len(MoeCounts._fields), dtype=torch.int64, device=device)
        self._write_policy()
        self.clock.view(torch.float32)[3] = policy.share

    @property
    def top_k(self) -> int:
        """Experts of a route."""
        return self._shape.top_k

    @property
    def num_slots(self) -> int:
        """Slots that may hold something."""
        return self._num_slots

    @property
    def policy(self) -> MoePolicy:
        """What is in force."""
        return self._policy

    def set_policy(self, policy: MoePolicy) -> None:
        """Serve misses this way from the next step on."""
        self._policy = policy
        self._write_policy()

    def set_link(self, layer: int, usable: bool) -> None:
        """Say whether a layer's records can be read over the link; all can, at first."""
        self.link_ok[layer] = int(usable)

    def begin_calls_at(self, call: int) -> None:
        """Number calls from `call` + 1 on, and trust the pool again: it was started anew."""
        self.clock[1] = call if call < 1 << 31 else call - (1 << 32)
        self.clock[2] = 0

    def counts(self) -> MoeCounts:
        """Return the sums since load; waits for the device."""
        return MoeCounts(*(int(value) for value in self.counters.tolist()))

    def snapshot(self) -> Residency:
        """Return copies of the tables; waits for the device."""
        return Residency(
            num_slots=self._num_slots,
            num_units=self._shape.layout.num_units,
            tick=int(self.clock[0]) % (1 << 32),
            ranking=Ranking(self._policy.eviction, self._policy.growth, self._shape.num_layers),
            slot_of=_to_host(self.slot_of),
            valid=_to_host(self.valid),
            owner=_to_host(self.owner),
            score=_to_host(self.score),
            stamp=_to_host(self.stamp),
        )

    def install(self, tables: Residency) -> None:
        """Put changed tables into force; what they say must lie in the slots by the next step.

        Raises: ValueError for tables that contradict themselves.
        """
        if found := tables.faults():
            raise ValueError("; ".join(found[:3]))
        for target, source in (
            (self.slot_of, tables.slot_of),
            (self.valid, tables.valid),
            (self.owner, tables.owner),
            (self.score, tables.score),
            (self.stamp, tables.stamp),
        ):
            target.copy_(torch.from_numpy(source))
        self.victims.fill_(FREE)
        self._num_slots = tables.num_slots
        self._write_policy()

    def _write_policy(self) -> None:
        packed = self._policy.packed(self._num_slots, len(self.slot_of))
        block = np.frombuffer(packed, np.int32).copy()
        self.policy_block.copy_(torch.from_numpy(block))


class MoeScratch:
    """What the nodes of one layer hand each other, for up to `rows` rows."""

    def __init__(self, shape: DecodeShape, device: torch.device, rows: int = MAX_ROWS) -> None:
        self.rows = rows
        pairs = min(rows * shape.top_k, MAX_ROUTES)
        self.normed = torch.zeros(rows, shape.hidden, device=device)
        self.logits = torch.zeros(2, rows, shape.num_experts, device=device)
        self.partial = torch.zeros(pairs, shape.layout.num_units, shape.hidden, device=device)
        self.staging = torch.zeros(
            MAX_WORKERS, shape.layout.unit_bytes, dtype=torch.uint8, device=device
        )
        self.plan = torch.zeros(PLAN_BYTES, dtype=torch.uint8, device=device)

    @property
    def num_bytes(self) -> int:
        """Device memory of all of it."""
        parts: Sequence[Tensor] = (
            self.normed,
            self.logits,
            self.partial,
            self.staging,
            self.plan,
        )
        return sum(part.nbytes for part in parts)


def _to_host(tensor: Tensor) -> np.ndarray:
    return tensor.to("cpu", copy=True).numpy()
