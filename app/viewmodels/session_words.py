"""Session states in words: what the engine does, and what went wrong. Pure."""

from dataclasses import dataclass
from typing import Literal

from app.services.engine_client import EngineClient
from app.services.job_state import JobState
from app.services.model_library import ModelEntry
from app.services.outcome import ProcessOutcome
from app.wording import again, figures, tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode


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
    """

    kind: Literal["stopped", "silent", "load"]
    sentence: str
    hint: str = ""
    last_log: str = ""
    can_restart: bool = False
    can_shrink: bool = False


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
    status = client.last_status
    for op, choice in sorted((status.kernels if status else {}).items()):
        facts.append((tr("Kernel for {op}", op=op), choice))
    return tuple(facts)


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
