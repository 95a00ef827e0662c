"""Statistics while a model is loaded: rates over the last interval, sums, and the heat map.

Decides by the clock when something is due; the loop calls `tick` between steps.
"""

import base64
from collections.abc import Callable

from engine.protocol.messages import CacheMap, Event, Notice, Stats
from engine.scheduler.tally import Counts, rate
from engine.service.session import Session
from engine.settings import EngineSettings

PROGRESS_S = 0.1
SLOWER = frozenset(
    {"not_pinned", "layer_by_layer"}
)  # what a person is told at once, not only the log


class StatsFeed:
    """Emits Stats (busy: every `stats_s`, idle: half as often) and CacheMap (while it changes)."""

    def __init__(
        self,
        session: Session,
        settings: EngineSettings,
        emit: Callable[[Event], None],
        now_s: float,
    ) -> None:
        self._session = session
        self._settings = settings
        self._emit = emit
        self._stats_at_s = self._map_at_s = now_s
        self._counts = self._total()
        self._decoded = self._prefilled = 0
        self._was_busy = False

    @property
    def _interval_s(self) -> float:
        busy = self._session.scheduler.is_busy
        return self._settings.stats_s * (1 if busy else 2)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next statistics are due."""
        return max(0.0, self._stats_at_s + self._interval_s - now_s)

    def tick(self, now_s: float) -> None:
        """Emit what is due. The map also once more when work or warm-up has ended."""
        busy = self._session.scheduler.is_busy or self._session.is_warming
        if now_s - self._stats_at_s >= self._interval_s:
            self._say_stats(now_s)
            self._session.watch_pressure()
        due = now_s - self._map_at_s >= self._settings.cache_map_s
        if (busy and due) or (self._was_busy and not busy):
            self._map_at_s = now_s
            self.say_map()
        self._was_busy = busy

    def say_map(self) -> None:
        """Emit the heat map now."""
        hits, resident, most = self._session.heat()
        info = self._session.model.info
        self._emit(
            CacheMap(
                num_layers=info.num_moe_layers,
                num_experts=info.num_experts,
                hits=base64.b64encode(hits).decode("ascii"),
                resident=base64.b64encode(resident).decode("ascii"),
                max_hits=most,
            )
        )

    def _say_stats(self, now_s: float) -> None:
        scheduler = self._session.scheduler
        span_s = now_s - self._stats_at_s
        total = self._total()
        spent = total.minus(self._counts)
        hit, fill, cpu = spent.shares
        self._emit(
            Stats(
                interval_s=span_s,
                running=scheduler.num_running,
                waiting=scheduler.num_waiting,
                decode_tokens_per_s=rate(scheduler.decoded_tokens - self._decoded, span_s),
                prefill_tokens_per_s=rate(scheduler.prefilled_tokens - self._prefilled, span_s),
                hit_share=hit,
                fill_share=fill,
                cpu_share=cpu,
                fill_gbps=spent.fill_gbps,
                cpu_gbps=spent.cpu_gbps,
                routes=spent.routes,
                total_hits=total.hits,
                total_fills=total.fills,
                total_cpu=total.cpu,
                total_tokens=scheduler.sampled_tokens,
                warm_up_bytes=total.warm_up_bytes,
                context_used_tokens=scheduler.used_tokens,
                context_capacity_tokens=self._session.division.kv_tokens,
            )
        )
        self._stats_at_s = now_s
        self._counts = total
        self._decoded, self._prefilled = scheduler.decoded_tokens, scheduler.prefilled_tokens

    def _total(self) -> Counts:
        return Counts.read(self._session.model.experts.counters())


class ProgressPace:
    """Lets at most ten reports a second of one stage through; its first and last always."""

    def __init__(self) -> None:
        self._stage = ""
        self._told_s = 0.0

    def is_due(self, stage: str, is_last: bool, now_s: float) -> bool:
        """Return whether this report is worth sending; if so, it counts as sent."""
        if stage == self._stage and not is_last and now_s - self._told_s < PROGRESS_S:
            return False
        self._stage, self._told_s = stage, now_s
        return True


def load_notice(code: str, sentence: str) -> Notice:
    """Return what is said about a load; a slower path is a warning (case M-02)."""
    return Notice(code=code, message=sentence, level="warning" if code in SLOWER else "info")
