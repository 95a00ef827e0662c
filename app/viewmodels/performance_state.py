"""What the Performance page shows, as data: the note, the figures, presets, policies. Pure."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from app.predict import amounts
from app.predict.profiles import Profile
from app.predict.split import Split
from app.viewmodels.performance_history import Event
from app.wording import Phrase, tr
from engine.protocol import messages as m

# Shares of what can be divided: KV cache, experts. The rest stays free.
PRESETS: tuple[tuple[str, float, float], ...] = (
    ("chat", 0.25, 0.75),
    ("agent", 0.50, 0.50),
    ("gaming", 0.15, 0.25),
)
Means = Literal["pointer", "keys", "field"]
PREVIEW_NOTES: dict[Means, Phrase] = {  # how a division under way is asked for
    "pointer": tr("Preview. Release to apply at the next safe point."),
    "keys": tr("Preview. Enter applies it at the next safe point, Esc takes it back."),
    "field": tr("Preview. It is applied at the next safe point."),
}
DECODE_VALUES = ("speed", "hit", "fill", "cpu", "fill_gbps", "cpu_gbps")  # in the history
POLICIES = tuple(m.MissPolicy)


@dataclass(frozen=True, slots=True)
class Note:
    """The sentence below the bar, its tone, and whether Undo belongs to it."""

    tone: Literal["info", "pending", "applied", "refused", "warn"]
    text: str
    can_undo: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """What decode did in the newest frame that had any; rates in GB/s, shares of 1."""

    tokens_per_s: float
    hit_share: float
    fill_share: float
    cpu_share: float
    read_bytes_per_token: float
    limit_share: float | None  # of the speed at which misses alone would fill the time
    is_live: bool
    fill_gbps: float = 0.0
    cpu_gbps: float = 0.0

    @property
    def copied_share(self) -> float | None:
        """Share of the misses that was copied, the CPU computed the rest; None = no misses."""
        missed = self.fill_share + self.cpu_share
        return self.fill_share / missed if missed > 0 else None


def make_figures(
    event: m.Stats, model: m.ModelInfo, profile: Profile | None, policy: m.MissPolicy
) -> Figures:
    """Work a decode frame out; the limit is known only where the rates were measured."""
    routed = model.num_moe_layers * model.top_k * model.record_bytes
    missed = routed * (1.0 - event.hit_share)
    limit: float | None = None
    if profile is not None and missed > 0:
        limit = event.decode_tokens_per_s * missed / profile.miss_rate(policy)
    return Figures(
        tokens_per_s=event.decode_tokens_per_s,
        hit_share=event.hit_share,
        fill_share=event.fill_share,
        cpu_share=event.cpu_share,
        read_bytes_per_token=missed,
        limit_share=limit if limit is not None and limit <= 1 else None,
        is_live=True,
        fill_gbps=event.fill_gbps,
        cpu_gbps=event.cpu_gbps,
    )


def decode_values(event: m.Stats) -> dict[str, float]:
    """Return what the charts keep of a stretch of decode."""
    return {
        "speed": event.decode_tokens_per_s,
        "hit": event.hit_share if event.routes else math.nan,
        "fill": event.fill_share if event.routes else math.nan,
        "cpu": event.cpu_share if event.routes else math.nan,
        "fill_gbps": event.fill_gbps,
        "cpu_gbps": event.cpu_gbps,
    }


def at_rest(figures: Figures) -> Figures:
    """The same figures, of a reply that is over."""
    return replace(figures, is_live=False)


def resize_event(now_s: float, before: Split, after: Split) -> Event:
    """Name a resize for the charts: by the context if that changed, else by the experts."""
    words: dict[tuple[str, bool], Phrase] = {
        ("kv", True): tr("KV grew"),
        ("kv", False): tr("KV shrank"),
        ("experts", True): tr("Experts grew"),
        ("experts", False): tr("Experts shrank"),
    }
    kind, grew = "experts", after.expert_slots > before.expert_slots
    if after.kv_tokens != before.kv_tokens:
        kind, grew = "kv", after.kv_tokens > before.kv_tokens
    return Event(now_s, f"{kind}_{'up' if grew else 'down'}", words[kind, grew])


def grown_note(split: Split) -> Note:
    """Say why the division is another one although nobody moved it."""
    count = amounts.tokens(split.kv_tokens)
    return Note("info", tr("A chat needed more context: it grew to {count} tokens.", count=count))
