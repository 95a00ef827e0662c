"""An engine process as the window has it, driven and timed by a benchmark.

Starts `python -m engine`, speaks its protocol, and notes when each event arrived. Every
figure of `dev.py bench decode`, `prefill`, `resize` and `load` is taken from here, so it includes
pipe, scheduler, sampler and text.
"""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from engine.protocol.messages import (
    ChatMessage,
    Command,
    Error,
    Event,
    Finished,
    Generate,
    GetStatus,
    Load,
    Loaded,
    MissPolicy,
    ModelInfo,
    Notice,
    Part,
    Pool,
    Resize,
    ResizeApplied,
    ResizeRefused,
    Sampling,
    SetPolicy,
    Shutdown,
    Started,
    Status,
    TokenDelta,
    decode_event,
    encode,
)

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE = "engine"
LIMIT_S = 600.0
END_S = 30.0

EventType = TypeVar("EventType", bound=Event)


class BenchError(Exception):
    """The engine refused or failed; the message is its own sentence."""


@dataclass(slots=True)
class Reply:
    """One reply as it arrived.

    Attributes:
        sent_s: when the request was written; `time.perf_counter`, as all times here.
        arrivals: (when, tokens) of each delta.
        text: what was said.
        prompt_tokens: as the engine counted them; 0 until it started.
        finished: its end, with the engine's own trace.
    """

    sent_s: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    text: str = ""
    prompt_tokens: int = 0
    finished: Finished | None = None

    @property
    def ttft_s(self) -> float:
        """Seconds from the request to its first text."""
        return self.arrivals[0][0] - self.sent_s

    @property
    def tokens(self) -> int:
        """Tokens that arrived."""
        return sum(count for _, count in self.arrivals)

    def take(self, event: Event, now_s: float) -> None:
        """Note an event of this reply."""
        match event:
            case Started():
                self.prompt_tokens = event.prompt_tokens
            case TokenDelta():
                self.arrivals.append((now_s, event.num_tokens))
                self.text += event.text
            case Finished():
                self.finished = event


def decode_rate(replies: Sequence[Reply]) -> float:
    """Return tokens/s of all replies together, while every one of them was decoding.

    From the latest first token to the earliest last one, so that prompts and tails do not count.
    """
    begin = max(reply.arrivals[0][0] for reply in replies)
    end = min(reply.arrivals[-1][0] for reply in replies)
    count = sum(n for reply in replies for at, n in reply.arrivals if begin < at <= end)
    return count / (end - begin) if end > begin else 0.0


class EngineClient:
    """One engine process; a context manager that leaves nothing behind.

    Args:
        arguments: of the engine, as `engine.settings` reads them.
        module: what is started; `tests.perf.memory_engine` makes experts in memory.
        cores: the process may run on so many cores only, 0 = all (Linux and Windows).

    Attributes:
        notices: sentences that the engine wants read.
    """

    def __init__(self, *arguments: str, module: str = ENGINE, cores: int = 0) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self.notices: list[str] = []
        self._count = 0
        self._events: queue.SimpleQueue[tuple[float, Event] | None] = queue.SimpleQueue()
        self._replies: dict[str, Reply] = {}
        with _on_cores(cores):
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.send(Shutdown())
            self._process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._reader.join(END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def pid(self) -> int:
        """Of the engine."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the engine still runs."""
        return self._process.poll() is None

    def send(self, command: Command) -> None:
        """Write one command."""
        assert self._process.stdin is not None
        self._process.stdin.write(encode(command))
        self._process.stdin.flush()

    def load(self, command: Load, seen: Callable[[float, Event], None] | None = None) -> ModelInfo:
        """Load a model; `seen` is told every event on the way. Raises BenchError."""
        self.send(command)
        return self._wait(Loaded, command.id, seen).model

    def resize(
        self, expert_slots: int | None = None, kv_tokens: int | None = None
    ) -> ResizeApplied:
        """Change the number of cached experts, or of tokens that keys and values have room for.

        None leaves one as it is. Raises BenchError with the engine's reason.
        """
        name = self._name("resize")
        self.send(Resize(id=name, expert_slots=expert_slots, kv_tokens=kv_tokens))
        answer = self._until(
            lambda event: isinstance(event, ResizeApplied | ResizeRefused) and event.id == name
        )
        if isinstance(answer, ResizeRefused):
            raise BenchError(answer.reason)
        assert isinstance(answer, ResizeApplied)
        return answer

    def set_policy(self, policy: MissPolicy) -> None:
        """Serve misses this way from now on."""
        name = self._name("policy")
        self.send(SetPolicy(id=name, policy=policy))
        self._wait(Status, name)

    def pools(self) -> dict[str, Pool]:
        """Return the device's pools by name, as the window would show them now."""
        return {pool.name: pool for pool in self.status().devices[0].pools}

    def status(self) -> Status:
        """Return the engine's status."""
        name = self._name("status")
        self.send(GetStatus(id=name))
        return self._wait(Status, name)

    def start(self, messages: tuple[ChatMessage, ...], max_tokens: int) -> Reply:
        """Ask for a greedy reply of exactly `max_tokens`; `finish` waits for it."""
        name = self._name("reply")
        sampling = Sampling(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        reply = self._replies[name] = Reply(time.perf_counter())
        self.send(Generate(id=name, messages=messages, sampling=sampling))
        return reply

    def finish(self, *replies: Reply) -> None:
        """Wait until these replies are over. Raises BenchError."""
        while any(reply.finished is None for reply in replies):
            self._next()

    def wait_for_tokens(self, reply: Reply, tokens: int) -> None:
        """Wait until a reply has so many tokens, or is over."""
        while reply.finished is None and reply.tokens < tokens:
            self._next()

    def say(self, text: str, max_tokens: int) -> Reply:
        """Ask one thing and wait for the whole reply."""
        reply = self.start(user(text), max_tokens)
        self.finish(reply)
        return reply

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _wait(
        self,
        kind: type[EventType],
        name: str,
        seen: Callable[[float, Event], None] | None = None,
    ) -> EventType:
        event = self._until(
            lambda event: isinstance(event, kind) and getattr(event, "id", "") == name, seen
        )
        assert isinstance(event, kind)
        return event

    def _until(
        self,
        is_it: Callable[[Event], bool],
        seen: Callable[[float, Event], None] | None = None,
    ) -> Event:
        while True:
            at_s, event = self._next()
            if seen is not None:
                seen(at_s, event)
            if is_it(event):
                return event

    def _next(self) -> tuple[float, Event]:
        """Return the next event, after noting what it means for replies. Raises BenchError."""
        item = self._events.get(timeout=LIMIT_S)
        if item is None:
            raise BenchError(f"The engine ended with code {self._process.wait()}.")
        at_s, event = item
        if isinstance(event, Error):
            raise BenchError(f"{event.message} {event.hint}".strip())
        if isinstance(event, Notice):
            self.notices.append(event.message)
        reply = self._replies.get(getattr(event, "id", ""))
        if reply is not None:
            reply.take(event, at_s)
        return at_s, event

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            now_s = time.perf_counter()
            self._events.put((now_s, decode_event(line)))
        self._events.put(None)


def user(text: str) -> tuple[ChatMessage, ...]:
    """Return a conversation of one turn."""
    return (ChatMessage(role="user", parts=(Part(text=text),)),)


class _on_cores:
    """While it lasts, new processes inherit a limit of cores."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._before: set[int] = set()

    def __enter__(self) -> None:
        if self._cores and sys.platform == "linux":
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, sorted(self._before)[: self._cores])

    def __exit__(self, *_: object) -> None:
        if self._before:
            os.sched_setaffinity(0, self._before)
