"""Try a frozen engine on an NVIDIA card as on a person's machine: no PATH, no compiler, no HOME.

    FT_BUNDLE=engine python -m PyInstaller --noconfirm build.spec
    python -m tests.installers.card dist/freetoken --runtime FOLDER

FOLDER is where torch and its neighbours lie, of the Python that froze: an installed runtime, or the
site-packages of an environment. The recorded conversation (`tests/golden`) is held twice, first
with nothing compiled. Texts, counts and ends must be the recorded ones, prompts must have gone
through Triton's kernels and replies through captured steps. Exit code 0 = all of that.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.protocol.messages import Event, Finished, Loaded, Ready, Status, decode_event
from tests.golden.transcript import REQUESTS, essence, read, replies

LIMIT_S = 300
KERNELS = ("gate_up", "down", "merge", "rms_norm", "rotate_and_store")  # every prompt takes them


class Failed(Exception):
    """The engine does not do what it should; the text says what."""


def hold(build: Path, home: Path, runtime: Path | None, device: str) -> list[tuple[float, Event]]:
    """Hold the recorded conversation. Returns its events with their seconds since the start."""
    program = build / ("freetoken-engine.exe" if sys.platform == "win32" else "freetoken-engine")
    words = [str(program), "--home", str(home)]
    words += ["--runtime", str(runtime)] if runtime is not None else []
    around = {"PATH": "", "HOME": str(home.parent / "no-home")}
    if "FT_CARD_LIBRARIES" in os.environ:  # where the driver is no ordinary library of the system
        around["LD_LIBRARY_PATH"] = os.environ["FT_CARD_LIBRARIES"]
    begun = time.monotonic()
    events: list[tuple[float, Event]] = []
    with (
        (home.parent / "stderr.txt").open("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=around
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as pipe:  # its end lets the engine finish and go
            pipe.write(REQUESTS.read_bytes().replace(b'"cpu"', f'"{device}"'.encode()))
        events.extend((time.monotonic() - begun, decode_event(line)) for line in process.stdout)
        code = process.wait(LIMIT_S)
        errors.seek(0)
        said = errors.read()
    sys.stdout.write("".join(f"  | {line}\n" for line in said.splitlines()[-12:]))
    if code:
        raise Failed(f"The engine ended with {code}.")
    return events


def check(events: list[Event], home: Path, device: str) -> list[str]:
    """Return lines about what was used. Raises: Failed."""
    wanted, got = replies(read()), replies(essence(events))
    if got != wanted:
        other = [f"{g}\n    recorded: {w}" for g, w in zip(got, wanted, strict=False) if g != w]
        raise Failed("Another conversation:\n    " + ("\n".join(other) or f"{len(got)} lines"))
    kernels = next(event.kernels for event in events if isinstance(event, Status))
    lines = [f"{op}: {kernels.get(op, 'not said')}" for op in ("grouped_experts", "decode")]
    if device == "cpu":
        return lines
    made = sorted({path.stem for path in (home / "caches" / "triton").rglob("*.cubin")})
    lines.append(f"compiled by Triton: {', '.join(made)}")
    count = len(list((home / "caches" / "kernels").glob("*")))
    lines.append(f"compiled by NVRTC: {count} sources")
    if missing := set(KERNELS) - set(made):
        raise Failed(f"Prompts did not go through Triton's {', '.join(sorted(missing))}.")
    if list((home / "caches" / "triton").rglob("*.so")):
        raise Failed("Something was built by a C compiler.")
    if not kernels.get("decode", "").startswith("captured"):
        raise Failed(f"Replies were not made by captured steps: {lines[1]}")
    return lines


def report(timed: list[tuple[float, Event]]) -> str:
    """Return when things happened."""
    words = []
    for seconds, event in timed:
        if isinstance(event, Ready):
            words.append(f"ready {seconds:.1f} s")
        elif isinstance(event, Loaded):
            words.append(f"loaded {seconds:.1f} s")
        elif isinstance(event, Finished):
            words.append(f"{event.id} {event.usage.reply_tokens} tokens {seconds:.1f} s")
    return ", ".join(words)


def main() -> int:
    """Hold the conversation twice; print figures or what failed."""
    parser = argparse.ArgumentParser(description="Try a frozen engine on a card.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--runtime", type=Path, help="folder of torch and its neighbours")
    parser.add_argument("--device", default="cuda", help="default cuda")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        home = Path(base) / "data"
        try:
            for name in ("nothing compiled", "compiled before"):
                timed = hold(options.build.resolve(), home, options.runtime, options.device)
                sys.stdout.write(f"{name}: {report(timed)}\n")
                lines = check([event for _, event in timed], home, options.device)
            sys.stdout.write("".join(f"  {line}\n" for line in lines))
            if (Path(base) / "no-home").exists():
                raise Failed("Something was written into HOME.")
        except Failed as problem:
            sys.stdout.write(f"{problem}\n")
            return 1
    sys.stdout.write("works: the recorded conversation, with an empty PATH\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
