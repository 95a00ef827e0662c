"""What decode does now and did before: figures, history for the charts, observations. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from app.predict.profiles import Profile
from app.predict.split import Split
from app.viewmodels.decode_window import DecodeWindow, frame_of
from app.viewmodels.performance_forecast import Observations
from app.viewmodels.performance_history import History
from app.viewmodels.performance_state import (
    DECODE_VALUES,
    Figures,
    at_rest,
    decode_values,
    make_figures,
)
from engine.protocol import messages as m


@dataclass(frozen=True, slots=True)
class Setup:
    """Under what a frame was measured: model, its profile, policy, division.

    `others_bytes` is what other programs hold of the device by its driver, None = as the engine
    found it at load.
    """

    model: m.ModelInfo | None
    profile: Profile | None
    policy: m.MissPolicy
    split: Split | None
    others_bytes: int | None = None


class DecodeLog:
    """Learns from stats frames and from the ends of replies.

    Attributes:
        history: values over time.
        seen: what forecasts are made from.
        figures: of the stretch of decode measured last; None before the first one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._window = clock, DecodeWindow()
        self._is_told = False  # the reply being written has shown a figure
        self.history, self.seen = History(), Observations()
        self.figures: Figures | None = None

    def forget(self) -> None:
        """Another model, or none: the history stays."""
        self._window, self._is_told = DecodeWindow(), False
        self.seen, self.figures = Observations(), None

    def take(self, event: m.Stats, setup: Setup) -> None:
        """Take a stats frame; without decode the lines of the charts end."""
        frame = self._window.take(event)
        values = {} if event.running else dict.fromkeys(DECODE_VALUES, math.nan)
        if frame is not None:
            values |= self._learn(frame, setup)
        elif not event.running:
            self._is_told = False
            if self.figures is not None:
                self.figures = at_rest(self.figures)
        if setup.split is not None:
            values |= {f"mem_{n}": float(b) for n, b in setup.split.sizes().items()}
            if setup.others_bytes is not None:
                values["mem_other"] = float(setup.others_bytes)
        self.history.add(self._clock(), values)

    def finish(self, event: m.Finished, setup: Setup) -> None:
        """Take a reply as a whole: what stands there while nothing runs."""
        model = setup.model
        if model is None or self._window.num_running > 1:
            return
        frame = frame_of(event, model.num_moe_layers * model.top_k)
        if frame is None:
            return
        if not self._is_told:  # too short for any frame of its own
            self.history.add(self._clock(), self._learn(frame, setup))
        self.figures = at_rest(make_figures(frame, model, setup.profile, setup.policy))

    def _learn(self, frame: m.Stats, setup: Setup) -> dict[str, float]:
        """Take a stretch of decode; return its values for the charts."""
        if setup.model is not None and frame.routes > 0:
            self.figures = make_figures(frame, setup.model, setup.profile, setup.policy)
        slots = setup.split.expert_slots if setup.split else 0
        self.seen.take(frame, slots, self._clock())
        self._is_told = True
        return decode_values(frame)
