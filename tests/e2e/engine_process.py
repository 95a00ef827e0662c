"""An engine process for tests: lines in, events out, never left behind."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.protocol.messages import (
    ChatMessage,
    Command,
    Event,
    Generate,
    Part,
    Sampling,
    decode_event,
    encode,
)

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


class EngineProcess:
    """One `python -m engine`; a timer kills it, so no wait can hang."""

    def __init__(self, home: Path, *arguments: str, stdout: int = subprocess.PIPE) -> None:
        environment = {**os.environ, "FREETOKEN_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self._timer = threading.Timer(TIMEOUT_S, self.process.kill)
        self._timer.daemon = True
        self._timer.start()
        self._errors: list[bytes] = []
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()
        self.heard: list[Event] = []

    def send(self, *commands: Command) -> None:
        """Write commands, one line each."""
        self.write(b"".join(encode(command) for command in commands))

    def write(self, data: bytes) -> None:
        """Write raw bytes."""
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def events(self) -> Iterator[Event]:
        """Yield events as they come; every line must be one."""
        for line in self.process.stdout:
            event = decode_event(line)
            self.heard.append(event)
            yield event

    def wait(self, kind: type, **fields: object) -> Event:
        """Return the next event of this kind whose fields match."""
        for event in self.events():
            if isinstance(event, kind) and all(
                getattr(event, name) == value for name, value in fields.items()
            ):
                return event
        raise AssertionError(f"the engine ended before {kind.__name__}; stderr: {self.stderr}")

    def end(self) -> int:
        """Close stdin, read to the end, return the exit code."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        if self.process.stdout is not None:
            for _ in self.events():
                pass
        code = self.process.wait(TIMEOUT_S)
        self._drain.join(TIMEOUT_S)
        return code

    def all(self, kind: type) -> list[Event]:
        """Return what was heard of this kind."""
        return [event for event in self.heard if isinstance(event, kind)]

    @property
    def stderr(self) -> str:
        """What was logged so far."""
        return b"".join(self._errors).decode()

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        self._drain.join(TIMEOUT_S)
        self._timer.cancel()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _read_errors(self) -> None:
        self._errors.extend(self.process.stderr)


@contextmanager
def engine(home: Path, *arguments: str) -> Iterator[EngineProcess]:
    """Start an engine and make sure that it ends."""
    process = EngineProcess(home, *arguments)
    try:
        yield process
    finally:
        process.close()


def ask(name: str, text: str, **sampling: object) -> Generate:
    """Return a Generate with one user message."""
    return Generate(
        id=name,
        messages=(ChatMessage(role="user", parts=(Part(text=text),)),),
        sampling=Sampling(**{"temperature": 0.0, "max_tokens": 24, **sampling}),
    )
