"""A recorded conversation with the engine, and what of it must stay the same.

Run `python -m tests.golden.transcript` in the repository root to record `events.jsonl` anew. Times,
rates, paths, sizes of the machine and how tokens were grouped into lines are left out.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import (
    CountTokens,
    Error,
    Event,
    Finished,
    Generate,
    Load,
    Loaded,
    Ready,
    Resize,
    ResizeApplied,
    SetPolicy,
    Started,
    Status,
    TokenCount,
    TokenDelta,
    decode_command,
    decode_event,
)

HERE = Path(__file__).parent
REQUESTS, EVENTS = HERE / "requests.jsonl", HERE / "events.jsonl"
VERSION = 1


def run(home: Path, device: str = "cpu") -> list[Event]:
    """Run the transcript through a process, as a person would at a shell."""
    done = subprocess.run(
        [sys.executable, "-m", "engine"],
        cwd=HERE.parents[1],
        env={**os.environ, "FREETOKEN_HOME": str(home)},
        input=REQUESTS.read_bytes().replace(b'"cpu"', f'"{device}"'.encode()),
        capture_output=True,
        timeout=110,
        check=True,
    )
    return [decode_event(line) for line in done.stdout.splitlines()]


def essence(events: list[Event]) -> list[dict[str, object]]:
    """Return what must stay the same, request by request."""
    out = [_plain(event) for event in events if isinstance(event, Ready)]
    names = [getattr(command, "id", "") for command in _requests()]
    for name in dict.fromkeys(names):
        kinds = (Error,) if not name else Event
        mine = [e for e in events if getattr(e, "id", "") == name and isinstance(e, kinds)]
        out += [line for event in _joined(mine) if (line := _plain(event)) is not None]
    return out


def replies(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return what does not depend on the device: the texts and how they ended."""
    return [line for line in lines if line["type"] in ("started", "delta", "finished")]


def _requests() -> list[object]:
    out: list[object] = []
    for line in REQUESTS.read_bytes().splitlines():
        try:
            command = decode_command(line)
        except InvalidRequest:
            command = None
        if command is None or isinstance(
            command, Load | Generate | Resize | SetPolicy | CountTokens
        ):
            out.append(command)
    return out


def _joined(events: list[Event]) -> list[Event]:
    """Join the deltas of one request."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if (
            isinstance(event, TokenDelta)
            and isinstance(last, TokenDelta)
            and last.kind == event.kind
        ):
            out[-1] = msgspec.structs.replace(
                last, text=last.text + event.text, num_tokens=last.num_tokens + event.num_tokens
            )
        else:
            out.append(event)
    return out


KEPT: dict[type, tuple[str, ...]] = {
    Ready: ("protocol_version",),
    Loaded: ("model",),
    Started: ("prompt_tokens",),
    TokenDelta: ("kind", "text", "num_tokens"),
    Finished: ("reason", "usage"),
    TokenCount: ("num_tokens",),
    ResizeApplied: ("kv_tokens", "expert_slots", "kv_bytes", "expert_bytes", "evicted"),
    Status: ("policy",),
    Error: ("code",),
}


def _plain(event: Event) -> dict[str, object] | None:
    fields = KEPT.get(type(event))
    if fields is None:
        return None
    data = msgspec.to_builtins(event)
    if isinstance(event, Loaded):
        for name in ("path", "load_s", "devices", "sampling"):
            data["model"].pop(name, None)
    kept = {name: data[name] for name in fields if name in data}
    return {"type": data["type"], "id": data.get("id", ""), **kept}


def read() -> list[dict[str, object]]:
    """Return the recording without its header."""
    header, *lines = EVENTS.read_text(encoding="utf-8").splitlines()
    if json.loads(header)["version"] != VERSION:
        raise ValueError("the recording has another version: run python -m tests.golden.transcript")
    return [json.loads(line) for line in lines]


def write(lines: list[dict[str, object]]) -> None:
    """Record."""
    header = {"version": VERSION, "made_by": "python -m tests.golden.transcript"}
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (header, *lines))
    EVENTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(essence(run(Path(folder))))
