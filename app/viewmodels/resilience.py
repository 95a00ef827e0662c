"""What to do when the engine ends, falls silent, or lives without moving. QtCore only.

The rule: the engine is not restarted behind a person's back. Who wants it otherwise says so in
Settings, and then only where nothing of theirs can be lost. Used by the session view model.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.services.engine_client import EngineClient
from app.services.outcome import EndCause, ProcessOutcome, RestartLimit
from app.services.power import WakeWatch
from app.services.settings import SettingsStore
from app.viewmodels.session_words import Problem, lost_engine, silent_engine, stuck_engine
from app.wording import tr, tr_count
from engine.protocol import messages as m

STUCK_BEATS = 120  # heartbeats, one a second, without a step forward of any open reply
_RECENT_S = 120.0  # after a sleep; drivers notice a lost device late
_MENDABLE = (EndCause.CRASHED, EndCause.KILLED, EndCause.INTERNAL, EndCause.ENDED)


@dataclass(frozen=True, slots=True)
class End:
    """What matters of an end of the engine.

    Attributes:
        cause: why it ended.
        lost_replies: replies that were being written.
        was_ready: it had come up before; one that never does is not tried again and again.
    """

    cause: EndCause
    lost_replies: int
    was_ready: bool


def may_restart(is_wanted: bool, end: End, is_limit_reached: bool) -> bool:
    """Whether a restart without asking is allowed.

    Never where a reply broke: the person must see where, and decides how it goes on. Never where a
    restart cannot help: device gone, other protocol, no program, memory of the device too small.
    """
    can_help = end.cause in _MENDABLE and end.was_ready
    return is_wanted and can_help and end.lost_replies == 0 and not is_limit_reached


class Resilience(QObject):
    """See the module.

    Args:
        client: the engine.
        settings: whether automatic restarts are wanted.
        wake: tells when the computer woke up; None = nobody does.
        clock: seconds, monotonic, for the limit of restarts.

    Signals:
        doubted(object): a Problem with a silent or stuck engine, or None when it is over.
        said(str, str): a sentence worth a toast, and its tone.
    """

    doubted = Signal(object)
    said = Signal(str, str)

    def __init__(
        self,
        client: EngineClient,
        settings: SettingsStore,
        wake: WakeWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._client, self._settings, self._wake = client, settings, wake
        self._restarts = RestartLimit(clock)  # of those without asking
        self._lost, self._was_ready = 0, False
        self._beats = 0  # since a reply moved last
        client.ready.connect(self._on_ready)
        client.finished.connect(self._on_finished)
        client.responding_changed.connect(self._on_responding)
        client.heartbeat.connect(self._on_beat)
        for signal in (client.started, client.delta, client.progress, client.finished):
            signal.connect(self._on_move)
        if wake is not None:
            wake.woke.connect(self._on_woke)

    def restart_by_itself(self, outcome: ProcessOutcome) -> bool:
        """Whether the engine is to be started again now; says so and counts it."""
        end = End(outcome.cause, self._lost, self._was_ready)
        if not may_restart(self._settings.value.auto_restart, end, self._restarts.is_reached):
            return False
        self._restarts.note_end()
        why = outcome.sentence
        self.said.emit(tr("{why} It was started again; nothing was lost.", why=why), "warn")
        return True

    def lost(self, outcome: ProcessOutcome) -> Problem:
        """Return what to tell about an end."""
        slept = self._wake is not None and self._wake.slept_within(_RECENT_S)
        return lost_engine(outcome, self._client.process.restarts.is_reached, slept)

    # --- events

    def _on_ready(self) -> None:
        self._lost, self._was_ready, self._beats = 0, True, 0

    def _on_finished(self, event: m.Finished) -> None:
        if not self._client.process.is_running and event.reason is m.FinishReason.ERROR:
            self._lost += 1

    def _on_responding(self, responding: bool) -> None:
        self.doubted.emit(None if responding else silent_engine(self._client.state))

    def _on_move(self, *_: object) -> None:
        if self._beats >= STUCK_BEATS:
            self.doubted.emit(None)
        self._beats = 0

    def _on_beat(self, _event: m.Heartbeat) -> None:
        """Heartbeats of a live engine are the clock here: nothing is counted while all sleeps."""
        self._beats = self._beats + 1 if self._client.open_replies else 0
        if self._beats == STUCK_BEATS:
            self.doubted.emit(stuck_engine(STUCK_BEATS))

    def _on_woke(self, slept_s: float) -> None:
        """See at once whether engine and device are still there, not at the next message."""
        if not self._client.is_ready:
            return
        self._client.request_status()
        replies = len(self._client.open_replies)
        if replies:
            minutes = max(1, round(slept_s / 60))
            words = tr_count(
                "The computer slept for {count} minute. The reply goes on.",
                "The computer slept for {count} minutes. The reply goes on.",
                minutes,
            )
            self.said.emit(words, "info")
