"""Where the time and the bytes of a reply went: counts, differences, and the trace.

Knows no tensors and no device; the executor's counters come in as numbers. Used by
`engine.scheduler.scheduler` and `engine.service`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from engine.protocol.messages import Trace

_GB = 1e9


class Counters(Protocol):
    """Sums since load, as `MoeExecutor.counters` gives them; routes are those of decode."""

    @property
    def routes(self) -> int: ...  # noqa: D102  named by the class
    @property
    def hits(self) -> int: ...  # noqa: D102
    @property
    def fills(self) -> int: ...  # noqa: D102
    @property
    def cpu(self) -> int: ...  # noqa: D102
    @property
    def fill_bytes(self) -> int: ...  # noqa: D102
    @property
    def cpu_bytes(self) -> int: ...  # noqa: D102
    @property
    def fill_s(self) -> float: ...  # noqa: D102
    @property
    def cpu_s(self) -> float: ...  # noqa: D102
    @property
    def warm_up_bytes(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Counts:
    """Decode routes by how they were served, with bytes and seconds of both links.

    `warm_up_bytes` were copied in idle moments and served no route.
    """

    routes: int = 0
    hits: int = 0
    fills: int = 0
    cpu: int = 0
    fill_bytes: int = 0
    cpu_bytes: int = 0
    fill_s: float = 0.0
    cpu_s: float = 0.0
    warm_up_bytes: int = 0

    @classmethod
    def read(cls, counters: Counters) -> "Counts":
        """Copy the figures out of a snapshot."""
        return cls(
            counters.routes,
            counters.hits,
            counters.fills,
            counters.cpu,
            counters.fill_bytes,
            counters.cpu_bytes,
            counters.fill_s,
            counters.cpu_s,
            counters.warm_up_bytes,
        )

    def plus(self, other: "Counts") -> "Counts":
        """Add two spans."""
        return self._with(other, 1)

    def minus(self, earlier: "Counts") -> "Counts":
        """Return what happened since `earlier`."""
        return self._with(earlier, -1)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of hits, fills and CPU; they add up to 1, or are all 0 without a route."""
        served = self.hits + self.fills + self.cpu
        if served <= 0:
            return 0.0, 0.0, 0.0
        return self.hits / served, self.fills / served, self.cpu / served

    @property
    def fill_gbps(self) -> float:
        """Rate of the fills while they ran; 1e9 bytes/s."""
        return self.fill_bytes / self.fill_s / _GB if self.fill_s > 0 else 0.0

    @property
    def cpu_gbps(self) -> float:
        """Rate at which the CPU kernel read experts while it ran; 1e9 bytes/s."""
        return self.cpu_bytes / self.cpu_s / _GB if self.cpu_s > 0 else 0.0

    def _with(self, other: "Counts", sign: int) -> "Counts":
        return Counts(
            self.routes + sign * other.routes,
            self.hits + sign * other.hits,
            self.fills + sign * other.fills,
            self.cpu + sign * other.cpu,
            self.fill_bytes + sign * other.fill_bytes,
            self.cpu_bytes + sign * other.cpu_bytes,
            self.fill_s + sign * other.fill_s,
            self.cpu_s + sign * other.cpu_s,
            self.warm_up_bytes + sign * other.warm_up_bytes,
        )


@dataclass(slots=True)
class Timing:
    """One reply's clock. Seconds of steps count only where the reply took part (case G-20)."""

    submitted_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    prefill_s: float = 0.0
    prefill_tokens: int = 0
    decode_s: float = 0.0
    decode_tokens: int = 0
    counts: Counts = field(default_factory=Counts)

    def add_prompt(self, took_s: float, tokens: int) -> None:
        """A step read so many tokens of its prompt."""
        self.prefill_s += took_s
        self.prefill_tokens += tokens

    def add_token(self, took_s: float, spent: Counts) -> None:
        """A step wrote a token of it."""
        self.decode_s += took_s
        self.decode_tokens += 1
        self.counts = self.counts.plus(spent)

    def trace(self) -> Trace:
        """Return the trace so far; rates are 0 where nothing was measured."""
        started = self.submitted_s if self.started_s is None else self.started_s
        first = self.submitted_s if self.first_token_s is None else self.first_token_s
        hit, fill, cpu = self.counts.shares
        return Trace(
            queued_s=started - self.submitted_s,
            ttft_s=first - self.submitted_s,
            prefill_tokens_per_s=rate(self.prefill_tokens, self.prefill_s),
            decode_tokens_per_s=rate(self.decode_tokens, self.decode_s),
            decode_s=self.decode_s,
            hit_share=hit,
            fill_share=fill,
            cpu_share=cpu,
            fill_gbps=self.counts.fill_gbps,
            cpu_gbps=self.counts.cpu_gbps,
            fill_bytes=self.counts.fill_bytes,
            cpu_bytes=self.counts.cpu_bytes,
        )


def rate(amount: int, seconds: float) -> float:
    """Return amount per second, 0 if no time passed."""
    return amount / seconds if seconds > 0 else 0.0
