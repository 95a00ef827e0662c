"""What a division is likely to bring: collects observations, and asks `app.predict`.

Afterwards it compares what it promised with what was measured. QtCore-free; knows no client.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from app.predict import amounts
from app.predict.hits import HitCurve
from app.predict.profiles import Profile
from app.predict.speed import (
    Measured,
    MissCost,
    SpeedRange,
    expected_hits,
    predict_speed,
    routed_bytes,
)
from app.predict.split import Split
from app.wording import tr
from engine.protocol.messages import MissPolicy, ModelInfo, Stats

_SETTLE_FRAMES = 2  # frames after a resize that still tell of the old cache
_BLEND = 0.2  # weight of a new frame in the hit share at one number of slots
_MIN_ROUTES = 32
PROMISE_S = 10.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the prediction card shows.

    Attributes:
        kind: "none" says why in `reason`; "measured" compares with what was promised.
        speed: tokens/s, None where not predictable.
        hit_now, hit_then: shares of 1, None = unknown.
        context_now, context_then: tokens.
        error: measured / promised - 1, only for "measured".
        promised: tokens/s that were promised, only for "measured".
    """

    kind: Literal["none", "predicted", "measured"] = "none"
    reason: str = ""
    speed: SpeedRange | None = None
    hit_now: float | None = None
    hit_then: float | None = None
    context_now: int = 0
    context_then: int = 0
    error: float = 0.0
    promised: float = 0.0


@dataclass(slots=True)
class Observations:
    """What decode showed since the model was loaded."""

    hits: dict[int, float] = field(default_factory=dict)
    now: Measured | None = None
    promise: tuple[float, float] | None = None  # tokens/s, until when (seconds)
    kept: float | None = None  # tokens/s measured after the promise
    checked: tuple[float, float] | None = None  # tokens/s promised and measured, the last time
    _skip: int = 0

    def resized(self, promised: SpeedRange | None, now_s: float) -> None:
        """Another number of slots holds; the cache needs a moment to settle."""
        self._skip = _SETTLE_FRAMES
        self.kept = None
        self.promise = (promised.middle, now_s + PROMISE_S) if promised else None

    def take(self, stats: Stats, slots: int, now_s: float) -> None:
        """Learn from one frame; frames without decode say nothing."""
        if stats.routes < _MIN_ROUTES or stats.decode_tokens_per_s <= 0 or slots <= 0:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        old = self.hits.get(slots)
        share = stats.hit_share if old is None else old + _BLEND * (stats.hit_share - old)
        self.hits[slots] = share
        self.now = Measured(stats.decode_tokens_per_s, share, slots)
        if self.promise is not None and now_s < self.promise[1]:
            self.kept = stats.decode_tokens_per_s
            self.checked = (self.promise[0], self.kept)


def make_forecast(
    seen: Observations,
    model: ModelInfo | None,
    profile: Profile | None,
    policy: MissPolicy,
    splits: tuple[Split | None, Split | None],
    now_s: float,
) -> Forecast:
    """Forecast the second of two divisions (applied, shown) from what was seen under the first."""
    applied, shown = splits
    if model is None or applied is None or shown is None:
        return Forecast(reason=tr("No model is loaded."))
    base = Forecast(context_now=applied.kv_tokens, context_then=shown.kv_tokens)
    if seen.promise and seen.kept and now_s < seen.promise[1] and shown.same_as(applied):
        error = seen.kept / seen.promise[0] - 1
        hit = seen.now.hit_share if seen.now else None
        return replace(
            base,
            kind="measured",
            error=error,
            promised=seen.promise[0],
            hit_now=hit,
            hit_then=hit,
        )
    if seen.now is None:
        return replace(base, reason=tr("Nothing is measured yet: send a message first."))
    if shown.same_as(applied):
        hit = seen.now.hit_share
        words: str = tr("Move a divider to see what it would bring.")
        if seen.checked is not None:
            words = tr("{advice} {last}", advice=words, last=_last_words(*seen.checked))
        return replace(base, reason=words, hit_now=hit, hit_then=hit)
    curve = HitCurve(max(1, model.num_records), seen.hits.items())
    hits = expected_hits(curve, seen.now, shown.expert_slots)
    rate = profile.miss_rate(policy) if profile else 0.0
    cost = MissCost(routed_bytes(model.num_moe_layers, model.top_k, model.record_bytes), rate)
    speed = predict_speed(curve, seen.now, cost, shown.expert_slots)
    return replace(
        base,
        kind="predicted" if speed else "none",
        reason="" if speed else tr("Speed needs this machine's bandwidths: run the profiler."),
        speed=speed,
        hit_now=seen.now.hit_share,
        hit_then=hits.middle,
    )


def error_text(error: float) -> str:
    """Return measured / promised - 1 as "+4 %" or "−3 %"."""
    sign = "+" if error >= 0 else amounts.MINUS
    return f"{sign}{abs(100 * error):.0f} %"


def _last_words(promised: float, kept: float) -> str:
    return tr(
        "Last time {speed} tok/s were predicted, {error} off.",
        speed=amounts.number(promised),
        error=error_text(kept / promised - 1),
    )
