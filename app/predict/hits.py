"""How the hit rate follows the number of slots: bounds from what was observed, nothing more.

An LRU cache's hit rate grows with its size, ever more slowly. Between two observations the rate
lies on or above the chord, and below both neighbouring chords made longer; with one observation
these bounds are wide, and say so.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HitRange:
    """Least, likeliest and greatest hit share (0..1)."""

    low: float
    middle: float
    high: float


class HitCurve:
    """Observed hit shares by slots, as bounds for any other number of slots."""

    def __init__(self, num_records: int, points: Iterable[tuple[int, float]]) -> None:
        """Take observations (slots, hit share); the ends (0, 0) and (all, 1) are added.

        Noise is levelled so that the curve never falls: each share is at least the one before.
        Raises: ValueError if `num_records` is not positive.
        """
        if num_records <= 0:
            raise ValueError("A hit curve needs at least one record.")
        known = sorted(dict(points).items())
        self._is_measured = any(slots > 0 for slots, _ in known)
        best = 0.0
        self._points: list[tuple[float, float]] = [(0.0, 0.0)]
        for slots, share in known:
            if 0 < slots < num_records:
                best = max(best, min(1.0, max(0.0, share)))
                self._points.append((float(slots), best))
        self._points.append((float(num_records), 1.0))

    @property
    def is_measured(self) -> bool:
        """Whether there is any observation at all."""
        return self._is_measured

    def at(self, slots: int) -> HitRange:
        """Return the bounds at `slots`; both ends grow with `slots`."""
        points = self._points
        x = min(max(float(slots), 0.0), points[-1][0])
        i = next(k for k in range(1, len(points)) if x <= points[k][0])
        low = min(1.0, _line(points[i - 1], points[i], x))  # rounding reaches past the end
        high = points[i][1]
        if i >= 2:
            high = min(high, _line(points[i - 2], points[i - 1], x))
        if i + 1 < len(points):
            high = min(high, _line(points[i], points[i + 1], x))
        high = max(low, high)
        return HitRange(low, (low + high) / 2, high)


def _line(a: tuple[float, float], b: tuple[float, float], x: float) -> float:
    return a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0])
