"""The fake engine for tests of the app, as program, process and client; and a signal recorder."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject

from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess, ProcessLimits
from app.services.engine_program import EngineProgram

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


def fake_program(*arguments: str) -> EngineProgram:
    """The fake engine as a program; see fake_engine.py for its arguments."""
    return EngineProgram(sys.executable, (str(FAKE_ENGINE), *arguments))


@pytest.fixture
def make_process(qtbot) -> Iterator[Callable[..., EngineProcess]]:
    """Make processes that run the fake engine; all are ended after the test."""
    made: list[EngineProcess] = []

    def make(*arguments: str, limits: ProcessLimits | None = None) -> EngineProcess:
        process = EngineProcess(fake_program(*arguments), limits=limits)
        made.append(process)
        return process

    yield make
    for process in made:
        if process.is_running:
            with qtbot.waitSignal(process.stopped, timeout=10_000):
                process.kill()


@pytest.fixture
def make_client(make_process) -> Callable[..., EngineClient]:
    """Make clients of the fake engine, not yet started: `make_client("--tokens", "9")`."""

    def make(*arguments: str, limits: ProcessLimits | None = None) -> EngineClient:
        process = make_process(*arguments, limits=limits)
        return EngineClient(process, parent=process)

    return make


@pytest.fixture
def loaded_client(make_client, qtbot) -> Callable[..., EngineClient]:
    """Make a client whose fake engine runs with a model loaded."""

    def make(*arguments: str, limits: ProcessLimits | None = None) -> EngineClient:
        client = make_client(*arguments, limits=limits)
        with qtbot.waitSignal(client.loaded, timeout=10_000):
            client.start()
            client.load("/models/fake")
        return client

    return make


class Recorder(QObject):
    """Payloads of signals, in order: `Recorder(client, "started", "finished").names`."""

    def __init__(self, source: QObject, *signals: str) -> None:
        super().__init__()
        self.events: list[tuple[str, object]] = []
        for name in signals:
            getattr(source, name).connect(self._keeper(name))

    def _keeper(self, name: str) -> Callable[..., None]:
        return lambda *payload: self.events.append((name, payload[0] if payload else None))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[object]:
        return [payload for kind, payload in self.events if kind == name]
