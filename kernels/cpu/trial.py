"""Times the pool's threads over real records, with one prefetch setting and another.

On a pool of its own with a mailbox of its own, before the real one starts: no step knows of it.
The threads are as many and on the same CPUs.
"""

import time
from collections.abc import Callable

from kernels.cpu import NativeTrial
from kernels.cpu.tuning import (
    BUDGET_S,
    CANDIDATES,
    USUAL,
    Prefetch,
    Rota,
    Tuning,
    choose,
    records_of_a_call,
    time_rounds,
)


class TimedCalls:
    """Calls that read `count` records each, all of `num_records` in turn."""

    def __init__(self, trial: NativeTrial, num_records: int, count: int) -> None:
        self._trial = trial
        self._rota = Rota(num_records)
        self._count = count

    def __call__(self, prefetch: Prefetch, patience_s: float) -> float:
        """Return the seconds of one call, 0 if it took longer than `patience_s`."""
        records = self._rota.take(self._count)
        patience_ns = round(patience_s * 1e9)
        return self._trial.run(records, prefetch.rows, prefetch.near_bytes, patience_ns) / 1e9


def tune(
    start: Callable[[], NativeTrial],
    num_records: int,
    record_bytes: int,
    usual: Prefetch = USUAL,
    clock_s: Callable[[], float] = time.monotonic,
    budget_s: float = BUDGET_S,
) -> Tuning:
    """Choose a setting; `usual` if records are so few that caches would be measured.

    `start` starts the threads, once if at all. They end with the trial.
    """
    count = records_of_a_call(num_records, record_bytes)
    if not count:
        return Tuning(usual)
    candidates = (usual, *(one for one in CANDIDATES if one != usual))
    calls = TimedCalls(start(), num_records, count)
    return choose(candidates, time_rounds(candidates, calls, clock_s, budget_s))
