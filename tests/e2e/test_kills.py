"""Kill -9 of app and engine at fifty random moments, one data root for all: the next start goes on.

The app is the whole program with the real engine. A moment lies in start and load, or in a reply,
and hits the app or the engine alone first. Each start finds what the kill before it left.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from app.services.chat_records import ChatId, MessageState
from app.services.chat_store import ChatStore
from app.services.settings import SettingsStore
from engine.protocol.places import DataRoot
from tests.app.chat.test_kills import due
from tests.conftest import REPOSITORY

pytestmark = [
    pytest.mark.weights,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL"),
]
COUNT = 50
START_S, REPLY_S = 8.0, 4.0  # the longest from the start, or from the first message, to the kill
ENDED = {MessageState.DONE, MessageState.INTERRUPTED}
SEED = 20_261_130
WAIT_S = 60.0


class Victim:
    """The app, writing chat number `number`, and what it has told."""

    def __init__(self, home: Path, number: int) -> None:
        self.home, self.number, self.lines = home, number, []
        self.has_sent, self.has_word, self.has_stopped = (threading.Event() for _ in range(3))
        self._errors = (home / "stderr.txt").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.writing_app", str(home), str(number)],
            cwd=REPOSITORY,
            env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("sent"):
                self.has_sent.set()
            elif line.startswith("stopped"):
                self.has_stopped.set()
            else:
                self.has_word.set()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """Kill the app alone; its engine must go by itself."""
        children = self.children()
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self.process.stdout.close()
        self._errors.close()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == []

    def kill_engine(self) -> None:
        """Kill the engine, if it is there and has begun to write; the app says so and lives."""
        children = self.children()
        if children and self.has_sent.is_set():
            children[0].kill()
            assert self.has_stopped.wait(WAIT_S)
            assert self.process.poll() is None


def check(victim: Victim) -> str:
    """Open what is left as the next start does. Returns where the kill fell."""
    told = [line for line in victim.lines if line.endswith("\n")]
    assert SettingsStore(victim.home / "settings.json").notices == []
    store = ChatStore(victim.home / "chats")
    try:
        assert store._file.read("PRAGMA integrity_check") == [("ok",)]
        sent = [place for place, line in enumerate(told) if line.startswith("sent")]
        for chat in store.chats():
            whole = store.path_of(chat.id)
            assert whole
            assert [message.role for message in whole] == ["user", "assistant"] * (len(whole) // 2)
            assert {message.state for message in whole} <= ENDED
        if not sent:
            return "start"
        _, chat_id, turns = told[sent[-1]].split()
        path = store.path_of(ChatId(int(chat_id)))
        assert path[0].text.startswith(f"Story {victim.number}:")
        assert len(path) // 2 in (int(turns), int(turns) + 1)  # one may be stored, and not yet told
        newest = told[sent[-1] + 1 :]
        stopped = [int(line.split()[1]) for line in newest if line.startswith("stopped")]
        grown = [line for line in newest if not line.startswith("stopped")]
        least = stopped[0] if stopped else due(grown) if grown else 0
        assert len(path[2 * int(turns) - 1].text) >= least
        return "engine" if stopped else "reply"
    finally:
        store.close()


def kill_once(home: Path, number: int, aim: str, share: float) -> str:
    """Start, wait for a part of the time, kill, look. Returns where the kill fell."""
    victim = Victim(home, number)
    try:
        if aim != "start":
            assert victim.has_sent.wait(WAIT_S), (home / "stderr.txt").read_text()
        threading.Event().wait(share * (START_S if aim == "start" else REPLY_S))
        assert victim.process.poll() is None, (home / "stderr.txt").read_text()
        if aim == "engine":
            victim.kill_engine()
        victim.kill()
    finally:
        victim.process.kill()
    return check(victim)


@pytest.mark.timeout(1_800)
def test_app_and_engine_killed_at_fifty_moments_then_every_next_start_is_whole(
    converted_home: DataRoot, tmp_path: Path, record_property
) -> None:
    """Case A-20: chats, settings and locks survive, no engine stays behind.

    After the last kill the app starts once more and gets a whole first word.
    """
    home = tmp_path / "home"
    shutil.copytree(converted_home.root, home)
    moments = random.Random(SEED)
    fell = []
    for number in range(COUNT):
        aim = moments.choice(("start", "reply", "reply", "engine"))
        fell.append(kill_once(home, number, aim, moments.uniform(0.05, 1.0)))
    last = Victim(home, COUNT)
    try:
        assert last.has_word.wait(WAIT_S)
    finally:
        last.kill()
    assert check(last) == "reply"
    for place in ("start", "reply", "engine"):
        record_property(f"kills during {place}", fell.count(place))
    assert len(fell) == COUNT
