"""Kill -9 of app and engine at many moments: no text is lost beyond the last second.

The moments come from a seed, so that a failure can be had again; the loop ends with its time.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.services.chat_records import MessageState
from app.services.chat_store import ChatStore
from tests.conftest import REPOSITORY

SAVED_WITHIN_S = 1.15  # the second, and the turn of the event loop that does it
LONGEST_S = 3.0  # from the first word to the kill
SEED = 20_261_130


def writer(folder: Path) -> "subprocess.Popen[str]":
    """Start a chat that is being written."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.app.chat.writer", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]") -> list[str]:
    """Kill the writer with its engine; returns the whole lines it still had to say."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        if child.is_running():
            child.kill()
    rest, _ = process.communicate(timeout=20)
    return [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]


def due(lines: list[str]) -> int:
    """Return the length that must be on disk: of the newest word that was old enough."""
    told = [(float(at), int(length)) for at, length in (line.split() for line in lines)]
    newest = told[-1][0]
    return max((length for at, length in told if at <= newest - SAVED_WITHIN_S), default=0)


def stored(folder: Path) -> tuple[str, MessageState, str]:
    """Open the chat as the next start does: its question, how the reply ended, its text."""
    store = ChatStore(folder)
    try:
        question, reply = store.path_of(store.chats()[0].id)
        assert store._file.read("PRAGMA integrity_check") == [("ok",)]
        return question.text, reply.state, reply.text
    finally:
        store.close()


def kill_app(folder: Path, after_s: float) -> None:
    """Kill the app after the first word and some time; what was old enough is there."""
    process = writer(folder)
    lines = [process.stdout.readline()]
    begun = float(lines[0].split()[0])
    while float(lines[-1].split()[0]) < begun + after_s:
        lines.append(process.stdout.readline())
    lines += end(process)
    question, state, text = stored(folder)
    assert question == "Write for a long time."
    assert state is MessageState.INTERRUPTED
    assert len(text) >= due(lines)


def kill_engine(folder: Path, after_s: float) -> None:
    """Kill the engine, and the app the moment it has noticed: all that arrived is there."""
    process = writer(folder)
    begun = float(process.stdout.readline().split()[0])
    line = ""
    while not line or float(line.split()[0]) < begun + after_s:
        line = process.stdout.readline()
    (engine,) = psutil.Process(process.pid).children()
    engine.kill()
    while not line.startswith("stopped"):
        line = process.stdout.readline()
        assert line, "the writer ended by itself"
    end(process)
    _, state, text = stored(folder)
    assert state is MessageState.INTERRUPTED
    assert len(text) == int(line.split()[1]) > 0


def many_kills(folder: Path, count: int, limit_s: float) -> int:
    """Kill at `count` random moments, as far as the time goes. Returns how many it were."""
    moments = random.Random(SEED)
    finish = time.monotonic() + limit_s
    for number in range(count):
        if time.monotonic() > finish:
            return number
        home = folder / str(number)
        home.mkdir()
        kill = moments.choice((kill_app, kill_app, kill_engine))
        kill(home, moments.uniform(0.0, LONGEST_S))
    return count


def test_app_and_engine_killed_at_some_moments_then_no_text_is_lost(tmp_path: Path) -> None:
    """A few of the moments of the long run, each time."""
    assert many_kills(tmp_path, 6, limit_s=20.0) >= 1


@pytest.mark.slow
@pytest.mark.timeout(960)
def test_app_and_engine_killed_at_fifty_moments_then_no_text_is_lost(tmp_path: Path) -> None:
    """The long run. The whole app with the real engine is killed in tests/e2e/test_kills.py."""
    assert many_kills(tmp_path, 50, limit_s=900.0) == 50


def test_due_then_only_words_older_than_the_last_second_count() -> None:
    """The rule by which the runs above judge."""
    assert due(["1.0 10\n", "1.5 20\n", "2.4 30\n"]) == 10
    assert due(["1.0 10\n", "2.0 20\n"]) == 0
