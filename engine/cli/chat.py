"""Chat in a terminal with the same engine that the window uses.

Runs the service in a thread of this process; the reply goes to stdout, everything else to stderr,
so that `--prompt` can be piped. Called by `python -m engine.cli` and `dev.py run`.
"""

import argparse
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TextIO

import msgspec

from engine.protocol.errors import EngineError
from engine.protocol.messages import (
    Cancel,
    ChatMessage,
    Error,
    Event,
    Finished,
    FinishReason,
    Generate,
    Load,
    Loaded,
    ModelInfo,
    Notice,
    Part,
    Progress,
    Sampling,
    Shutdown,
    TokenDelta,
    ToolCallDelta,
    error_event,
)
from engine.service import EngineService
from engine.settings import EngineSettings, read_settings

HELP = "/reset begins a new conversation, /system TEXT sets the system prompt, /quit ends."


def chat(words: Sequence[str]) -> int:
    """Chat until the end of input, or answer `--prompt` once. Returns the exit code."""
    options = _parser().parse_args(list(words))
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    settings = read_settings(["--home", options.home] if options.home else [])
    with Terminal(settings, sys.stdout, sys.stderr) as terminal:
        model = terminal.load(options.model, options.device)
        if model is None:
            return 1
        terminal.sampling = _sampling(options, model)
        terminal.say_system(options.system)
        if options.prompt is not None:
            return 0 if terminal.ask(options.prompt) else 1
        terminal.note(f"{model.name} is ready. {HELP}")
        return _converse(terminal, input)


def _converse(terminal: "Terminal", read: Callable[[str], str]) -> int:
    while True:
        try:
            text = read("\n> ").strip()
        except (EOFError, KeyboardInterrupt):
            return 0
        command, _, rest = text.partition(" ")
        if command in ("/quit", "/exit"):
            return 0
        if command == "/reset":
            terminal.reset()
        elif command == "/system":
            terminal.say_system(rest)
        elif command == "/help":
            terminal.note(HELP)
        elif text:
            terminal.ask(text)
            if not terminal.is_running:
                return 1


class Terminal:
    """One conversation over an engine service that runs in a thread of this process.

    Attributes:
        sampling: of the turns to come.
        is_running: the engine still answers.
    """

    def __init__(self, settings: EngineSettings, out: TextIO, err: TextIO) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None = the end
        self._service = EngineService(self._events.put, settings)
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._out = out
        self._err = err
        self._messages: list[ChatMessage] = []
        self._num_requests = 0
        self.sampling = Sampling()
        self.is_running = True

    def __enter__(self) -> "Terminal":
        """Start the engine's thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the engine; its memory is freed before the thread ends."""
        self._service.handle(Shutdown())
        self._thread.join(timeout=30)

    def note(self, text: str) -> None:
        """Write a line that is no part of a reply."""
        self._err.write(text + "\n")
        self._err.flush()

    def reset(self) -> None:
        """Forget the conversation, but not the system prompt."""
        self._messages = [m for m in self._messages if m.role == "system"]

    def say_system(self, text: str) -> None:
        """Begin anew under this system prompt; "" = none."""
        self._messages = [_message("system", text)] if text else []

    def load(self, model: str, device: str) -> ModelInfo | None:
        """Load a model; None after a failure, whose sentence was written."""
        self._service.handle(Load(id="load", model=model, devices=(device,)))
        stage = ""
        for event in self._answers("load"):
            if isinstance(event, Progress) and event.stage != stage:
                stage = event.stage
                self.note(f"{stage.capitalize()} ...")
            elif isinstance(event, Loaded):
                return event.model
            elif isinstance(event, Error):
                return None
        return None

    def ask(self, text: str) -> bool:
        """Send a turn and write the reply as it comes; returns whether it came to its own end.

        Ctrl+C ends the reply, a second one the program. A turn without an answer is forgotten.
        """
        self._messages.append(_message("user", text))
        self._num_requests += 1
        name = f"chat-{self._num_requests}"
        self._service.handle(
            Generate(id=name, messages=tuple(self._messages), sampling=self.sampling)
        )
        reply: list[str] = []
        try:
            finished = self._follow(name, reply)
        except KeyboardInterrupt:
            self._service.handle(Cancel(id=name))
            finished = self._follow(name, reply)
        self._write("\n")
        text = "".join(reply)
        if text:
            self._messages.append(_message("assistant", text))
        else:
            self._messages.pop()
        if finished is None:
            return False
        self.note(_stats_line(finished))
        return finished.reason in (FinishReason.STOP, FinishReason.LENGTH)

    def _follow(self, name: str, reply: list[str]) -> Finished | None:
        """Write a reply as it comes, and note its text. Returns its end; None if there is none."""
        for event in self._answers(name):
            if isinstance(event, TokenDelta):
                if event.kind == "text":
                    reply.append(event.text)
                self._write(event.text)
            elif isinstance(event, ToolCallDelta):
                self._write(f"\n[{event.name} {event.arguments}]\n")
            elif isinstance(event, Finished):
                return event
        return None

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _serve(self) -> None:
        """Run the service on its thread; what ends it is told like any other error."""
        try:
            self._service.run()
        except EngineError as problem:
            self._events.put(error_event(problem))
        finally:
            self._events.put(None)

    def _answers(self, name: str) -> Iterator[Event]:
        """Yield the events of one command until it is over; notices and errors are written."""
        while self.is_running:
            try:
                event = self._events.get(timeout=1.0)  # Windows sees Ctrl+C only in between
            except queue.Empty:
                continue
            if event is None:
                self.is_running = False
                self.note("The engine has stopped.")
            elif isinstance(event, Notice):
                self.note(event.message)
            elif isinstance(event, Error) and event.id in ("", name):
                self.note(f"{event.message} {event.hint}".rstrip())
                yield event
            elif getattr(event, "id", None) == name:
                yield event
                if isinstance(event, Finished | Loaded):
                    return


def _message(role: Literal["system", "user", "assistant"], text: str) -> ChatMessage:
    return ChatMessage(role=role, parts=(Part(text=text),))


def _stats_line(event: Finished) -> str:
    trace, usage = event.trace, event.usage
    return (
        f"{trace.decode_tokens_per_s:.1f} tok/s · TTFT {trace.ttft_s:.2f} s · "
        f"{usage.reply_tokens} tokens · hit {100 * trace.hit_share:.0f} %"
    )


def _sampling(options: argparse.Namespace, model: ModelInfo) -> Sampling:
    """Return the model's own sampling, changed by what was asked for."""
    changes = {
        name: getattr(options, name)
        for name in ("temperature", "seed", "max_tokens")
        if getattr(options, name) is not None
    }
    return msgspec.structs.replace(model.sampling or Sampling(), **changes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chat", description=chat.__doc__)
    parser.add_argument("--prompt", help="answer this once and exit")
    parser.add_argument("--model", default="builtin", help="FTW folder; default: the built-in one")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--system", default="", help="system prompt")
    parser.add_argument("--temperature", type=float, help="0 = always the likeliest token")
    parser.add_argument("--seed", type=int, help="the same seed gives the same reply")
    parser.add_argument("--max-tokens", type=int, help="longest reply")
    parser.add_argument("--home", default="", help="data root")
    return parser
