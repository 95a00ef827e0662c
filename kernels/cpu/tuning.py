"""How far ahead the pool's threads ask for memory: which distances to try, and which one to take.

Arithmetic only. Times come from the caller, and so does the clock; `kernels.cpu.trial` brings both.
No choice changes a bit of a result.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROW_STEP = 8
BUDGET_S = 0.3
MIN_GAIN = 0.03
MIN_ROUNDS, MAX_ROUNDS = 5, 16
CALL_BYTES = 32 << 20  # of a timed call, at least: no end of a call counts much
MIN_RECORD_BYTES = 1 << 30  # that go round, so that no cache holds what is read again
MAX_CALL_RECORDS = 64


@dataclass(frozen=True, slots=True)
class Prefetch:
    """When a line of a weight row is fetched.

    Attributes:
        rows: into the second cache, when a row so many rows before is read: 8, 16 or 24.
        near_bytes: into the first cache, when the line so many bytes before is read: 0 to 4096.
    """

    rows: int = ROW_STEP
    near_bytes: int = 512

    def __str__(self) -> str:
        return f"{self.rows}:{self.near_bytes}"


USUAL = Prefetch()
CANDIDATES = (
    USUAL,
    Prefetch(8, 256),
    Prefetch(8, 1024),
    Prefetch(16, 512),
    Prefetch(16, 1024),
    Prefetch(24, 512),
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was tried, and what came of it.

    Attributes:
        chosen: the setting to use.
        gain: how much less time it needs than the usual one, as a fraction; 0 for the usual one.
        rounds: how many times each candidate was timed.
    """

    chosen: Prefetch = USUAL
    gain: float = 0.0
    rounds: int = 0

    def __str__(self) -> str:
        how = f"{self.gain:.0%} less time" if self.gain else "as usual"
        return f"{self.chosen}, {how}, {self.rounds} rounds"


def records_of_a_call(num_records: int, record_bytes: int) -> int:
    """Return how many records a timed call reads; 0 if all there are would fit into caches."""
    if num_records * record_bytes < MIN_RECORD_BYTES:
        return 0
    return min(MAX_CALL_RECORDS, num_records, -(-CALL_BYTES // record_bytes))


class Rota:
    """Takes records in turn, so that none is read again before all others were."""

    def __init__(self, num_records: int) -> None:
        self._num_records = num_records
        self._next = 0

    def take(self, count: int) -> list[int]:
        """Return the numbers of the next `count` records."""
        begin = self._next
        self._next = (begin + count) % self._num_records
        return [(begin + place) % self._num_records for place in range(count)]


def time_rounds(
    candidates: Sequence[Prefetch],
    call_s: Callable[[Prefetch, float], float],
    clock_s: Callable[[], float],
    budget_s: float,
    max_rounds: int = MAX_ROUNDS,
) -> list[list[float]]:
    """Time all candidates in turn, again and again; returns the seconds, by round and candidate.

    `call_s` gets a candidate and how long it may take at most, and returns its seconds, or 0 if it
    took longer. Each round begins with another candidate. A first round warms up and does not
    count, nor does one that the budget cuts off.
    """
    end = clock_s() + budget_s
    rounds: list[list[float]] = []
    for number in range(max_rounds + 1):
        times = [0.0] * len(candidates)
        for step in range(len(candidates)):
            place = (number + step) % len(candidates)
            left = end - clock_s()
            if left <= 0:
                return rounds[1:]
            times[place] = call_s(candidates[place], left)
            if times[place] <= 0:
                return rounds[1:]
        rounds.append(times)
    return rounds[1:]


def gains(rounds: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return for each candidate how much less time it took than the first one, and the spread.

    Both are fractions: the median over the rounds, each compared within itself, because machines
    drift, and the distance between the quartiles. Needs two rounds.
    """
    out = []
    for place in range(len(rounds[0])):
        lower, middle, upper = statistics.quantiles(
            [1 - times[place] / times[0] for times in rounds], n=4, method="inclusive"
        )
        out.append((middle, upper - lower))
    return out


def choose(candidates: Sequence[Prefetch], rounds: Sequence[Sequence[float]]) -> Tuning:
    """Take the fastest candidate that is clearly faster than the first one, else the first one.

    Clearly: by `MIN_GAIN` at least and by more than its spread, over `MIN_ROUNDS` or more.
    """
    if len(rounds) < MIN_ROUNDS:
        return Tuning(candidates[0], 0.0, len(rounds))
    best, most = 0, 0.0
    for place, (gain, spread) in enumerate(gains(rounds)):
        if place and gain >= MIN_GAIN and gain > spread and gain > most:
            best, most = place, gain
    return Tuning(candidates[best], most, len(rounds))
