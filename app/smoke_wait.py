"""Waiting for Qt signals, one after the other, with time limits; for the smoke run.

Nested event loops, no polling. The end of the engine ends every wait.
"""

from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QTimer, SignalInstance

from app.services.engine_client import EngineClient
from app.services.outcome import ProcessOutcome
from engine.protocol import messages as m


class StepFailed(Exception):
    """A step did not do what it must; the message is a sentence."""


class Waiter:
    """Waits on behalf of a step.

    Args:
        client: its unexpected end fails the wait at once; None = nothing here needs an engine.

    Attributes:
        last_error: sentence of the engine's last failure, or "".
    """

    def __init__(self, client: EngineClient | None = None) -> None:
        self._lost = self.last_error = ""
        self._loops: list[QEventLoop] = []
        if client is not None:
            client.stopped.connect(self._on_stopped)
            client.failed.connect(self._on_failed)

    def signal(
        self,
        signal: SignalInstance,
        what: str,
        timeout_s: float = 60.0,
        check: Callable[..., bool] | None = None,
        act: Callable[[], object] | None = None,
    ) -> tuple[object, ...]:
        """Call `act`, then wait for a signal whose payload passes `check`.

        Returns: the payload.

        Raises:
            StepFailed: it did not come in time, or the engine ended; `what` names it.
        """
        found: list[tuple[object, ...]] = []
        loop = QEventLoop()

        def take(*payload: object) -> None:
            if not found and (check is None or check(*payload)):
                found.append(payload)
                loop.quit()

        signal.connect(take)
        try:
            self._run(loop, what, timeout_s, act, lambda: bool(found))
        finally:
            signal.disconnect(take)
        return found[0]

    def until(
        self, condition: Callable[[], bool], changes: SignalInstance, what: str, timeout_s: float
    ) -> None:
        """Wait until `condition` holds; it is looked at after each emission of `changes`."""
        if not condition():
            self.signal(changes, what, timeout_s, lambda *_: condition())

    def forgive(self) -> None:
        """Go on after an end of the engine that was part of the plan."""
        self._lost = ""

    def _run(
        self,
        loop: QEventLoop,
        what: str,
        timeout_s: float,
        act: Callable[[], object] | None,
        is_done: Callable[[], bool],
    ) -> None:
        if self._lost:
            raise StepFailed(self._lost)
        limit = QTimer()
        limit.setSingleShot(True)
        limit.timeout.connect(loop.quit)
        limit.start(round(timeout_s * 1000))
        self._loops.append(loop)
        try:
            if act is not None:
                act()
            if not is_done() and not self._lost:
                loop.exec()
        finally:
            self._loops.remove(loop)
            limit.stop()
        if not is_done():
            raise StepFailed(self._lost or f"{what} did not happen within {timeout_s:.0f} s.")

    def _on_failed(self, event: m.Error) -> None:
        self.last_error = event.message

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        if outcome.unexpected:
            self._lost = f"{outcome.sentence} {outcome.last_log}".strip()
            for loop in self._loops:
                loop.quit()
