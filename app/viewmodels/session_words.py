"""Session states in words: what the engine does, and what went wrong. Pure."""

from dataclasses import dataclass
from typing import Literal

from app.services.engine_client import EngineClient
from app.services.job_state import JobState
from app.services.model_library import ModelEntry
from app.services.outcome import EndCause, ProcessOutcome
from app.wording import Phrase, again, figures, tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model in the picker: its folder, name, and facts of one line."""

    path: str
    name: str
    facts: str = ""


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
        pill: words of the state pill, "" = its own.
    """

    kind: Literal["stopped", "silent", "load"]
    sentence: str
    hint: str = ""
    last_log: str = ""
    can_restart: bool = False
    can_shrink: bool = False
    pill: str = ""


def state_of(
    client: EngineClient, job: JobState | None, share: float | None
) -> tuple[m.EngineState, str, float | None]:
    """Return the state to show, words instead of its own ones or "", and the share done.

    Args:
        client: the engine.
        job: prepares the model that came with the app.
        share: progress of the load that was sent.
    """
    loading = m.EngineState.LOADING
    if job is not None:
        return loading, _with_share(tr("Preparing"), job.share), job.share
    if not client.process.is_running:
        return m.EngineState.IDLE, "", None
    if client.process.is_stopping:
        return m.EngineState.STOPPING, tr("Stopping"), None
    if not client.is_ready:
        return loading, tr("Starting engine"), None
    if share is not None or client.state is loading:
        return loading, _with_share(tr("Loading"), share), share
    return client.state, "", None


def _with_share(words: str, share: float | None) -> str:
    if share is None:
        return words
    return tr("{doing} {share} %", doing=words, share=int(share * 100))


def choice_of(entry: ModelEntry) -> ModelChoice:
    """Return how a model stands in the picker."""
    size = f"{entry.total_bytes / 1e9:.1f} GB"
    if entry.total_bytes < 1e9:
        size = f"{entry.total_bytes / 1e6:.0f} MB"
    facts = [fact for fact in (figures.weight_format(entry.quant), size) if fact]
    if entry.kind == "builtin_source":
        facts.append(tr("prepared when first loaded"))
    return ModelChoice(str(entry.path), entry.name, " · ".join(facts))


STATE_WORDS: dict[m.EngineState, str] = {
    m.EngineState.IDLE: tr("No model"),
    m.EngineState.LOADING: tr("Loading"),
    m.EngineState.READY: tr("Ready"),
    m.EngineState.GENERATING: tr("Generating"),
    m.EngineState.MOVING: tr("Moving memory"),
    m.EngineState.STOPPING: tr("Stopping"),
}


def session_sentence(state: m.EngineState, detail: str, model: str) -> str:
    """Return state and model in one line."""
    words = detail or again(STATE_WORDS[state])
    return f"{model} · {words}" if model else words


def engine_facts(client: EngineClient) -> tuple[tuple[str, str], ...]:
    """Return what About says of the engine: names and values."""
    facts: list[tuple[str, str]] = []
    if client.version:
        facts.append((tr("Engine"), client.version))
    facts.append((tr("Engine program"), client.process.program.path))
    for device in client.devices:
        facts.append((tr("Device"), f"{device.name} · {device.title}"))
    return tuple(facts)


def kernel_facts(client: EngineClient) -> tuple[tuple[str, str], ...]:
    """Return which kernel the engine chose for each operation, and why."""
    status = client.last_status
    kernels = sorted((status.kernels if status else {}).items())
    return tuple((tr("Kernel for {op}", op=op), choice) for op, choice in kernels)


_PILLS: dict[EndCause, Phrase] = {
    EndCause.DEVICE: tr("GPU lost"),
    EndCause.MEMORY: tr("Out of memory"),
    EndCause.NOT_STARTED: tr("Engine missing"),
}
_HINTS: dict[EndCause, Phrase] = {
    EndCause.DEVICE: tr("Restart the engine; if the device stays away, restart the computer."),
    EndCause.MEMORY: tr("A restart with a smaller cache leaves room; close other programs first."),
    EndCause.KILLED: tr("Close other programs, or restart with a smaller cache."),
    EndCause.NOT_STARTED: tr(
        "Install FreeToken again, or choose another engine program in Settings."
    ),
}
_NO_SHRINK = (EndCause.PROTOCOL, EndCause.NOT_STARTED)
_DOING: dict[m.EngineState, Phrase] = {
    m.EngineState.LOADING: tr("It was loading a model."),
    m.EngineState.GENERATING: tr("It was writing a reply."),
    m.EngineState.MOVING: tr("It was moving memory."),
}


def lost_engine(outcome: ProcessOutcome, too_often: bool, slept: bool = False) -> Problem:
    """Say why the engine ended and what helps; the engine's own hint beats ours.

    Args:
        outcome: how it ended, explained.
        too_often: it was the third time within five minutes.
        slept: the computer woke up just before.
    """
    error, cause = outcome.error, outcome.cause
    hint: str = error.hint if error is not None else ""
    hint = hint or _HINTS.get(cause, "")
    if slept and cause is EndCause.DEVICE:
        hint = tr(
            "The computer was asleep just before: drivers lose devices then. Restart the engine."
        )
    if too_often:
        hint = tr(
            "It stopped three times within five minutes. The log says more; "
            "a restart may end the same way."
        )
    return Problem(
        kind="stopped",
        sentence=outcome.sentence,
        hint=hint,
        last_log=outcome.last_log,
        can_restart=True,
        can_shrink=cause not in _NO_SHRINK,
        pill=_PILLS.get(cause, ""),
    )


def silent_engine(state: m.EngineState = m.EngineState.READY) -> Problem:
    """The engine runs and says nothing; `state` is what it did last."""
    sentence: str = tr("The engine has not answered for ten seconds.")
    if state in _DOING:
        sentence = tr("{silence} {doing}", silence=sentence, doing=_DOING[state])
    return Problem(
        kind="silent",
        sentence=sentence,
        hint=tr("It may recover; a restart ends the present reply, its text is kept."),
        can_restart=True,
        pill=tr("Not responding"),
    )


def stuck_engine(seconds: int) -> Problem:
    """The engine is alive, and its reply does not move."""
    return Problem(
        kind="silent",
        sentence=tr("The engine lives, but no reply has moved for {time} s.", time=seconds),
        hint=tr("A very long prompt may take that long. Else restart; what has come is kept."),
        can_restart=True,
        pill=tr("Not moving"),
    )


def refused_load(error: m.Error) -> Problem:
    """A model or its preparation failed; the engine is well."""
    return Problem(
        kind="load",
        sentence=error.message,
        hint=error.hint,
        can_restart=error.code in (ErrorCode.PROTOCOL, ErrorCode.DEVICE),
    )
