"""Decode speed at another number of slots, from what this machine was seen to do.

Time per token = a part that misses do not touch + bytes of misses / the rate at which misses are
served. Nothing is predicted before something was measured.
"""

from dataclasses import dataclass

from app.predict.hits import HitCurve, HitRange

_MIN_SPEED = 1e-3  # tokens/s; below this nothing was measured
_LEAST_FIXED = 0.05  # of a token: attention and hits are never free


@dataclass(frozen=True, slots=True)
class Measured:
    """What one stretch of decode showed.

    Attributes:
        tokens_per_s: decode speed.
        hit_share: routes served from the device's cache, 0..1.
        expert_slots: slots at that time.
    """

    tokens_per_s: float
    hit_share: float
    expert_slots: int


@dataclass(frozen=True, slots=True)
class MissCost:
    """What misses cost: bytes per token without any hit, and the rate that serves them.

    Attributes:
        routed_bytes: MoE layers x top-k x record bytes.
        rate: bytes/s while misses are served, by the policy in force; 0 = not measured.
    """

    routed_bytes: int
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeedRange:
    """Predicted decode speed, tokens/s, with today's value and the hit shares behind it."""

    low: float
    middle: float
    high: float
    now: float
    hit_now: float
    hit_then: float


def routed_bytes(num_moe_layers: int, top_k: int, record_bytes: int) -> int:
    """Return the expert bytes one token of decode needs over all layers."""
    return num_moe_layers * top_k * record_bytes


def predict_speed(
    curve: HitCurve, now: Measured, cost: MissCost, expert_slots: int
) -> SpeedRange | None:
    """Return the speed to expect with `expert_slots`; None when speed, hits or rate are unknown.

    Returns: a range of which both ends grow with the slots; a point at today's slots.
    """
    if now.tokens_per_s < _MIN_SPEED or cost.rate <= 0 or not curve.is_measured:
        return None
    hits = expected_hits(curve, now, expert_slots)
    token_s = 1.0 / now.tokens_per_s
    misses_now = 1.0 - now.hit_share
    miss_s = cost.routed_bytes / cost.rate  # per token if every route missed
    if misses_now > 0:
        miss_s = min(miss_s, token_s / misses_now)  # misses cannot take longer than the token
    fixed_s = max(token_s - miss_s * misses_now, token_s * _LEAST_FIXED)

    def speed(hit_share: float) -> float:
        return 1.0 / (fixed_s + miss_s * (1.0 - hit_share))

    low, middle, high = (speed(share) for share in (hits.low, hits.middle, hits.high))
    return SpeedRange(low, middle, high, now.tokens_per_s, now.hit_share, hits.middle)


def expected_hits(curve: HitCurve, now: Measured, expert_slots: int) -> HitRange:
    """Return the hit share to expect, never worse than today's with more slots, or the reverse."""
    if expert_slots == now.expert_slots:
        return HitRange(now.hit_share, now.hit_share, now.hit_share)
    clamp = max if expert_slots > now.expert_slots else min
    hits = curve.at(expert_slots)
    low, high = clamp(hits.low, now.hit_share), clamp(hits.high, now.hit_share)
    return HitRange(low, (low + high) / 2, high)


def fills_per_miss(
    fill: float, cpu: float, joint_fill: float = 0.0, joint_cpu: float = 0.0
) -> float:
    """Return q*/m, the share of misses that crosses the link, 0..1.

    With joint rates both sides end together; else the paper's q* = m * B_P / B_H.
    Units: any rate, the same on both sides.
    Source: arXiv 2608.16157; joint rates are ours (ARCHITECTURE.md).
    """
    if joint_fill > 0 and joint_cpu > 0:
        return joint_fill / (joint_fill + joint_cpu)
    return min(1.0, fill / cpu) if cpu > 0 else 0.0
