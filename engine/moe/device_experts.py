"""The experts of a device that decodes by captured steps: residency, policy, CPU pool, prompts.

Decode never passes here: its kernels plan, fill and evict by themselves. What is left to the host
lies between steps: prompts, resizes, policy, idle moments, and what the counters say. The
counterpart of `engine.moe.executor` for devices with `kernels.cuda`. All calls come from the step
loop's thread.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Literal

import torch

from engine.memory.bandwidth import Rates
from engine.moe.arena import ExpertArena
from engine.moe.cache import ResizeOutcome
from engine.moe.device_prefill import DevicePrefill
from engine.moe.device_residency import DeviceResidency
from engine.moe.device_warm_up import WarmUp
from engine.moe.executor import MoeCounters
from engine.moe.heat import Heat
from engine.moe.plan import side_rates
from engine.moe.pool import ExpertPool
from engine.moe.router import Inputs, Routing
from engine.moe.side_switch import SideSwitch
from engine.moe.slots import SlotId
from engine.protocol.errors import BudgetError, DeviceError, InternalError
from engine.protocol.messages import MissPolicy
from kernels.cpu.pool import CpuPool
from kernels.cuda.dense import StepReport
from kernels.cuda.moe_state import MissMode, MoeCounts, MoePolicy, MoeState
from kernels.device.base import LOST_ERRORS, Device, DeviceMemoryError, Event

STORE_PART = 3  # a slot is given for a third of an expert: less would cost another's whole
_MODES = {
    MissPolicy.TWO_ENDED: MissMode.TWO_ENDED,
    MissPolicy.SPLIT: MissMode.SPLIT,
    MissPolicy.FILL_ONLY: MissMode.FILL_ONLY,
    MissPolicy.CPU_ONLY: MissMode.CPU_ONLY,
}


@dataclass(frozen=True, slots=True)
class DeviceParts:
    """What the loader has built.

    Attributes:
        pool: every expert, in host memory.
        arena: the slots; they never move.
        state: residency and policy on the device.
        prefill: prompts; asks `residency`.
        residency: the host's view of `state`.
        threads: the CPU's side of the mailbox; None where this machine has none.
        report: what each step tells the host, in memory that the device writes.
        keep: memory that must live as long as steps may run.
    """

    pool: ExpertPool
    arena: ExpertArena
    state: MoeState
    prefill: DevicePrefill
    residency: DeviceResidency
    threads: CpuPool | None
    report: StepReport
    keep: tuple[object, ...] = ()

    def close(self) -> None:
        """End threads and give device memory back; the pool of experts is another's."""
        if self.threads is not None:
            self.threads.close()
        self.prefill.close()
        self.arena.close()


class DeviceExperts:
    """See `engine.loader.parts.Experts`; closes `parts` with itself, and if it cannot be built."""

    def __init__(
        self,
        parts: DeviceParts,
        policy: MissPolicy,
        rates: Rates | None,
        device: Device,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._parts, self._device, self._clock = parts, device, clock
        self._policy, self._rates = policy, rates
        self._switch = SideSwitch()
        self._last_step_s = -math.inf
        self._errors = 0
        self._is_warming = False
        self._heat = Heat(parts.pool.num_records, time.monotonic)
        with ExitStack() as undo:
            undo.callback(parts.close)
            self._warm = WarmUp(parts.pool, parts.arena, parts.state, device, clock)
            undo.callback(self._warm.close)
            self._mirror = _Mirror(parts.state, device)
            undo.callback(self._mirror.close)
            self._counter = parts.prefill.counter(parts.state.top_k)
            undo.callback(self._counter.close)
            self._apply()
            self._owned = undo.pop_all()

    @property
    def num_slots(self) -> int:
        """Slots of the cache."""
        return self._parts.state.num_slots

    @property
    def min_slots(self) -> int:
        """Fewest slots that work."""
        return 1

    @property
    def max_slots(self) -> int:
        """Most slots that `resize` may ask for."""
        return self._parts.arena.max_slots

    @property
    def record_bytes(self) -> int:
        """Bytes of one slot."""
        return self._parts.pool.layout.record_bytes

    @property
    def staging_bytes(self) -> int:
        """Device memory of the staging; part of the engine's runtime memory."""
        return self._parts.prefill.staging_bytes

    @property
    def policy(self) -> MissPolicy:
        """How misses are served."""
        return self._policy

    def set_policy(self, policy: MissPolicy) -> None:
        """Serve misses this way from the next step on."""
        self._policy, self._switch = policy, SideSwitch()
        self._warm.forget()
        self._apply()

    def set_rates(self, rates: Rates | None) -> None:
        """Split by these rates from the next step on; None = both sides count as equally fast."""
        self._rates = rates
        self._apply()

    def before_step(self, rows: Sequence[int]) -> None:
        """Call right before a step is replayed: wakes the CPU, and learns from the last step.

        `rows` are those of each recording that the step replays.
        """
        if self._parts.threads is not None:
            self._parts.threads.wake()
        self._parts.residency.abandon()
        self._warm.forget()
        now_s = self._clock()
        took_s, self._last_step_s = now_s - self._last_step_s, now_s
        if self._policy is MissPolicy.TWO_ENDED and self._parts.threads is not None:
            way = self._switch.way
            self._switch.step(took_s, rows)
            if self._switch.way is not way:
                self._apply()

    def check(self) -> None:
        """Raise DeviceError if a step that was reported must not be used."""
        counts = self._counts()
        if counts.errors > self._errors:
            self._errors = counts.errors
            what = "did not answer" if counts.timeouts else "refused a call"
            raise DeviceError(
                f"The CPU threads that compute missing experts {what}; the step is lost.",
                "Restart the engine. If it happens again, serve misses by copies only.",
            )

    def prepare(self, top_k: int, dtype: torch.dtype) -> None:
        """Compile what prompts of any length run through, so that none waits for it.

        `dtype` is that of hidden states.
        """
        self._parts.prefill.prepare(top_k, dtype)

    def warm_up(self) -> bool:
        """Copy a short piece of what free slots have room for; only while no request is open.

        Nothing where the policy keeps experts off the link. Returns whether anything was copied:
        then another call may find more.
        Raises: DeviceError if the device is lost.
        """
        if self._policy is MissPolicy.CPU_ONLY:
            return False
        self._last_step_s = -math.inf  # a pause is no step
        try:
            self._parts.residency.abandon()
            moved = self._warm.step()
            if self._is_warming and not moved:
                self._mirror.renew(self._device)
        except LOST_ERRORS as problem:
            raise DeviceError(str(problem), "Restart the engine.") from problem
        self._is_warming = moved
        return moved

    def resize(self, slots: int) -> ResizeOutcome:
        """Change the number of slots; the experts of most worth stay. Only between steps.

        Raises: BudgetError with the old size kept.
        """
        if not 1 <= slots <= self.max_slots:
            raise BudgetError(f"{slots} slots asked; possible are 1 to {self.max_slots}.")
        arena, state = self._parts.arena, self._parts.state
        self._device.synchronize()
        self._parts.residency.abandon()
        self._warm.forget()
        self._last_step_s = -math.inf  # a pause is no step
        tables = state.snapshot()
        if slots >= tables.num_slots:
            try:
                arena.resize(slots)
            except DeviceMemoryError as problem:
                raise BudgetError(
                    f"No room for {slots} experts: {problem}.",
                    f"The cache keeps its {tables.num_slots} experts.",
                ) from problem
            tables.grow(slots)
            state.install(tables)
            return ResizeOutcome(slots, 0)
        shrunk = tables.shrink(slots)
        for source, target in shrunk.moves:
            arena.slot(SlotId(target)).copy_(arena.slot(SlotId(source)))
        state.install(tables)
        self._device.synchronize()
        arena.resize(slots)
        return ResizeOutcome(slots, len(shrunk.evicted))

    def start(self, num_tokens: int, top_k: int, last_chunk: bool) -> None:
        """Let the copies for a prompt chunk begin, so that they run beside its first layer too.

        With `last_chunk` the prompt ends here: experts of its last tokens may replace colder ones.
        Raises: DeviceError if the device is lost.
        """
        residency = self._parts.residency
        self._last_step_s = -math.inf  # a prompt is no step
        self._warm.forget()
        try:
            residency.begin()
            # Who loses no slot to others need not be read for that.
            chooses = last_chunk and not residency.has_room_for_all
            self._parts.prefill.start(num_tokens, top_k, chooses)
            self._counter.start(num_tokens)
        except LOST_ERRORS as problem:
            raise DeviceError(str(problem), "Restart the engine.") from problem
        except BaseException:
            residency.abandon()
            raise

    def add(
        self,
        moe_layer: int,
        hidden: torch.Tensor,
        inputs: Inputs,
        routing: Routing,
        phase: Literal["prefill", "decode"],
    ) -> None:
        """Add the experts' output of one layer of a prompt chunk; `start`, then layers in order.

        Shapes: hidden [T, H], contiguous, routing [T, K].
        Raises: InternalError in decode, which is captured; DeviceError if the device is lost.
        """
        if phase != "prefill":
            raise InternalError("A captured step decodes on this device.")
        residency, prefill = self._parts.residency, self._parts.prefill
        try:
            # Where all find a slot there is nothing to choose, and so nothing to count.
            chooses = not residency.has_room_for_all
            counted = self._counter.count(routing.ids) if chooses else None
            prefill.add(moe_layer, inputs, routing, hidden, counted)
            if moe_layer + 1 == self._parts.pool.num_layers:
                residency.commit()
                self._counter.end()
        except LOST_ERRORS as problem:
            raise DeviceError(str(problem), "Restart the engine.") from problem
        except BaseException:
            residency.abandon()
            raise

    def counters(self) -> MoeCounters:
        """Return the sums since load, in whole experts; does not wait for the device."""
        counts, layout = self._counts(), self._parts.pool.layout
        hits, fills, cpu = (
            units // layout.num_units
            for units in (counts.hit_units, counts.link_units, counts.cpu_units)
        )
        return MoeCounters(
            routes=hits + fills + cpu,
            hits=hits,
            fills=fills,
            cpu=cpu,
            fill_bytes=counts.link_units * layout.unit_bytes,
            cpu_bytes=counts.cpu_units * layout.unit_bytes,
            fill_s=counts.link_ns / 1e9,
            cpu_s=counts.cpu_ns / 1e9,
            prefill_bytes=self._parts.prefill.num_bytes,
            warm_up_bytes=self._warm.num_bytes,
        )

    def heat(self) -> tuple[bytes, bytes, int]:
        """Return (uses, resident, most uses): uint8 [L*E], uses scaled so that 255 = the most.

        What the device had a moment ago: nothing waits for it.
        """
        uses, resident = self._mirror.read()
        self._heat.follow(uses)
        scaled, most = self._heat.scaled()
        return scaled, bytes(resident), most

    def close(self) -> None:
        """Wait for the device, end threads and give device memory back."""
        with suppress(*LOST_ERRORS):  # a failed prompt's work may still run over what is freed now
            self._device.synchronize()
        self._owned.close()

    def _counts(self) -> MoeCounts:
        return MoeCounts(*self._parts.report.counters[: len(MoeCounts._fields)])

    def _apply(self) -> None:
        """Write the policy in force to the device."""
        two_ended = self._policy is MissPolicy.TWO_ENDED
        fill, cpu = side_rates(self._rates)
        self._parts.state.set_policy(
            MoePolicy(
                mode=_MODES[self._switch.way if two_ended else self._policy],
                store_min=max(1, self._parts.pool.layout.num_units // STORE_PART),
                share=fill / (fill + cpu) if fill + cpu > 0 else 1.0,
                pool=self._parts.threads is not None,
            )
        )


class _Mirror:
    """Copies of the heat map's tables, refreshed in the background; the newest that arrived."""

    def __init__(self, state: MoeState, device: Device) -> None:
        self._sources = (state.uses, state.slot_of)
        self._under_way: Event | None = None
        with ExitStack() as undo:
            self._buffers = []
            for source in self._sources:
                self._buffers.append(device.host_buffer(source.nbytes))
                undo.callback(self._buffers[-1].close)
            self._copies = device.stream()
            undo.callback(self._copies.close)
            self.renew(device)
            undo.pop_all()

    def read(self) -> tuple[list[int], list[int]]:
        """Return (uses, 1 for a resident) by record, and ask for newer ones."""
        if self._under_way is None or self._under_way.done():
            if self._under_way is not None:
                self._seen = self._values()
            self._start()
        return self._seen

    def close(self) -> None:
        """Wait for the copies and give the host memory back."""
        self._copies.close()
        for buffer in self._buffers:
            buffer.close()

    def renew(self, device: Device) -> None:
        """Read the tables as they are now; waits for the device."""
        device.synchronize()  # the tables may just have been written
        self._start()
        if self._under_way is not None:
            self._under_way.synchronize()
        self._seen = self._values()

    def _start(self) -> None:
        for buffer, source in zip(self._buffers, self._sources, strict=True):
            self._under_way = self._copies.copy(buffer.tensor.view(torch.int32), source)

    def _values(self) -> tuple[list[int], list[int]]:
        uses, slots = (buffer.tensor.view(torch.int32).tolist() for buffer in self._buffers)
        return uses, [int(slot >= 0) for slot in slots]
