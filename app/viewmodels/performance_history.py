"""What happened over the last minute, quarter of an hour and two hours, in bins of fixed width.

Three rings of at most 300 bins each, so that a chart never gets more points than it may draw
smoothly. Pure; time comes in as a number.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass

SPANS = (60.0, 900.0, 7200.0)
_BINS = {60.0: 120, 900.0: 300, 7200.0: 300}
_HOLD_S = 2.5  # a frame of decode comes within 2 s; a longer silence is a gap
_MARKS = 40


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0
    ends: bool = False  # the newest value of the bin was "there is none"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: when, and as what it is marked."""

    at_s: float
    kind: str
    text: str


class _Ring:
    """Means of named values per bin."""

    def __init__(self, span_s: float, count: int) -> None:
        self.width_s, self.count = span_s / count, count
        self._bins: OrderedDict[int, dict[str, _Mean]] = OrderedDict()

    def add(self, now_s: float, values: Mapping[str, float]) -> None:
        index = math.floor(now_s / self.width_s)
        bin_ = self._bins.setdefault(index, {})
        for name, value in values.items():
            mean = bin_.setdefault(name, _Mean())
            mean.ends = not math.isfinite(value)
            if not mean.ends:
                mean.total += value
                mean.count += 1
        while len(self._bins) > self.count + 1:
            self._bins.popitem(last=False)

    def series(self, name: str, now_s: float) -> list[float]:
        last = math.floor(now_s / self.width_s)
        hold = math.ceil(_HOLD_S / self.width_s)
        found: list[float] = []
        held, age = math.nan, 0
        for index in range(last - self.count + 1 - hold, last + 1):
            mean = self._bins.get(index, {}).get(name)
            if mean is not None:
                held, age = mean.total / mean.count if mean.count else math.nan, 0
            else:
                age += 1
            found.append(held if age <= hold else math.nan)
            if mean is not None and mean.ends:
                held = math.nan
        return found[hold:]


class History:
    """Rings for all spans, and the events that charts mark."""

    def __init__(self) -> None:
        self._rings = {span: _Ring(span, _BINS[span]) for span in SPANS}
        self._events: deque[Event] = deque(maxlen=_MARKS)

    def add(self, now_s: float, values: Mapping[str, float]) -> None:
        """Take the values of one frame; NaN = there is none now, a name left out = as before."""
        for ring in self._rings.values():
            ring.add(now_s, values)

    def mark(self, event: Event) -> None:
        """Remember an event."""
        self._events.append(event)

    def series(self, name: str, span_s: float, now_s: float) -> list[float]:
        """Return the means over the last `span_s`, oldest first; NaN where there is nothing.

        Raises: KeyError for a span that is not in SPANS.
        """
        return self._rings[span_s].series(name, now_s)

    def events(self, span_s: float, now_s: float) -> list[tuple[float, Event]]:
        """Return the events of the last `span_s` with their place, 0..1, oldest first."""
        start = now_s - span_s
        return [((e.at_s - start) / span_s, e) for e in self._events if e.at_s >= start]
