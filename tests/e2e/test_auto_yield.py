"""Auto-yield with the real engine: memory goes and returns, replies go on unchanged."""

import sys
from dataclasses import replace

import psutil
import pytest

from app.predict.yielding import Cause, YieldState
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess
from app.services.engine_program import find_program
from app.services.presence import Presence
from app.services.settings import SettingsStore
from app.viewmodels.yielding import YieldingViewModel
from engine.protocol import messages as m
from tests.app.yielding.stubs import Watch

pytestmark = pytest.mark.weights
POEM = "Tell me a long story about a fox and a bear."
WAIT_MS = 60_000


class Desk:
    """Client, real engine, auto-yield, and readings by script."""

    def __init__(self, qtbot, home, settings):
        self.qtbot, self.watch = qtbot, Watch()
        self.process = EngineProcess(find_program("", home, 1))
        self.client = EngineClient(self.process)
        settings.set(yield_return_s=0)
        self.vm = YieldingViewModel(self.client, settings, self.watch)
        self.text, self.applied = "", []
        self.client.delta.connect(self._on_delta)
        self.client.resize_applied.connect(self.applied.append)
        with qtbot.waitSignal(self.client.status, timeout=WAIT_MS, check_params_cb=has_model):
            self.client.start()
            self.client.load(str(next(home.models.iterdir())))

    def _on_delta(self, event):
        self.text += event.text

    @property
    def slots(self):
        pools = self.client.last_status.devices[0].pools
        return next(pool.units for pool in pools if pool.name == "experts")

    def ask(self):
        """Begin the same reply again."""
        self.text = ""
        message = m.ChatMessage(role="user", parts=(m.Part(text=POEM),))
        return self.client.generate(
            (message,), m.Sampling(temperature=0.0, max_tokens=160, ignore_eos=True)
        )

    def seen(self, **what):
        self.watch.seen.emit(Presence(self.vm._clock(), **what))

    def wait(self, check):
        self.qtbot.waitUntil(check, timeout=WAIT_MS)

    def finish(self, reply):
        self.wait(lambda: reply not in self.client.open_replies)
        return self.text


def has_model(status):
    return status.model is not None


@pytest.fixture
def desk(qtbot, converted_home, tmp_path):
    made = Desk(qtbot, converted_home, SettingsStore(tmp_path / "settings.json"))
    yield made
    with qtbot.waitSignal(made.client.stopped, timeout=10_000):
        made.client.stop()


def test_yield_and_take_back_during_a_reply_then_the_text_is_the_same(desk):
    """Issue 5: VRAM goes back when it is asked for and returns, and no token is lost or changed."""
    full = desk.slots
    alone = desk.finish(desk.ask())
    assert len(alone) > 100

    reply = desk.ask()
    desk.wait(lambda: len(desk.text) > 20)
    desk.vm.toggle()
    desk.wait(lambda: desk.vm.now.state is YieldState.YIELDED)
    assert reply in desk.client.open_replies
    top_k = desk.client.model.top_k
    assert (desk.slots, desk.vm.now.cause) == (top_k, Cause.MANUAL)
    so_far = len(desk.text)
    desk.wait(lambda: len(desk.text) > so_far + 40)
    desk.vm.toggle()
    desk.wait(lambda: desk.vm.now.state is YieldState.FULL)
    assert reply in desk.client.open_replies
    assert desk.slots == full
    assert desk.finish(reply) == alone
    assert [event.expert_slots for event in desk.applied] == [top_k, full]


def test_program_comes_and_goes_during_replies_then_steps_back_and_the_same_text(desk):
    """A listed program instead of a hand: the floor at once, all back in steps."""
    full = desk.slots
    alone = desk.finish(desk.ask())
    reply = desk.ask()
    desk.wait(lambda: len(desk.text) > 20)
    desk.seen(app="game")
    desk.wait(lambda: desk.slots == desk.client.model.top_k)
    assert desk.finish(reply) == alone
    desk.vm._policy.use(replace(desk.vm._policy.rules, step_s=0.0))  # no two seconds between steps
    reply = desk.ask()
    while desk.vm.now.state is not YieldState.FULL:
        answered = len(desk.applied)
        desk.seen()
        desk.wait(lambda answered=answered: len(desk.applied) > answered)
    assert desk.finish(reply) == alone
    assert desk.slots == full
    assert len(desk.applied) == 5  # one down, four up


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident set")
def test_yield_on_a_cpu_then_ram_is_really_given_back(desk):
    """The emulated arena's pages return to the system: the sentence on the card is true."""
    desk.finish(desk.ask())  # the cache is filled
    engine = psutil.Process(int(desk.process._process.processId()))
    before = engine.memory_info().rss
    desk.vm.toggle()
    desk.wait(lambda: desk.vm.now.state is YieldState.YIELDED)
    given = (desk.vm._wanted - desk.slots) * desk.client.model.record_bytes
    assert given > 8 << 20
    assert before - engine.memory_info().rss > 0.8 * given
