"""Commands: what the app asks of the engine."""

from typing import Any

from engine.protocol.data import (
    PROTOCOL_VERSION,
    Budget,
    ChatMessage,
    Message,
    MissPolicy,
    Sampling,
    Tool,
)


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First line of a session."""

    protocol_version: int = PROTOCOL_VERSION
    client: str = ""


class Load(Message, frozen=True, kw_only=True, tag="load"):
    """Load an FTW folder. Answers: Progress..., Loaded or Error."""

    id: str
    model: str
    devices: tuple[str, ...] = ("cpu",)
    budget: Budget | None = None
    policy: MissPolicy = MissPolicy.TWO_ENDED
    chunk_tokens: int = 0  # prefill chunk; 0 = the engine's choice


class Unload(Message, frozen=True, kw_only=True, tag="unload"):
    """Free the model. Answers: Unloaded."""

    id: str


class Generate(Message, frozen=True, kw_only=True, tag="generate"):
    """Answer a conversation. Answers: Started, TokenDelta..., Finished; Error before Finished.

    With `continue_last` the last assistant message is continued instead of a new one begun.
    """

    id: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    sampling: Sampling = Sampling()
    continue_last: bool = False
    template_args: dict[str, Any] = {}


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """End the request or load with this id at the next safe point; unknown ids are ignored."""

    id: str


class Resize(Message, frozen=True, kw_only=True, tag="resize"):
    """Re-divide the device live; None leaves a pool as it is.

    Answers: ResizePreview if `preview`, else ResizePending, then ResizeApplied or ResizeRefused.
    """

    id: str
    kv_tokens: int | None = None
    expert_slots: int | None = None
    preview: bool = False
    device: str = ""
    loan: bool = False  # for other programs and for a while; not what a person chose


class SetPolicy(Message, frozen=True, kw_only=True, tag="set_policy"):
    """Choose how misses are served from the next safe point on. Answers: Status."""

    id: str
    policy: MissPolicy


class CountTokens(Message, frozen=True, kw_only=True, tag="count_tokens"):
    """Count what a conversation would cost. Answers: TokenCount."""

    id: str
    messages: tuple[ChatMessage, ...]


class GetStatus(Message, frozen=True, kw_only=True, tag="get_status"):
    """Ask for a Status now."""

    id: str = ""


class Shutdown(Message, frozen=True, kw_only=True, tag="shutdown"):
    """Stop now: open requests end as cancelled, then the process exits with code 0."""
