"""Whether a side of the two-ended queue pays on this machine: measured, with hysteresis.

A slow link or a slow CPU can cost more than it serves, and no benchmark of one side alone tells.
So from time to time some steps run with one side only; the faster way stays. Only steps of the same
rows are compared. Arithmetic over step times: no device, no torch. Called by
`engine.moe.device_experts` once per decode step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.protocol.messages import MissPolicy

WAYS = (MissPolicy.TWO_ENDED, MissPolicy.FILL_ONLY, MissPolicy.CPU_ONLY)


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """How often and how long is tried, in steps.

    Attributes:
        trial_steps: steps of a trial that count, and as many before it that it is compared with.
        settle_steps: steps that do not count at the start of a trial and after a change of rows,
            because a step is timed while the one before it still runs.
        first_serve_steps: steps until the first trial.
        most_serve_steps: steps between trials once the verdict has stood for long; the wait
            doubles with each trial that changes nothing.
        gain: a trial must take at most this share of the time to win.
        longest_step_s: a longer step was no step but a pause, and does not count.
    """

    trial_steps: int = 16
    settle_steps: int = 4
    first_serve_steps: int = 1024
    most_serve_steps: int = 16_384
    gain: float = 0.95
    longest_step_s: float = 1.0


class SideSwitch:
    """The way in force: both sides, or one alone."""

    def __init__(self, rules: SwitchRules = SwitchRules()) -> None:
        self._rules = rules
        self._served = MissPolicy.TWO_ENDED
        self._trial: MissPolicy | None = None
        self._wait = rules.first_serve_steps
        self._next = 0  # which alternative is tried next
        self._rows: tuple[int, ...] = ()
        self._steps = 0  # of the present phase
        self._settling = 0  # steps that do not count yet
        self._recent: list[float] = []  # of the present phase, the last that count
        self._before_s = 0.0  # mean step before the trial

    @property
    def way(self) -> MissPolicy:
        """How the next step serves its misses."""
        return self._served if self._trial is None else self._trial

    @property
    def served(self) -> MissPolicy:
        """The way that won so far; what a person is told."""
        return self._served

    def step(self, seconds: float, rows: Sequence[int] = (1,)) -> None:
        """Count a step that took so long under `way`; `rows` of each recording that it replayed."""
        if seconds > self._rules.longest_step_s:
            return
        if tuple(rows) != self._rows:
            self._change(tuple(rows))
        self._steps += 1
        if self._settling:
            self._settling -= 1
        elif self._trial is None:
            self._serve(seconds)
        else:
            self._try(seconds)

    def _change(self, rows: tuple[int, ...]) -> None:
        """Begin anew with steps of other rows; a trial ends without a verdict, to come again."""
        self._rows = rows
        if self._trial is not None:
            self._next -= 1
            self._begin(None)
        self._recent, self._settling = [], self._rules.settle_steps

    def _serve(self, seconds: float) -> None:
        self._recent = [*self._recent[1 - self._rules.trial_steps :], seconds]
        if self._steps < self._wait or len(self._recent) < self._rules.trial_steps:
            return
        self._before_s = sum(self._recent) / len(self._recent)
        others = [way for way in WAYS if way is not self._served]
        self._begin(others[self._next % len(others)])
        self._next += 1

    def _try(self, seconds: float) -> None:
        self._recent.append(seconds)
        if len(self._recent) < self._rules.trial_steps:
            return
        won = sum(self._recent) / len(self._recent) <= self._rules.gain * self._before_s
        if won and self._trial is not None:
            self._served, self._wait = self._trial, self._rules.first_serve_steps
        else:
            self._wait = min(2 * self._wait, self._rules.most_serve_steps)
        self._begin(None)

    def _begin(self, trial: MissPolicy | None) -> None:
        self._trial, self._steps, self._recent = trial, 0, []
        self._settling = 0 if trial is None else self._rules.settle_steps
