"""What a chart shows, as data, and the arithmetic of axes and decimation. No Qt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ANTIALIAS_POINTS = 300  # above this, aliased lines of extremes look the same and cost a tenth


@dataclass(frozen=True, slots=True)
class Series:
    """One line or layer; NaN marks a gap.

    Attributes:
        name: translated name, for labels, table and assistive tools.
        role: colour role of the theme.
        values: y values, oldest first.
        dash: dash pattern in pixels; the second carrier beside the colour.
        label: word at the line's end; None = its last value.
    """

    name: str
    role: str
    values: Sequence[float]
    dash: tuple[float, ...] = ()
    label: str | None = None

    @property
    def last(self) -> float:
        """The newest value that is a number; NaN if there is none."""
        return next((v for v in reversed(self.values) if not math.isnan(v)), math.nan)


@dataclass(frozen=True, slots=True)
class Limit:
    """A dashed level that values may not pass, such as a link's measured rate."""

    value: float
    role: str
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: `at` is its place along the x axis, 0..1."""

    at: float
    icon: str
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured curve over sizes: points (x, y), x increasing and positive."""

    name: str
    role: str
    points: tuple[tuple[float, float], ...] = ()
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a chart in words, for people who do not see it."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


def nice_ticks(high: float, least: float = 0.0) -> tuple[float, ...]:
    """Return 3 to 4 round ticks from 0 that cover `high` (and `least`, if that is greater)."""
    top = max(high, least) if math.isfinite(max(high, least)) else 0.0
    if top <= 0:
        return (0.0, 0.5, 1.0)
    scale = 10.0 ** math.floor(math.log10(top / 3))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0):
        step = scale * factor
        count = math.ceil(top / step - 1e-9)
        if count <= 3:
            return tuple(step * i for i in range(max(2, count) + 1))
    return (0.0, top)


def greatest(values: Sequence[float]) -> float:
    """Return the greatest number; 0 if there is none."""
    return max((v for v in values if math.isfinite(v)), default=0.0)


def runs(values: Sequence[float]) -> list[list[tuple[int, float]]]:
    """Return the stretches without gaps, as (index, value)."""
    found: list[list[tuple[int, float]]] = []
    inside = False
    for i, value in enumerate(values):
        if not math.isfinite(value):
            inside = False
            continue
        if not inside:
            found.append([])
            inside = True
        found[-1].append((i, value))
    return found


def decimate(run: list[tuple[int, float]], columns: int) -> list[tuple[int, float]]:
    """Keep the least and greatest value of each of `columns` equal parts, in their order.

    Returns: at most 2 x `columns` points; the run itself if it is short enough already.
    """
    if len(run) <= max(ANTIALIAS_POINTS, 2 * columns):
        return run
    kept: list[tuple[int, float]] = []
    for c in range(columns):
        part = run[c * len(run) // columns : (c + 1) * len(run) // columns]
        if part:
            ends = {min(part, key=lambda q: q[1]), max(part, key=lambda q: q[1])}
            kept.extend(sorted(ends))
    return kept


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move label places apart to at least `gap`, inside `low`..`high` as far as there is room."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    floor = low
    for i in order:
        moved[i] = max(moved[i], floor)
        floor = moved[i] + gap
    ceiling = high
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved
