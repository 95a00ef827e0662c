"""Who serves a layer's cache misses: the link (fill) or the CPU. Numbers only; no torch.

Knows record numbers and rates, not where bytes are or how anything is computed. Called by
`engine.moe.executor` once per MoE layer of a decode step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.memory.bandwidth import Rates
from engine.protocol.messages import MissPolicy


class Miss(NamedTuple):
    """An expert that is routed but not resident.

    `last_use` is the step in which it was routed before this one (0 = never); `pinned` says
    whether the device can read its record directly.
    """

    record: int
    last_use: int
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class MissPlan:
    """Records to copy to the device and records to compute in place: disjoint, covering."""

    fills: tuple[int, ...] = ()
    cpu: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds that a split should take; both sides run at once."""

    fill_s: float
    cpu_s: float

    @property
    def miss_s(self) -> float:
        """The later side."""
        return max(self.fill_s, self.cpu_s)


def split(num_misses: int, rates: Rates | None) -> int:
    """Divide one layer's misses between link fills and CPU work; returns q, the fills.

    The real-valued optimum is q* = m * P / (P + C): P is the link's rate, C what the CPU reaches
    beside it. With measured joint rates those are P and C; else P = B_P and C = B_H - B_P, which
    gives the paper's q* = m * B_P / B_H. Of the two integers around q* the one with the smaller
    max(q S / P, (m - q) S / C) is taken, and of a tie in time the larger, because a fill also warms
    the cache: both in one, q = floor((m + 1) * P / (P + C)). Without rates the sides count as
    equally fast.

    Shapes: integers only. Units: rates in bytes/s, same format on both sides.
    Returns: 0 <= q <= num_misses, monotone in num_misses.
    Raises: ValueError if num_misses < 0.
    Source: arXiv 2608.16157, q* policy; the rounding is ours, see test_plan.py.
    """
    if num_misses < 0:
        raise ValueError(f"{num_misses} misses")
    fill, cpu = side_rates(rates)
    if fill <= 0.0:
        return 0
    return min(num_misses, int((num_misses + 1) * fill // (fill + cpu)))


def side_rates(rates: Rates | None) -> tuple[float, float]:
    """Return (P, C): what the link and the CPU reach while both run. Bytes/s, never negative."""
    if rates is None:
        return 1.0, 1.0
    if rates.joint_fill > 0.0 and rates.joint_cpu > 0.0:
        return rates.joint_fill, rates.joint_cpu
    # A fill reads host memory too, so the CPU gets what it leaves.
    return max(0.0, rates.fill), max(0.0, rates.cpu - rates.fill)


def forecast(num_misses: int, num_fills: int, record_bytes: int, rates: Rates) -> Forecast:
    """Return how long `num_fills` of `num_misses` over the link, the rest on the CPU, should take.

    Units: seconds; infinite where a side has work and no rate.
    """
    fill, cpu = side_rates(rates)
    return Forecast(
        _seconds(num_fills * record_bytes, fill),
        _seconds((num_misses - num_fills) * record_bytes, cpu),
    )


def plan_misses(
    misses: Sequence[Miss], policy: MissPolicy, rates: Rates | None, room: int
) -> MissPlan:
    """Choose which misses are filled and which the CPU computes.

    Filled first: pinned records, then the most recently routed, then the lower number; so the plan
    is the same whatever order the misses come in. `room` is the number of slots that this step
    does not use: it bounds the fills of `split`, while `fill_only` fills everything (the executor
    passes what has no slot through staging). Where a plan is made ahead, as here, `two_ended` is
    `split`: only kernels that run beside the CPU can share one list.

    Returns: fills and cpu in that order, disjoint, together all of `misses`.
    """
    ordered = sorted(misses, key=lambda miss: (not miss.pinned, -miss.last_use, miss.record))
    if policy is MissPolicy.FILL_ONLY:
        num_fills = len(ordered)
    elif policy is MissPolicy.CPU_ONLY:
        num_fills = 0
    else:
        num_fills = min(split(len(ordered), rates), room)
    records = tuple(miss.record for miss in ordered)
    return MissPlan(records[:num_fills], records[num_fills:])


def _seconds(num_bytes: int, rate: float) -> float:
    if num_bytes == 0:
        return 0.0
    return num_bytes / rate if rate > 0.0 else float("inf")
