"""The real engine crashes, hangs and comes back: what the window says, and what is kept."""

import os
import signal
import sys

import pytest

from app.services.chat_records import MessageState
from app.services.chat_store import ChatStore
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess, ProcessLimits
from app.services.engine_program import find_program
from app.services.job_runner import JobRunner
from app.services.model_library import ModelLibrary
from app.services.remote_client import RemoteClient
from app.services.remote_switch import TalkClient
from app.services.settings import SettingsStore
from app.viewmodels.chat import ChatViewModel
from app.viewmodels.session import SessionViewModel

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP and SIGKILL"),
]
WAIT_MS = 60_000
POEM = "Tell me a long story about a fox and a bear."


class Desk:
    """Engine, session and chat, without a window."""

    def __init__(self, qtbot, home, folder):
        self.qtbot = qtbot
        program = find_program("", home, 1)
        # Two seconds of silence instead of ten: heartbeats come each second.
        self.process = EngineProcess(program, limits=ProcessLimits(silence_s=2.5))
        self.client = EngineClient(self.process)
        settings = SettingsStore(folder / "settings.json")
        self.library = ModelLibrary(home.models, folder / "no sources")
        self.jobs = JobRunner(program, folder / "jobs.json")
        self.session = SessionViewModel(self.client, self.library, self.jobs, settings)
        self.chats = ChatStore(folder)
        self.chat = ChatViewModel(self.chats, TalkClient(self.client, RemoteClient()), settings)
        with qtbot.waitSignal(self.client.status, timeout=WAIT_MS, check_params_cb=has_model):
            self.client.start()
            self.session.load(next(home.models.iterdir()))
        self.wait(lambda: self.client.model is not None)

    @property
    def slots(self):
        pools = self.client.last_status.devices[0].pools
        return next(pool.units for pool in pools if pool.name == "experts")

    @property
    def last(self):
        return self.chat.talk.messages[-1]

    def stored(self):
        return self.chats.path_of(self.chat.talk.chat.id)[-1].text

    def wait(self, check):
        self.qtbot.waitUntil(check, timeout=WAIT_MS)

    def begin(self):
        """Ask, and wait until some of the reply has come."""
        got = []
        self.client.delta.connect(lambda event: got.append(event.text))
        self.chat.send(POEM)
        self.wait(lambda: len("".join(got)) > 20)
        return got

    def signal(self, number):
        os.kill(self.process.pid, number)

    def close(self):
        self.session.close()
        self.library.close()
        self.chat.close()
        if self.process.is_running:
            with self.qtbot.waitSignal(self.client.stopped, timeout=10_000):
                self.process.kill()
        self.jobs.close()
        self.chats.close()


def has_model(status):
    return status is not None and status.model is not None


@pytest.fixture
def desk(qtbot, converted_home, tmp_path):
    made = Desk(qtbot, converted_home, tmp_path)
    yield made
    made.close()


def test_killed_mid_reply_then_text_kept_and_a_smaller_restart_goes_on(desk):
    """Case A-20: cause in words, what came is on screen and on disk, 10 % fewer slots, continue."""
    full = desk.slots
    got = desk.begin()
    with desk.qtbot.waitSignal(desk.client.stopped, timeout=2_000):
        desk.signal(signal.SIGKILL)
    trouble = desk.session.trouble
    assert trouble.kind == "stopped"
    assert "killed from outside" in trouble.sentence
    assert trouble.can_shrink
    text = "".join(got)
    assert desk.chat.talk.message(desk.last.id).text == text
    assert desk.stored() == text
    assert desk.last.state is MessageState.INTERRUPTED
    assert not desk.process.is_running  # nobody started it behind the person's back
    with desk.qtbot.waitSignal(desk.client.loaded, timeout=WAIT_MS):
        desk.session.restart_engine(smaller=True)
    assert desk.session.trouble is None
    desk.wait(lambda: has_model(desk.client.last_status))
    assert desk.slots == int(full * 0.9)
    with desk.qtbot.waitSignal(desk.client.finished, timeout=WAIT_MS):
        desk.chat.talk.continue_reply(desk.last.id)
    assert desk.stored().startswith(text)
    assert len(desk.stored()) > len(text)


def test_stopped_mid_reply_then_not_responding_and_it_recovers_unharmed(desk):
    """SIGSTOP: said, left alone; SIGCONT: the doubt goes, the reply ends as if nothing was."""
    desk.begin()
    desk.signal(signal.SIGSTOP)
    desk.wait(lambda: desk.session.trouble is not None)
    assert (desk.session.trouble.kind, desk.session.trouble.pill) == ("silent", "Not responding")
    assert "writing a reply" in desk.session.trouble.sentence
    assert desk.process.is_running
    with desk.qtbot.waitSignal(desk.client.finished, timeout=WAIT_MS):
        desk.signal(signal.SIGCONT)
    assert desk.session.trouble is None
    assert desk.last.state is MessageState.DONE


def test_stopped_for_good_then_the_button_brings_it_back_and_keeps_the_text(desk):
    """A hang that does not end: one press, and the chat is where it was."""
    got = desk.begin()
    desk.signal(signal.SIGSTOP)
    desk.wait(lambda: desk.session.trouble is not None)
    old = desk.process.pid
    with desk.qtbot.waitSignal(desk.client.loaded, timeout=WAIT_MS):
        desk.session.restart_engine()
    assert desk.process.pid != old
    assert desk.session.trouble is None
    assert desk.stored() == "".join(got)
