"""One loaded model at work: its scheduler, its pools' sizes, resizes, pools for the status.

Lives from Loaded to Unloaded, on the service's thread. Knows no commands' order and no loading.
"""

import time
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from engine.loader.parts import LoadedModel
from engine.memory.budget import Division, format_bytes, up_to_page
from engine.memory.pressure import Pressure, PressureRules, Reading
from engine.models.registry import STATE_IN_PAGES
from engine.protocol.errors import BudgetError, EngineError
from engine.protocol.messages import (
    DeviceStatus,
    Event,
    MissPolicy,
    Notice,
    Pool,
    Resize,
    ResizeApplied,
    ResizePreview,
    ResizeRefused,
)
from engine.scheduler.growth import ContextGrowth
from engine.scheduler.pools import ExpertSide, KvSide, apply_division
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.seams import Limits, Sink, Surroundings
from engine.settings import EngineSettings

RELIEF_SHARE = 0.25
PRESSURE_MARGIN_BYTES = 512 * 1024**2
_MIB = 1024**2


class Session:
    """A loaded model and the scheduler that drives it.

    Attributes:
        model: its parts.
        scheduler: its step loop.
        policy: how misses are served now.
        is_warming: the last step was one of warm-up.

    Args:
        emit: takes notices.
        grew: told when the context has grown by itself; the sizes are the new ones then.
    """

    def __init__(
        self,
        model: LoadedModel,
        settings: EngineSettings,
        sink: Sink,
        emit: Callable[[Event], None],
        grew: Callable[[ResizeApplied], None],
    ) -> None:
        self.model = model
        self.policy = model.policy
        self._emit, self._grew = emit, grew
        self._no_room: tuple[type[Exception], ...] = (BudgetError, *model.memory_errors)
        self._refusals: tuple[type[Exception], ...] = (EngineError, *model.memory_errors)
        self._experts = ExpertSide(model.experts)
        self._wanted_slots = self._experts.units
        self._growth = ContextGrowth(
            model.budget,
            lambda: self.division,
            self._grow_to,
            self._no_room,
            chosen_slots=self._experts.units,
        )
        self.scheduler = Scheduler(
            model.runner,
            model.pages,
            sink,
            Limits(
                context_tokens=model.info.context_tokens,
                chunk_tokens=model.info.chunk_tokens,
                max_rows=settings.max_rows,
                reuse=settings.reuse and model.info.model_type in STATE_IN_PAGES,
            ),
            Surroundings(
                counters=model.experts.counters,
                relieve=self._relieve,
                memory_errors=model.memory_errors,
                lost_errors=model.lost_errors,
                growth=self._growth,
            ),
        )
        self._kv = KvSide(self.scheduler.holdings, model.kv, self.scheduler.requests)
        self._pressure = Pressure(
            PressureRules(reserve_bytes=256 * _MIB, margin_bytes=PRESSURE_MARGIN_BYTES)
        )
        self._resident = 0
        self.is_warming = False

    @property
    def division(self) -> Division:
        """Sizes now."""
        return Division(self._kv.units, self._experts.units)

    def step(self) -> bool:
        """Do a step of the scheduler, or a short piece of warm-up if no request is open.

        Returns: whether anything was done.
        Raises: DeviceError; what `Scheduler.step` raises.
        """
        worked = self.scheduler.has_work and self.scheduler.step()
        idle = not (worked or self.scheduler.has_work)
        self.is_warming = idle and self.model.experts.warm_up()
        return worked or self.is_warming

    def preview(self, command: Resize) -> ResizePreview:
        """Say what a resize would do; changes nothing."""
        budget = self.model.budget
        wanted = self._wanted(command)
        reason = budget.problem(wanted, self.scheduler.holdings.reserved_tokens)
        return ResizePreview(
            id=command.id,
            kv_tokens=wanted.kv_tokens,
            expert_slots=wanted.expert_slots,
            kv_bytes=budget.kv_bytes(wanted.kv_tokens),
            expert_bytes=budget.expert_bytes(wanted.expert_slots),
            free_bytes=budget.free_bytes(wanted),
            fits=not reason,
            reason=reason,
        )

    def resize(self, command: Resize, asked_s: float) -> ResizeApplied | ResizeRefused:
        """Change the sizes now, with no work in flight; whole or not at all (case M-01).

        Units: `asked_s` is a `time.monotonic` reading.
        """
        begin_s = time.monotonic()
        budget = self.model.budget
        wanted = self._wanted(command)
        used = self.scheduler.holdings.reserved_tokens
        try:
            budget.check(wanted, used)
            evicted = apply_division(self._kv, self._experts, wanted)
        except self._refusals as problem:
            reason = problem.message if isinstance(problem, EngineError) else _refusal(problem)
            near = (
                budget.nearest(wanted, used) if isinstance(problem, BudgetError) else self.division
            )
            return ResizeRefused(
                id=command.id,
                reason=reason,
                kv_tokens=near.kv_tokens,
                expert_slots=near.expert_slots,
            )
        self._wanted_slots = wanted.expert_slots
        if command.expert_slots is not None and not command.loan:
            self._growth.chosen_slots = wanted.expert_slots
        waited_ms = max(0.0, (begin_s - asked_s) * 1e3)
        return replace(self._applied(begin_s, evicted), id=command.id, waited_ms=waited_ms)

    def _grow_to(self, wanted: Division) -> None:
        """Give slots to the context at the safe point, and tell; whole or not at all."""
        begin_s, before = time.monotonic(), self._experts.units
        try:
            evicted = apply_division(self._kv, self._experts, wanted)
        except BaseException:
            if self._experts.units != before:  # nor did the device give back what it had taken
                self._grew(self._applied(begin_s, 0))
            raise
        taken = before - wanted.expert_slots
        # Their memory is in use now: neither pressure nor its end may ask for it again.
        self._wanted_slots = max(self.model.budget.min_slots, self._wanted_slots - taken)
        self._grew(replace(self._applied(begin_s, evicted), taken_slots=taken))

    def _applied(self, begin_s: float, evicted: int) -> ResizeApplied:
        """Return what holds after a change that began then, as nobody's answer."""
        budget, now = self.model.budget, self.division
        return ResizeApplied(
            id="",
            kv_tokens=now.kv_tokens,
            expert_slots=now.expert_slots,
            kv_bytes=budget.kv_bytes(now.kv_tokens),
            expert_bytes=budget.expert_bytes(now.expert_slots),
            pause_ms=(time.monotonic() - begin_s) * 1e3,
            evicted=evicted,
        )

    def set_policy(self, policy: MissPolicy) -> None:
        """Serve misses this way from the next step on; only at a safe point."""
        self.model.experts.set_policy(policy)
        self.policy = policy

    def heat(self) -> tuple[bytes, bytes, int]:
        """Return the executor's heat; remembers how many experts are resident."""
        hits, resident, most = self.model.experts.heat()
        self._resident = len(resident) - resident.count(0)
        return hits, resident, most

    def device_status(self) -> DeviceStatus:
        """Return the pools with their bounds; `used_bytes` add up to `total_bytes`."""
        budget, now = self.model.budget, self.division
        limits = budget.bounds(self.scheduler.holdings.reserved_tokens)
        device = self.model.device
        total = budget.total_bytes if device.emulated else device.total_bytes
        pools = (
            _fixed("weights", budget.weights_bytes),
            _fixed("runtime", budget.runtime_bytes),
            Pool(
                name="kv",
                used_bytes=budget.kv_bytes(now.kv_tokens),
                unit_bytes=budget.kv_token_bytes,
                units=now.kv_tokens,
                min_units=limits.min_kv_tokens,
                max_units=limits.max_kv_tokens,
                busy_units=min(self.scheduler.used_tokens, now.kv_tokens),
                grows_to_units=self._growth.most_tokens,
            ),
            Pool(
                name="experts",
                used_bytes=budget.expert_bytes(now.expert_slots),
                unit_bytes=budget.record_bytes,
                units=now.expert_slots,
                min_units=limits.min_slots,
                max_units=limits.max_slots,
                busy_units=min(self._resident, now.expert_slots),
            ),
            _fixed("other", total - budget.total_bytes),
            _fixed("free", budget.free_bytes(now)),
        )
        return DeviceStatus(device=device, total_bytes=total, pools=pools)

    def watch_pressure(self) -> None:
        """Give experts back when other programs need a real device's memory (case M-14)."""
        if self.model.device.emulated:
            return
        slots = self._experts.units
        wished = self._pressure.step(
            Reading(
                now_s=time.monotonic(),
                free_bytes=self.model.free_bytes(),
                slots=slots,
                floor_slots=self.model.budget.min_slots,
                wanted_slots=self._wanted_slots,
                record_bytes=self.model.budget.record_bytes,
            )
        )
        if wished is not None and wished != slots:
            self.scheduler.safepoint.do(lambda: self._yield_to(wished))

    def close(self) -> None:
        """Free the model; every request must have ended."""
        self.model.close()

    def _wanted(self, command: Resize) -> Division:
        now = self.division
        return Division(
            now.kv_tokens if command.kv_tokens is None else up_to_page(command.kv_tokens),
            now.expert_slots if command.expert_slots is None else command.expert_slots,
        )

    def _yield_to(self, slots: int) -> None:
        before = self._experts.units
        try:
            self._experts.resize(slots)
        except self._no_room:
            return  # growing back was refused: stay small and try later
        self._say_slots(before, "Other programs need device memory" if slots < before else "")

    def _relieve(self) -> bool:
        """Shrink the expert cache after the device refused memory; False at the floor."""
        before = self._experts.units
        floor = self.model.budget.min_slots
        slots = max(floor, int(before * (1 - RELIEF_SHARE)))
        if slots >= before:
            return False
        self._experts.resize(slots)
        self._say_slots(before, "The device ran out of memory")
        return True

    def _say_slots(self, before: int, cause: str) -> None:
        now = self._experts.units
        size = format_bytes(self.model.budget.expert_bytes(now))
        if cause:
            self._emit(
                Notice(
                    code="cache_shrunk",
                    message=f"{cause}: the expert cache went from {before} to {now} ({size}).",
                    level="warning",
                )
            )
        else:
            self._emit(
                Notice(code="cache_grown", message=f"The expert cache has {now} again ({size}).")
            )


def _fixed(name: Literal["weights", "runtime", "other", "free"], num_bytes: int) -> Pool:
    size = max(0, num_bytes)
    return Pool(name=name, used_bytes=size, units=size, min_units=size, max_units=size)


def _refusal(problem: Exception) -> str:
    return f"The device refused the memory: {problem}. Nothing has changed."
