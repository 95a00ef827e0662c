"""What messages are made of: enums, and the structs that stand inside commands and events.

Units are in the names: `_bytes`, `_tokens`, `_s`, `_gbps` (1e9 bytes/s). Public names are those of
`engine.protocol.messages`.
"""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from engine.protocol.errors import InvalidRequest

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Common struct options of everything on the wire."""


class Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common struct options of everything inside a message."""


class MissPolicy(StrEnum):
    """How a layer's cache misses are served in decode."""

    TWO_ENDED = "two_ended"  # CPU and link take from both ends of one list until it is empty
    SPLIT = "split"  # divided beforehand, by measured rates
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


class Part(Data, frozen=True, kw_only=True):
    """One piece of a message: text, or a file by path (never bytes)."""

    kind: Literal["text", "reasoning", "tool_call", "tool_result", "image"] = "text"
    text: str = ""
    path: str = ""
    name: str = ""  # tool name, or file name
    call_id: str = ""


class ChatMessage(Data, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]


class Sampling(Data, frozen=True, kw_only=True):
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


class Tool(Data, frozen=True, kw_only=True):
    """A function the model may call; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Budget(Data, frozen=True, kw_only=True):
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


class Pool(Data, frozen=True, kw_only=True):
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
    grows_to_units: int = 0  # KV: what one reply can make it; 0 = it does not grow by itself


class DeviceInfo(Data, frozen=True, kw_only=True):
    """A device that `Load.devices` may name."""

    name: str  # "cpu", "cuda:0"
    id: str = ""  # of the card itself, the same in every slot and after every start; "" = unknown
    title: str  # "AMD Ryzen 9 9950X3D", "NVIDIA GeForce RTX 5090"
    total_bytes: int
    free_bytes: int
    emulated: bool = False  # memory budget is emulated (CPU-only)


class DeviceStatus(Data, frozen=True, kw_only=True):
    """A device and the pools on it; the sum of `used_bytes` is `total_bytes`."""

    device: DeviceInfo
    total_bytes: int
    pools: tuple[Pool, ...] = ()


class ModelInfo(Data, frozen=True, kw_only=True):
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


class Usage(Data, frozen=True, kw_only=True):
    """Token counts of one reply."""

    prompt_tokens: int = 0
    reply_tokens: int = 0
    reused_tokens: int = 0


class Trace(Data, frozen=True, kw_only=True):
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
    fill_bytes: int = 0  # over the link, in the decode steps that this reply took part in
    cpu_bytes: int = 0  # read by the CPU's expert kernel, likewise
