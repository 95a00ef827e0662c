"""How often each expert was used lately, for the heat map. Counts only; decides nothing.

Owned by `engine.moe.cache`. No torch.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

WINDOW_S = 60.0
STEPS = 12


class Heat:
    """Uses per record over the last `window_s` seconds, in `STEPS` steps that expire as a whole."""

    def __init__(
        self, num_records: int, clock: Callable[[], float], window_s: float = WINDOW_S
    ) -> None:
        self._clock = clock
        self._step_s = window_s / STEPS
        self._totals = array("I", bytes(4 * num_records))
        self._followed = array("Q", bytes(8 * num_records))
        self._steps: deque[tuple[int, Counter[int]]] = deque()

    def add(self, records: Iterable[int]) -> None:
        """Count one use of each record given."""
        used = self._current()
        for record in records:
            used[record] += 1
            self._totals[record] += 1

    def follow(self, totals: Sequence[int]) -> None:
        """Count what running totals, as a device keeps them, have grown by since the last call."""
        used = self._current()
        for record, (now, before) in enumerate(zip(totals, self._followed, strict=True)):
            if now != before:
                used[record] += now - before
                self._totals[record] += now - before
                self._followed[record] = now

    def scaled(self) -> tuple[bytes, int]:
        """Return uint8 per record, scaled so that 255 = the largest count, and that count."""
        self._current()
        top = max(self._totals, default=0)
        if top == 0:
            return bytes(len(self._totals)), 0
        return bytes(-(-255 * uses // top) for uses in self._totals), top

    def _current(self) -> Counter[int]:
        """Expire what is too old; return the counter of now."""
        now = int(self._clock() / self._step_s)
        while self._steps and self._steps[0][0] <= now - STEPS:
            for record, uses in self._steps.popleft()[1].items():
                self._totals[record] -= uses
        if not self._steps or self._steps[-1][0] != now:
            self._steps.append((now, Counter()))
        return self._steps[-1][1]
