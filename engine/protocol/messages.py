"""Every message between app and engine, as msgspec structs tagged by their `type`.

Commands go from the app to the engine, events the other way; jobs use the same events. One JSON
object per line. Unknown fields are ignored, so that a newer peer of the same major version can add
some. Units are in the names: `_bytes`, `_tokens`, `_s`, `_gbps` (1e9 bytes/s).
"""

import msgspec

from engine.protocol.commands import (
    Cancel,
    CountTokens,
    Generate,
    GetStatus,
    Hello,
    Load,
    Resize,
    SetPolicy,
    Shutdown,
    Unload,
)
from engine.protocol.data import (
    PROTOCOL_VERSION,
    Budget,
    ChatMessage,
    DeviceInfo,
    DeviceStatus,
    EngineState,
    FinishReason,
    MissPolicy,
    ModelInfo,
    Part,
    Pool,
    Sampling,
    Tool,
    Trace,
    Usage,
)
from engine.protocol.errors import EngineError, InvalidRequest
from engine.protocol.events import (
    CacheMap,
    Error,
    Finished,
    Heartbeat,
    JobDone,
    Loaded,
    Notice,
    ProfilePoint,
    Progress,
    Ready,
    ResizeApplied,
    ResizePending,
    ResizePreview,
    ResizeRefused,
    Started,
    StateChanged,
    Stats,
    Status,
    TokenCount,
    TokenDelta,
    ToolCallDelta,
    Unloaded,
)

__all__ = [
    "PROTOCOL_VERSION",
    "Budget",
    "CacheMap",
    "Cancel",
    "ChatMessage",
    "Command",
    "CountTokens",
    "DeviceInfo",
    "DeviceStatus",
    "EngineState",
    "Error",
    "Event",
    "FinishReason",
    "Finished",
    "Generate",
    "GetStatus",
    "Heartbeat",
    "Hello",
    "JobDone",
    "Load",
    "Loaded",
    "MissPolicy",
    "ModelInfo",
    "Notice",
    "Part",
    "Pool",
    "ProfilePoint",
    "Progress",
    "Ready",
    "Resize",
    "ResizeApplied",
    "ResizePending",
    "ResizePreview",
    "ResizeRefused",
    "Sampling",
    "SetPolicy",
    "Shutdown",
    "Started",
    "StateChanged",
    "Stats",
    "Status",
    "TokenCount",
    "TokenDelta",
    "Tool",
    "ToolCallDelta",
    "Trace",
    "Unload",
    "Unloaded",
    "Usage",
    "decode_command",
    "decode_event",
    "encode",
    "error_event",
]

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
