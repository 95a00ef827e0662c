"""Whether the engine runs on a runtime: it is started with it and must pass its own test.

The one place of the engine that starts a program, the engine itself. Called by
`engine.jobs.runtime`.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from engine.protocol.errors import CorruptCheckpoint, EngineError, FileAccess, InvalidRequest
from engine.protocol.messages import Error, decode_event

LIMIT_S = 240.0  # a scanner may read gigabytes that it has never seen
_POLL_S = 0.1
_TAIL = 1500
# Windows would flash a console for a child of a program that has none (case P-13).
_HIDDEN = getattr(subprocess, "CREATE_NO_WINDOW", 0)


def own_program() -> tuple[str, ...]:
    """Return how this very program is started."""
    frozen = getattr(sys, "frozen", False)  # set by PyInstaller's boot loader
    return (sys.executable,) if frozen else (sys.executable, "-m", "engine")


def check_engine(
    runtime: Path,
    home: Path,
    check: Callable[[], None],
    program: Sequence[str] = (),
    limit_s: float = LIMIT_S,
) -> None:
    """Let the engine do its job `selftest` with the libraries of a folder.

    Args:
        runtime: the unpacked wheels.
        home: the data root.
        check: called a few times a second; raises to stop.
        program: the engine, () = this program.
        limit_s: how long it may take.

    Raises: CorruptCheckpoint with the engine's last words; FileAccess if it cannot be started;
        what `check` raises.
    """
    words = [*(program or own_program()), "--home", str(home), "--runtime", str(runtime)]
    words += ["--job", "selftest"]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            creationflags=_HIDDEN,
        )
    except OSError as problem:
        raise FileAccess(f"The engine could not be started: {problem.strerror}.") from problem
    with process:
        try:
            said = _listen(process, check, limit_s)
        finally:
            process.kill()  # harmless if it has ended
    if process.returncode or b'"type":"job_done"' not in said:
        raise CorruptCheckpoint(
            "The engine does not run with the new runtime; the present one stays. "
            f"It said: {last_words(said)}",
            "Try again; if that does not help, send the log of jobs to us.",
        )


def _listen(process: "subprocess.Popen[bytes]", check: Callable[[], None], limit_s: float) -> bytes:
    """Return all that the engine says until it ends; its stdin stays open, or it would cancel."""
    stdout = cast("IO[bytes]", process.stdout)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(stdout.read()), daemon=True)
    reader.start()
    end = time.monotonic() + limit_s
    while reader.is_alive():
        check()
        if time.monotonic() > end:
            raise _silent(limit_s)
        reader.join(_POLL_S)
    process.wait()
    return b"".join(said)


def _silent(limit_s: float) -> EngineError:
    return CorruptCheckpoint(
        f"The engine did not answer within {limit_s:.0f} s with the new runtime;"
        " the present one stays.",
        "Close other programs, then try again.",
    )


def last_words(said: bytes) -> str:
    """Return the last line that says something, shortened; of an error only its sentence."""
    last = (said.decode("utf-8", "replace").strip().splitlines() or ["nothing."])[-1]
    with suppress(InvalidRequest):
        event = decode_event(last.encode())
        if isinstance(event, Error):
            return event.message
    return last[-_TAIL:]
