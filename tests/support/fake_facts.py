"""Sizes, words and frames of the fake engine: what it says, not when. See fake_engine.py."""

import base64
import contextlib
import sys
import time
from pathlib import Path

from engine.protocol import messages as m

LAYERS, EXPERTS, TOP_K, RECORD_BYTES = 8, 32, 4, 110_592
KV_BYTES, WEIGHT_BYTES, RUNTIME_BYTES, TOTAL_BYTES = 2_048, 6 << 20, 2 << 20, 64 << 20
MIN_SLOTS, MAX_SLOTS, MIN_KV, MAX_KV = 2 * TOP_K, LAYERS * EXPERTS, 256, 8_192
WORDS = (
    "The",
    "small",
    "engine",
    "answers",
    "with",
    "words",
    "that",
    "mean",
    "nothing",
    "at",
    "all.",
)


def log(text: str) -> None:
    """Write a line to stderr, as the engine logs."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def hang() -> None:
    """Do nothing for ever, not even listen."""
    log("INFO fake: hanging")
    while True:
        time.sleep(3600)


class Out:
    """Messages to stdout, one line each."""

    def __init__(self) -> None:
        self._stream = sys.stdout.buffer

    def send(self, *messages: m.Event) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stream.write(b"".join(m.encode(message) for message in messages))
            self._stream.flush()

    def raw(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()


def pieces(reply: str, count: int) -> list[str]:
    """The tokens of a reply, the same each time."""
    if reply == "code":
        lines = [f"    value_{i} = compute({i})  # line {i}\n" for i in range(count)]
        return ["```python\n", *lines[: max(0, count - 2)], "```\n"][:count]
    words = WORDS if reply in ("words", "prose") else tuple(reply.split(" "))
    if reply == "prose":  # a paragraph of 60 words, a list, a listing, and so on
        breaks = ("\n\n", "\n\n- ", "\n- ", "\n\n```py\n", "\n```\n\n")
        return [
            breaks[i // 60 % len(breaks)] if i % 60 == 59 else f"{words[i % len(words)]} "
            for i in range(count)
        ]
    return [f"{words[i % len(words)]} " for i in range(count)]


def model_info(command: m.Load) -> m.ModelInfo:
    """Facts of the model that is never really loaded."""
    return m.ModelInfo(
        path=command.model,
        name=Path(command.model).name,
        model_type="qwen3_moe",
        quant="fp8_block",
        num_layers=LAYERS,
        num_moe_layers=LAYERS,
        num_experts=EXPERTS,
        top_k=TOP_K,
        hidden_size=256,
        context_tokens=4_096,
        record_bytes=RECORD_BYTES,
        num_records=MAX_SLOTS,
        pool_bytes=MAX_SLOTS * RECORD_BYTES,
        total_params=34_700_000,
        active_params=9_000_000,
        devices=command.devices,
        load_s=0.1,
    )


def status_frame(
    state: m.EngineState,
    model: m.ModelInfo | None,
    sizes: tuple[int, int],
    policy: m.MissPolicy,
    busy_tokens: int,
    command_id: str,
) -> m.Status:
    """A status; `sizes` are expert slots and KV tokens."""
    slots, kv_tokens = sizes
    pools: tuple[m.Pool, ...] = ()
    if model is not None:
        pools = (
            m.Pool(name="weights", used_bytes=WEIGHT_BYTES),
            m.Pool(
                name="kv",
                used_bytes=kv_tokens * KV_BYTES,
                unit_bytes=KV_BYTES,
                units=kv_tokens,
                min_units=MIN_KV,
                max_units=MAX_KV,
                busy_units=busy_tokens,
            ),
            m.Pool(
                name="experts",
                used_bytes=slots * RECORD_BYTES,
                unit_bytes=RECORD_BYTES,
                units=slots,
                min_units=MIN_SLOTS,
                max_units=MAX_SLOTS,
                busy_units=slots,
            ),
            m.Pool(name="runtime", used_bytes=RUNTIME_BYTES),
        )
    used = sum(pool.used_bytes for pool in pools)
    pools += (m.Pool(name="free", used_bytes=TOTAL_BYTES - used),)
    return m.Status(
        id=command_id,
        state=state,
        devices=(m.DeviceStatus(device=_device_of(model), total_bytes=TOTAL_BYTES, pools=pools),),
        model=model,
        policy=policy,
        kernels={"experts": "reference: the fake engine has no other"},
    )


def device_info() -> m.DeviceInfo:
    """The one device."""
    return m.DeviceInfo(
        name="cpu",
        title="Fake CPU",
        total_bytes=TOTAL_BYTES,
        free_bytes=TOTAL_BYTES,
        emulated=True,
    )


def card_info(index: int) -> m.DeviceInfo:
    """A card; its id has nothing to do with its place."""
    return m.DeviceInfo(
        name=f"cuda:{index}",
        id=f"GPU-{'fedcba'[index]}",
        title=f"Fake Card {index}",
        total_bytes=(index + 1) * TOTAL_BYTES,
        free_bytes=(index + 1) * TOTAL_BYTES,
    )


def _device_of(model: m.ModelInfo | None) -> m.DeviceInfo:
    name = model.devices[0] if model is not None else "cpu"
    return card_info(int(name.partition(":")[2])) if name.startswith("cuda") else device_info()


def cache_map(slots: int) -> m.CacheMap:
    """Heat of the cache."""
    cells = LAYERS * EXPERTS
    heat = bytes((i * 7) % 256 for i in range(cells))
    resident = bytes(1 if i < slots else 0 for i in range(cells))
    return m.CacheMap(
        num_layers=LAYERS,
        num_experts=EXPERTS,
        hits=base64.b64encode(heat).decode(),
        resident=base64.b64encode(resident).decode(),
        max_hits=97,
    )


def used_bytes(slots: int, kv_tokens: int) -> int:
    """What the pools take."""
    return WEIGHT_BYTES + RUNTIME_BYTES + slots * RECORD_BYTES + kv_tokens * KV_BYTES
