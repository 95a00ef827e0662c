"""Every message between app and engine, as msgspec structs tagged by their `type`.

Commands go from the app to the engine, events the other way; jobs use the same events. One JSON
object per line. Unknown fields are ignored, so that a newer peer of the same major version can add
some. Units are in the names: `_bytes`, `_tokens`, `_s`, `_gbps` (1e9 bytes/s).
"""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from engine.protocol.errors import EngineError, ErrorCode, InvalidRequest

PROTOCOL_VERSION = 1


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Common struct options of everything on the wire."""


class _Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common struct options of everything inside a message."""


class MissPolicy(StrEnum):
    """How a layer's cache misses are served in decode."""

    SPLIT = "split"
    FILL_ONLY = "fill_only"
    CPU_ONLY = "cpu_only"


class EngineState(StrEnum):
    """What the engine is doing; shown in the state pill."""

    IDLE = "idle"  # no model
    LOADING = "loading"
    READY = "ready"
    GENERATING = "generating"
    MOVING = "moving"  # re-dividing memory
    STOPPING = "stopping"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # end token or stop string
    LENGTH = "length"  # max_tokens or context full
    CANCELLED = "cancelled"
    ERROR = "error"


# --- data inside messages -------------------------------------------------------------------


class Part(_Data, frozen=True, kw_only=True):
    """One piece of a message: text, or a file by path (never bytes)."""

    kind: Literal["text", "reasoning", "tool_call", "tool_result", "image"] = "text"
    text: str = ""
    path: str = ""
    name: str = ""  # tool name, or file name
    call_id: str = ""


class ChatMessage(_Data, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]


class Sampling(_Data, frozen=True, kw_only=True):
    """How the next token is chosen. Defaults = plain greedy-free sampling without penalties."""

    temperature: float = 1.0  # 0 = greedy
    top_k: int = 0  # 0 = off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def check(self) -> None:
        """Raise InvalidRequest naming the first field that is out of range."""
        ranges = {
            "temperature": (0.0, 5.0),
            "top_k": (0, 1_000_000),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (0.1, 5.0),
            "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0),
            "max_tokens": (1, 1_000_000),
        }
        for field, (low, high) in ranges.items():
            value = getattr(self, field)
            if not low <= value <= high:
                raise InvalidRequest(f"{field} is {value}; it must lie between {low} and {high}.")
        if any(not text for text in self.stop):
            raise InvalidRequest("A stop string is empty.")


class Tool(_Data, frozen=True, kw_only=True):
    """A function the model may call; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Budget(_Data, frozen=True, kw_only=True):
    """How device memory shall be divided at load. None = chosen by the engine.

    Attributes:
        total_bytes: memory the engine may use on the device; on a CPU-only machine an emulated
            budget.
        kv_tokens: context capacity over all requests.
        expert_slots: experts held on the device.
    """

    total_bytes: int | None = None
    kv_tokens: int | None = None
    expert_slots: int | None = None


class Pool(_Data, frozen=True, kw_only=True):
    """One part of the device's memory. The window takes every bound from here.

    `used_bytes` is what the pool takes of the device, `unit_bytes` the size of one unit (slot,
    token); `units`, `min_units`, `max_units` are its size and bounds right now, where `max_units`
    counts what a resize may ask for with the other pool at its floor. Fixed pools have
    min == max == units.
    """

    name: Literal["weights", "kv", "experts", "runtime", "free", "other"]
    used_bytes: int
    unit_bytes: int = 1
    units: int = 0
    min_units: int = 0
    max_units: int = 0
    busy_units: int = 0  # KV: tokens in use; experts: slots filled


class DeviceInfo(_Data, frozen=True, kw_only=True):
    """A device that `Load.devices` may name."""

    name: str  # "cpu", "cuda:0"
    title: str  # "AMD Ryzen 9 9950X3D", "NVIDIA GeForce RTX 5090"
    total_bytes: int
    free_bytes: int
    emulated: bool = False  # memory budget is emulated (CPU-only)


class DeviceStatus(_Data, frozen=True, kw_only=True):
    """A device and the pools on it; the sum of `used_bytes` is `total_bytes`."""

    device: DeviceInfo
    total_bytes: int
    pools: tuple[Pool, ...] = ()


class ModelInfo(_Data, frozen=True, kw_only=True):
    """Facts of a loaded model."""

    path: str
    name: str
    model_type: str
    quant: str
    num_layers: int
    num_moe_layers: int
    num_experts: int
    top_k: int
    hidden_size: int
    context_tokens: int  # the model's limit
    record_bytes: int  # one expert
    num_records: int  # experts over all layers
    pool_bytes: int
    total_params: int = 0
    active_params: int = 0
    chunk_tokens: int = 0
    sampling: Sampling | None = None  # the checkpoint's own generation_config
    devices: tuple[str, ...] = ()
    load_s: float = 0.0


class Usage(_Data, frozen=True, kw_only=True):
    """Token counts of one reply."""

    prompt_tokens: int = 0
    reply_tokens: int = 0
    reused_tokens: int = 0


class Trace(_Data, frozen=True, kw_only=True):
    """Where one reply's time and bytes went. Rates exclude prefill and waiting."""

    queued_s: float = 0.0
    ttft_s: float = 0.0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    decode_s: float = 0.0
    hit_share: float = 0.0  # of decode routes: served from the cache
    fill_share: float = 0.0  # copied to the device for this use
    cpu_share: float = 0.0  # computed in host memory
    fill_gbps: float = 0.0
    cpu_gbps: float = 0.0


# --- commands: app -> engine ----------------------------------------------------------------


class Hello(_Message, frozen=True, kw_only=True, tag="hello"):
    """First line of a session."""

    protocol_version: int = PROTOCOL_VERSION
    client: str = ""


class Load(_Message, frozen=True, kw_only=True, tag="load"):
    """Load an FTW folder. Answers: Progress..., Loaded or Error."""

    id: str
    model: str
    devices: tuple[str, ...] = ("cpu",)
    budget: Budget | None = None
    policy: MissPolicy = MissPolicy.SPLIT
    chunk_tokens: int = 0  # prefill chunk; 0 = the engine's choice


class Unload(_Message, frozen=True, kw_only=True, tag="unload"):
    """Free the model. Answers: Unloaded."""

    id: str


class Generate(_Message, frozen=True, kw_only=True, tag="generate"):
    """Answer a conversation. Answers: Started, TokenDelta..., Finished; Error before Finished.

    With `continue_last` the last assistant message is continued instead of a new one begun.
    """

    id: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    sampling: Sampling = Sampling()
    continue_last: bool = False
    template_args: dict[str, Any] = {}


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """End the request or load with this id at the next safe point; unknown ids are ignored."""

    id: str


class Resize(_Message, frozen=True, kw_only=True, tag="resize"):
    """Re-divide the device live; None leaves a pool as it is.

    Answers: ResizePreview if `preview`, else ResizePending, then ResizeApplied or ResizeRefused.
    """

    id: str
    kv_tokens: int | None = None
    expert_slots: int | None = None
    preview: bool = False
    device: str = ""


class SetPolicy(_Message, frozen=True, kw_only=True, tag="set_policy"):
    """Choose how misses are served from the next safe point on. Answers: Status."""

    id: str
    policy: MissPolicy


class CountTokens(_Message, frozen=True, kw_only=True, tag="count_tokens"):
    """Count what a conversation would cost. Answers: TokenCount."""

    id: str
    messages: tuple[ChatMessage, ...]


class GetStatus(_Message, frozen=True, kw_only=True, tag="get_status"):
    """Ask for a Status now."""

    id: str = ""


class Shutdown(_Message, frozen=True, kw_only=True, tag="shutdown"):
    """Stop now: open requests end as cancelled, then the process exits with code 0."""


Command = (
    Hello
    | Load
    | Unload
    | Generate
    | Cancel
    | Resize
    | SetPolicy
    | CountTokens
    | GetStatus
    | Shutdown
)


# --- events: engine -> app ------------------------------------------------------------------


class Ready(_Message, frozen=True, kw_only=True, tag="ready"):
    """Answer to Hello."""

    protocol_version: int = PROTOCOL_VERSION
    engine_version: str = ""
    pid: int = 0
    devices: tuple[DeviceInfo, ...] = ()


class Heartbeat(_Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Once a second: alive, even while loading."""

    uptime_s: float


class StateChanged(_Message, frozen=True, kw_only=True, tag="state"):
    """The engine's state, when it changes."""

    state: EngineState
    detail: str = ""


class Progress(_Message, frozen=True, kw_only=True, tag="progress"):
    """Progress of a load or job. `total_bytes` 0 = not known yet."""

    id: str
    stage: str  # "check", "convert", "verify", "read", "build", "measure"
    done_bytes: int = 0
    total_bytes: int = 0
    detail: str = ""


class Loaded(_Message, frozen=True, kw_only=True, tag="loaded"):
    """The model is ready."""

    id: str
    model: ModelInfo


class Unloaded(_Message, frozen=True, kw_only=True, tag="unloaded"):
    """No model is loaded any more."""

    id: str = ""


class Started(_Message, frozen=True, kw_only=True, tag="started"):
    """The request left the queue."""

    id: str
    prompt_tokens: int
    reused_tokens: int = 0


class TokenDelta(_Message, frozen=True, kw_only=True, tag="delta"):
    """More of a reply: whole characters, never empty. Coalesced."""

    id: str
    kind: Literal["text", "reasoning"] = "text"
    text: str
    num_tokens: int = 1  # tokens that this delta accounts for


class ToolCallDelta(_Message, frozen=True, kw_only=True, tag="tool_call"):
    """A tool call, whole: name and arguments (JSON text)."""

    id: str
    call_id: str
    name: str
    arguments: str


class Finished(_Message, frozen=True, kw_only=True, tag="finished"):
    """The reply is over; exactly once per Generate."""

    id: str
    reason: FinishReason
    usage: Usage = Usage()
    trace: Trace = Trace()


class Stats(_Message, frozen=True, kw_only=True, tag="stats"):
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
    context_used_tokens: int = 0
    context_capacity_tokens: int = 0


class CacheMap(_Message, frozen=True, kw_only=True, tag="cache_map"):
    """Heat of the expert cache; base64 of uint8 [num_layers, num_experts], row by row."""

    num_layers: int
    num_experts: int
    hits: str  # uses in the last minute, scaled so that 255 = `max_hits`
    resident: str  # 1 = in a slot
    max_hits: int = 0


class ResizePreview(_Message, frozen=True, kw_only=True, tag="resize_preview"):
    """What a resize would do; nothing has changed."""

    id: str
    kv_tokens: int
    expert_slots: int
    kv_bytes: int
    expert_bytes: int
    free_bytes: int
    fits: bool
    reason: str = ""


class ResizePending(_Message, frozen=True, kw_only=True, tag="resize_pending"):
    """Accepted; waits for the next safe point."""

    id: str
    waiting_for: str = ""


class ResizeApplied(_Message, frozen=True, kw_only=True, tag="resize_applied"):
    """Done: the sizes that hold now, and the milliseconds of the pause itself."""

    id: str
    kv_tokens: int
    expert_slots: int
    kv_bytes: int
    expert_bytes: int
    pause_ms: float
    waited_ms: float = 0.0
    evicted: int = 0


class ResizeRefused(_Message, frozen=True, kw_only=True, tag="resize_refused"):
    """Nothing changed; why, and the nearest sizes that would fit."""

    id: str
    reason: str
    kv_tokens: int
    expert_slots: int


class Status(_Message, frozen=True, kw_only=True, tag="status"):
    """Devices and pools; after each change and on request."""

    id: str = ""
    state: EngineState = EngineState.IDLE
    devices: tuple[DeviceStatus, ...] = ()
    model: ModelInfo | None = None
    policy: MissPolicy = MissPolicy.SPLIT
    kernels: dict[str, str] = {}  # op -> chosen implementation and why


class TokenCount(_Message, frozen=True, kw_only=True, tag="token_count"):
    """Answer to CountTokens."""

    id: str
    num_tokens: int


class Notice(_Message, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know: a slower path, a stale profile."""

    code: str
    message: str
    level: Literal["info", "warning"] = "info"


class Error(_Message, frozen=True, kw_only=True, tag="error"):
    """A failure; `id` names the command or request it belongs to, if any."""

    code: ErrorCode
    message: str
    hint: str = ""
    id: str = ""


class ProfilePoint(_Message, frozen=True, kw_only=True, tag="profile_point"):
    """One measured point of the profiler job, for the live curves."""

    link: Literal["fill", "cpu", "joint_fill", "joint_cpu"]
    size_bytes: int
    gbps: float
    threads: int = 0


class JobDone(_Message, frozen=True, kw_only=True, tag="job_done"):
    """A job ended well; `result` depends on the job (path, figures)."""

    job: str
    result: dict[str, Any] = {}


Event = (
    Ready
    | Heartbeat
    | StateChanged
    | Progress
    | Loaded
    | Unloaded
    | Started
    | TokenDelta
    | ToolCallDelta
    | Finished
    | Stats
    | CacheMap
    | ResizePreview
    | ResizePending
    | ResizeApplied
    | ResizeRefused
    | Status
    | TokenCount
    | Notice
    | Error
    | ProfilePoint
    | JobDone
)

_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(Command)
_events = msgspec.json.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    """Return the message as one line, line end included."""
    return _encoder.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    """Read one line sent by the app. Raises InvalidRequest with the reason."""
    try:
        return _commands.decode(line)
    except msgspec.MsgspecError as problem:
        raise InvalidRequest(f"Not a command: {problem}.") from problem


def decode_event(line: bytes) -> Event:
    """Read one line sent by the engine. Raises InvalidRequest with the reason."""
    try:
        return _events.decode(line)
    except msgspec.MsgspecError as problem:
        raise InvalidRequest(f"Not an event: {problem}.") from problem


def error_event(problem: EngineError, message_id: str = "") -> Error:
    """Turn an exception into its event."""
    return Error(
        code=problem.code,
        message=problem.message,
        hint=problem.hint,
        id=message_id or problem.request_id,
    )
