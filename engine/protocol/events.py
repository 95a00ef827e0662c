"""Events: what the engine and its jobs tell the app."""

from typing import Any, Literal

from engine.protocol.data import (
    PROTOCOL_VERSION,
    DeviceInfo,
    DeviceStatus,
    EngineState,
    FinishReason,
    Message,
    MissPolicy,
    ModelInfo,
    Trace,
    Usage,
)
from engine.protocol.errors import ErrorCode


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """Answer to Hello."""

    protocol_version: int = PROTOCOL_VERSION
    engine_version: str = ""
    pid: int = 0
    devices: tuple[DeviceInfo, ...] = ()


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Once a second: alive, even while loading."""

    uptime_s: float


class StateChanged(Message, frozen=True, kw_only=True, tag="state"):
    """The engine's state, when it changes."""

    state: EngineState
    detail: str = ""


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """Progress of a load or job. `total_bytes` 0 = not known yet."""

    id: str
    stage: str  # "check", "convert", "verify", "read", "build", "measure"
    done_bytes: int = 0
    total_bytes: int = 0
    detail: str = ""


class Loaded(Message, frozen=True, kw_only=True, tag="loaded"):
    """The model is ready."""

    id: str
    model: ModelInfo


class Unloaded(Message, frozen=True, kw_only=True, tag="unloaded"):
    """No model is loaded any more."""

    id: str = ""


class Started(Message, frozen=True, kw_only=True, tag="started"):
    """The request left the queue."""

    id: str
    prompt_tokens: int
    reused_tokens: int = 0


class TokenDelta(Message, frozen=True, kw_only=True, tag="delta"):
    """More of a reply: whole characters, never empty. Coalesced."""

    id: str
    kind: Literal["text", "reasoning"] = "text"
    text: str
    num_tokens: int = 1  # tokens that this delta accounts for


class ToolCallDelta(Message, frozen=True, kw_only=True, tag="tool_call"):
    """A tool call, whole: name and arguments (JSON text)."""

    id: str
    call_id: str
    name: str
    arguments: str


class Finished(Message, frozen=True, kw_only=True, tag="finished"):
    """The reply is over; exactly once per Generate."""

    id: str
    reason: FinishReason
    usage: Usage = Usage()
    trace: Trace = Trace()


class Stats(Message, frozen=True, kw_only=True, tag="stats"):
    """Rates over the last interval and sums since load; 2-4 Hz while a model is loaded."""

    interval_s: float
    running: int = 0
    waiting: int = 0
    decode_tokens_per_s: float = 0.0
    prefill_tokens_per_s: float = 0.0
    hit_share: float = 0.0
    fill_share: float = 0.0
    cpu_share: float = 0.0
    fill_gbps: float = 0.0
    cpu_gbps: float = 0.0
    routes: int = 0  # decode routes in the interval
    total_hits: int = 0
    total_fills: int = 0
    total_cpu: int = 0
    total_tokens: int = 0
    warm_up_bytes: int = 0  # copied into free slots in idle moments since load; no fills of misses
    context_used_tokens: int = 0
    context_capacity_tokens: int = 0


class CacheMap(Message, frozen=True, kw_only=True, tag="cache_map"):
    """Heat of the expert cache; base64 of uint8 [num_layers, num_experts], row by row."""

    num_layers: int
    num_experts: int
    hits: str  # uses in the last minute, scaled so that 255 = `max_hits`
    resident: str  # 1 = in a slot
    max_hits: int = 0


class ResizePreview(Message, frozen=True, kw_only=True, tag="resize_preview"):
    """What a resize would do; nothing has changed."""

    id: str
    kv_tokens: int
    expert_slots: int
    kv_bytes: int
    expert_bytes: int
    free_bytes: int
    fits: bool
    reason: str = ""


class ResizePending(Message, frozen=True, kw_only=True, tag="resize_pending"):
    """Accepted; waits for the next safe point."""

    id: str
    waiting_for: str = ""


class ResizeApplied(Message, frozen=True, kw_only=True, tag="resize_applied"):
    """Done: the sizes that hold now, and the milliseconds of the pause itself.

    With `taken_slots` and no id nobody asked: a reply needed more context, and the experts gave it.
    """

    id: str
    kv_tokens: int
    expert_slots: int
    kv_bytes: int
    expert_bytes: int
    pause_ms: float
    waited_ms: float = 0.0
    evicted: int = 0
    taken_slots: int = 0


class ResizeRefused(Message, frozen=True, kw_only=True, tag="resize_refused"):
    """Nothing changed; why, and the nearest sizes that would fit."""

    id: str
    reason: str
    kv_tokens: int
    expert_slots: int


class Status(Message, frozen=True, kw_only=True, tag="status"):
    """Devices and pools; after each change and on request."""

    id: str = ""
    state: EngineState = EngineState.IDLE
    devices: tuple[DeviceStatus, ...] = ()
    model: ModelInfo | None = None
    policy: MissPolicy = MissPolicy.TWO_ENDED
    kernels: dict[str, str] = {}  # op -> chosen implementation and why


class TokenCount(Message, frozen=True, kw_only=True, tag="token_count"):
    """Answer to CountTokens."""

    id: str
    num_tokens: int


class Notice(Message, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know: a slower path, a stale profile."""

    code: str
    message: str
    level: Literal["info", "warning"] = "info"


class Error(Message, frozen=True, kw_only=True, tag="error"):
    """A failure; `id` names the command or request it belongs to, if any."""

    code: ErrorCode
    message: str
    hint: str = ""
    id: str = ""


class ProfilePoint(Message, frozen=True, kw_only=True, tag="profile_point"):
    """One measured point of the profiler job, for the live curves."""

    link: Literal["fill", "cpu", "joint_fill", "joint_cpu"]
    size_bytes: int
    gbps: float
    threads: int = 0


class JobDone(Message, frozen=True, kw_only=True, tag="job_done"):
    """A job ended well; `result` depends on the job (path, figures)."""

    job: str
    result: dict[str, Any] = {}
