"""Chat in a terminal, over a service whose events are written down beforehand."""

import io
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from engine.cli import chat as module
from engine.cli.__main__ import main
from engine.cli.chat import Terminal, chat
from engine.protocol.errors import DeviceError, ErrorCode
from engine.protocol.messages import (
    Cancel,
    ChatMessage,
    Command,
    Error,
    Event,
    Finished,
    FinishReason,
    Generate,
    Load,
    Loaded,
    Notice,
    Part,
    Progress,
    Sampling,
    Shutdown,
    TokenDelta,
    ToolCallDelta,
    Trace,
    Usage,
)
from engine.protocol.places import DataRoot
from engine.settings import EngineSettings
from tests.conftest import REPOSITORY
from tests.support.fake_facts import model_info

Emit = Callable[[Event], None]
Script = Callable[[Command, Emit], None]

MODEL = msgspec.structs.replace(
    model_info(Load(id="load", model="/models/tiny")), sampling=Sampling(temperature=0.3, top_k=9)
)


class StubService:
    """Answers each command as the script says, on its own thread; keeps what it was sent."""

    script: Script
    heard: list[Command]

    def __init__(self, emit: Emit, settings: EngineSettings) -> None:
        self._emit = emit
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def handle(self, command: Command) -> None:
        self.heard.append(command)
        self._commands.put(command)

    def run(self) -> None:
        while not isinstance(command := self._commands.get(), Shutdown):
            type(self).script(command, self._emit)


def finished(name: str, reason: FinishReason = FinishReason.STOP) -> Finished:
    trace = Trace(decode_tokens_per_s=21.04, ttft_s=0.5, hit_share=0.255)
    return Finished(id=name, reason=reason, usage=Usage(reply_tokens=2), trace=trace)


def answer(command: Command, emit: Emit) -> None:
    """Load at once; reply with what was asked."""
    if isinstance(command, Load):
        emit(Progress(id=command.id, stage="read"))
        emit(Notice(code="stale", message="Measure again."))
        emit(Loaded(id=command.id, model=MODEL))
    elif isinstance(command, Generate):
        emit(TokenDelta(id="someone-else", text="no"))
        emit(TokenDelta(id=command.id, text="You said "))
        emit(TokenDelta(id=command.id, text=command.messages[-1].parts[0].text))
        emit(finished(command.id))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> type[StubService]:
    """The stub in the engine's place."""

    class Service(StubService):
        script = staticmethod(answer)
        heard: list[Command] = []

    monkeypatch.setattr(module, "EngineService", Service)
    return Service


@pytest.fixture
def terminal(service: type[StubService], tmp_path: Path) -> Iterator[Terminal]:
    settings = EngineSettings(home=DataRoot(tmp_path))
    with Terminal(settings, io.StringIO(), io.StringIO()) as terminal:
        yield terminal
    assert not terminal._thread.is_alive()


def requests(service: type[StubService]) -> list[Generate]:
    return [command for command in service.heard if isinstance(command, Generate)]


def asked(request: Generate) -> list[tuple[str, str]]:
    return [(message.role, message.parts[0].text) for message in request.messages]


def test_prompt_when_answered_then_reply_is_on_stdout_and_the_rest_on_stderr(
    service: type[StubService], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """So that a reply can be piped; the process ends well."""
    words = ["--prompt", "Hi", "--system", "Be brief.", "--seed", "7", "--home", str(tmp_path)]
    assert chat([*words, "--max-tokens", "5", "--model", "/m", "--device", "cuda"]) == 0
    said = capsys.readouterr()
    assert said.out == "You said Hi\n"
    assert said.err.splitlines() == [
        "Read ...",
        "Measure again.",
        "21.0 tok/s · TTFT 0.50 s · 2 tokens · hit 26 %",
    ]
    load, generate, shutdown = service.heard
    assert load == Load(id="load", model="/m", devices=("cuda",))
    assert isinstance(generate, Generate)
    assert asked(generate) == [("system", "Be brief."), ("user", "Hi")]
    assert generate.sampling == Sampling(temperature=0.3, top_k=9, seed=7, max_tokens=5)
    assert shutdown == Shutdown()


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.CANCELLED])
def test_prompt_when_the_reply_fails_then_sentence_and_exit_code_say_so(
    service: type[StubService], capsys: pytest.CaptureFixture[str], reason: FinishReason
) -> None:
    """The error's sentence and hint are on stderr; the exit code is not 0."""

    def fail(command: Command, emit: Emit) -> None:
        answer(command, emit) if isinstance(command, Load) else None
        if isinstance(command, Generate):
            emit(Error(code=ErrorCode.BUDGET, message="Too long.", hint="Cut.", id=command.id))
            emit(Error(code=ErrorCode.BUDGET, message="Not mine.", id="other"))
            emit(finished(command.id, reason))

    service.script = staticmethod(fail)
    assert chat(["--prompt", "Hi"]) == 1
    said = capsys.readouterr()
    assert said.out.strip() == ""
    assert "Too long. Cut.\n" in said.err
    assert "Not mine" not in said.err


def test_load_when_it_fails_then_the_sentence_is_shown_and_nothing_is_asked(
    service: type[StubService], capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is not there."""

    def refuse(command: Command, emit: Emit) -> None:
        assert isinstance(command, Load)
        emit(Error(code=ErrorCode.FILE_ACCESS, message="There is no folder /m.", id="load"))

    service.script = staticmethod(refuse)
    assert chat(["--prompt", "Hi", "--model", "/m"]) == 1
    assert "There is no folder /m." in capsys.readouterr().err
    assert not requests(service)


def test_main_when_an_option_or_verb_is_bad_then_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback for what a person can mend."""
    assert main(["paint"]) == 2
    assert "there are: chat" in capsys.readouterr().err
    monkeypatch.setenv("FREETOKEN_THREADS", "many")
    assert main(["--prompt", "Hi"]) == 1
    assert "must be a whole number" in capsys.readouterr().err


def test_main_when_interrupted_outside_a_reply_then_it_ends_as_shells_expect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl+C while the model loads."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules["engine.cli.__main__"].VERBS, "chat", interrupt)
    assert main(["chat"]) == 130


def test_talk_when_commands_are_given_then_the_conversation_follows(
    service: type[StubService], terminal: Terminal
) -> None:
    """/reset keeps the system prompt, /system sets it and begins anew, /quit ends."""
    lines = iter(["Hi", "", "Go on", "/reset", "New", "/system Rhyme.", "Sky", "/help", "/quit"])
    assert module._converse(terminal, lambda _: next(lines)) == 0
    assert [asked(request) for request in requests(service)] == [
        [("user", "Hi")],
        [("user", "Hi"), ("assistant", "You said Hi"), ("user", "Go on")],
        [("user", "New")],
        [("system", "Rhyme."), ("user", "Sky")],
    ]
    terminal.reset()
    assert terminal.ask("Sea")
    assert asked(requests(service)[-1]) == [("system", "Rhyme."), ("user", "Sea")]
    terminal.say_system("")
    assert terminal.ask("Sand")
    assert asked(requests(service)[-1]) == [("user", "Sand")]


def test_talk_when_input_ends_then_it_ends_well(terminal: Terminal) -> None:
    """Ctrl+D, or the end of a pipe."""

    def end(_: str) -> str:
        raise EOFError

    assert module._converse(terminal, end) == 0


class Impatient(io.StringIO):
    """A screen at which somebody presses Ctrl+C whenever a certain text appears."""

    def write(self, text: str) -> int:
        size = super().write(text)
        if text == "enough":
            raise KeyboardInterrupt
        return size


def test_reply_when_interrupted_then_it_is_cancelled_and_the_part_is_kept(
    service: type[StubService], tmp_path: Path
) -> None:
    """Ctrl+C ends the reply, not the program: the next turn sees what was written."""

    def endless(command: Command, emit: Emit) -> None:
        if isinstance(command, Generate) and len(requests(service)) == 1:
            emit(TokenDelta(id=command.id, text="enough"))
            emit(TokenDelta(id=command.id, text=" of it"))
        elif isinstance(command, Cancel):
            emit(finished(command.id, FinishReason.CANCELLED))
        else:
            answer(command, emit)

    service.script = staticmethod(endless)
    screen = Impatient()
    with Terminal(EngineSettings(home=DataRoot(tmp_path)), screen, io.StringIO()) as terminal:
        assert not terminal.ask("Talk")
        assert screen.getvalue() == "enough of it\n"
        assert terminal.ask("More")
    assert Cancel(id=requests(service)[0].id) in service.heard
    assert asked(requests(service)[1])[1:] == [("assistant", "enough of it"), ("user", "More")]


def test_reply_when_interrupted_twice_then_the_program_ends(
    service: type[StubService], tmp_path: Path
) -> None:
    """An engine that does not react to a cancel holds nobody."""

    def stubborn(command: Command, emit: Emit) -> None:
        if isinstance(command, Generate | Cancel):
            emit(TokenDelta(id=command.id, text="enough"))

    service.script = staticmethod(stubborn)
    settings = EngineSettings(home=DataRoot(tmp_path))
    with pytest.raises(KeyboardInterrupt), Terminal(settings, Impatient(), io.StringIO()) as talk:
        talk.ask("Talk")


def test_reply_when_it_thinks_and_calls_then_both_are_shown_but_only_text_is_remembered(
    service: type[StubService], tmp_path: Path
) -> None:
    """A turn without a text answer is forgotten, so that roles keep alternating."""

    def think(command: Command, emit: Emit) -> None:
        if isinstance(command, Generate) and len(requests(service)) == 1:
            emit(TokenDelta(id=command.id, kind="reasoning", text="Hm. "))
            emit(ToolCallDelta(id=command.id, call_id="c", name="add", arguments='{"a": 1}'))
            emit(finished(command.id))
        else:
            answer(command, emit)

    service.script = staticmethod(think)
    screen = io.StringIO()
    with Terminal(EngineSettings(home=DataRoot(tmp_path)), screen, io.StringIO()) as terminal:
        assert terminal.ask("Add")
        assert screen.getvalue() == 'Hm. \n[add {"a": 1}]\n\n'
        assert terminal.ask("Hi")
    assert requests(service)[1].messages == (ChatMessage(role="user", parts=(Part(text="Hi"),)),)


def test_talk_when_the_engine_dies_then_its_last_sentence_is_shown_and_it_ends(
    service: type[StubService], tmp_path: Path
) -> None:
    """A lost card: no traceback, no further prompt."""

    def die(command: Command, emit: Emit) -> None:
        raise DeviceError("The card does not answer.", "Restart.")

    service.script = staticmethod(die)
    told = io.StringIO()
    with Terminal(EngineSettings(home=DataRoot(tmp_path)), io.StringIO(), told) as terminal:
        assert module._converse(terminal, lambda _: "Hi") == 1
    assert told.getvalue() == "The card does not answer. Restart.\nThe engine has stopped.\n"


@pytest.mark.slow
@pytest.mark.weights
def test_prompt_when_seeded_then_two_processes_say_the_same(tmp_path: Path) -> None:
    """The door that a newcomer without a display takes: real model, real engine, a pipe."""
    words = ["-m", "engine.cli", "chat", "--prompt", "Tell me a story.", "--seed", "1"]
    command = [sys.executable, *words, "--max-tokens", "24", "--home", str(tmp_path / "Ž home")]
    replies = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, done.stderr
        assert "tok/s" in done.stderr.splitlines()[-1]
        replies.append(done.stdout)
    assert replies[0] == replies[1]
    assert len(replies[0].split()) > 5
