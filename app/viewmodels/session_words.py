"""Session states in words: the pill, and what went wrong. Pure."""

from dataclasses import dataclass
from typing import Literal

from app.services.engine_client import EngineClient
from app.services.job_state import JobState
from app.services.outcome import ProcessOutcome
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode

PillState = Literal["off", "loading", "moving", "ready", "generating", "yielded", "error"]


@dataclass(frozen=True, slots=True)
class Pill:
    """The state pill: a key of `app.widgets.chips.STATES`, own words or "", share done or None."""

    state: PillState
    text: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, ready to be shown.

    Attributes:
        kind: "stopped" the engine is gone, "silent" it does not answer, "load" a model was refused.
        sentence: the cause.
        hint: what to do, or "".
        last_log: last line of the engine's log, or "".
        can_restart: whether a restart button belongs there.
        can_shrink: whether "restart with 10 % smaller cache" could help.
    """

    kind: Literal["stopped", "silent", "load"]
    sentence: str
    hint: str = ""
    last_log: str = ""
    can_restart: bool = False
    can_shrink: bool = False


def pill_of(
    client: EngineClient, problem: Problem | None, job: JobState | None, share: float | None
) -> Pill:
    """Choose the pill. `job` prepares the built-in model; `share` is the load's progress."""
    if problem is not None and problem.kind == "stopped":
        return Pill("error")
    if problem is not None and problem.kind == "silent":
        return Pill("error", tr("Not responding"))
    if job is not None:
        return _with_share("loading", tr("Preparing"), job.share)
    if not client.process.is_running:
        return Pill("off")
    if client.process.is_stopping:
        return Pill("loading", tr("Stopping"))
    if not client.is_ready:
        return Pill("loading", tr("Starting engine"))
    if share is not None or client.state is m.EngineState.LOADING:
        return _with_share("loading", tr("Loading"), share)
    states: dict[m.EngineState, PillState] = {
        m.EngineState.READY: "ready",
        m.EngineState.GENERATING: "generating",
        m.EngineState.MOVING: "moving",
    }
    if client.state in states:
        return Pill(states[client.state])
    return Pill("off", tr("No model"))


def _with_share(state: PillState, words: str, share: float | None) -> Pill:
    if share is None:
        return Pill(state, words)
    return Pill(state, tr("{doing} {share} %", doing=words, share=int(share * 100)), share)


def lost_engine(outcome: ProcessOutcome, too_often: bool) -> Problem:
    """Say why the engine ended; its own last error, if it wrote one, beats our guess."""
    error = _error_of(outcome)
    sentence, hint = outcome.sentence, ""
    if error is not None:
        sentence = f"{outcome.sentence} {error.message}"
        hint = error.hint
    if error is not None and error.code is ErrorCode.DEVICE and not hint:
        hint = tr("Try a smaller expert cache; if the device stays away, restart the computer.")
    if too_often:
        hint = tr(
            "It stopped three times within five minutes. The log says more; "
            "a restart may end the same way."
        )
    return Problem(
        kind="stopped",
        sentence=sentence,
        hint=hint,
        last_log=outcome.last_log,
        can_restart=True,
        can_shrink=error is None or error.code is not ErrorCode.PROTOCOL,
    )


def silent_engine() -> Problem:
    """The engine runs and says nothing."""
    return Problem(
        kind="silent",
        sentence=tr("The engine has not answered for ten seconds."),
        hint=tr("It may recover; a restart ends the present reply, its text is kept."),
        can_restart=True,
    )


def refused_load(error: m.Error) -> Problem:
    """A model or its preparation failed; the engine is well."""
    return Problem(
        kind="load",
        sentence=error.message,
        hint=error.hint,
        can_restart=error.code is ErrorCode.PROTOCOL,
    )


def _error_of(outcome: ProcessOutcome) -> m.Error | None:
    try:
        event = m.decode_event(outcome.error_line.encode())
    except EngineError:
        return None
    return event if isinstance(event, m.Error) else None
