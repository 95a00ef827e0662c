"""Auto-yield with the real engine: memory goes and returns, replies go on unchanged."""

import itertools
import sys
from dataclasses import replace

import psutil
import pytest

from app.predict.yielding import Cause, YieldState
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess
from app.services.engine_program import find_program
from app.services.presence import Presence, PresenceWatch
from app.services.settings import SettingsStore
from app.viewmodels.yielding import YieldingViewModel
from engine.protocol import messages as m
from tests.app.yielding.stubs import Watch
from tests.e2e.card import GIB, CardClient, Driver

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

    def ask(self, tokens=160):
        """Begin the same reply again."""
        self.text = ""
        message = m.ChatMessage(role="user", parts=(m.Part(text=POEM),))
        return self.client.generate(
            (message,), m.Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True)
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
    """VRAM goes back when it is asked for and returns, and no token is lost or changed."""
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


def test_fake_nvml_takes_and_returns_4_gb_during_a_reply_then_states_reasons_and_the_same_text(
    desk, monkeypatch, record_property
):
    """M-14: from the driver's figure through watch and policy to the engine's slots, and back.

    A card of 12 GiB for experts with 3 GiB free; another program takes 4 GiB while a reply runs.
    """
    alone = desk.finish(desk.ask(500))
    full, record = desk.slots, desk.client.model.record_bytes
    desk.vm._watch.seen.disconnect(desk.vm._on_seen)  # the desk's own; this one has a card
    card = CardClient(desk.client, 12 * GIB // (full * record))
    record *= card._scale
    driver = Driver(3 * GIB + full * record)
    driver.hold(full * record)
    desk.applied.clear()
    desk.client.resize_applied.connect(lambda event: driver.hold(event.expert_slots * record))
    monkeypatch.setitem(sys.modules, "pynvml", driver.library)
    watch = PresenceWatch(interval_s=0.02)
    vm = YieldingViewModel(card, desk.vm._settings, watch)
    vm._policy.use(replace(vm._policy.rules, step_s=0.0))  # no two seconds between steps
    seen = []
    vm.changed.connect(lambda: seen.append((vm.now.state, vm.now.cause, vm.now.reason)))
    watch.start()
    try:
        desk.wait(lambda: vm.now.has_memory)
        assert vm.now.state is YieldState.FULL
        reply = desk.ask(500)
        desk.wait(lambda: len(desk.text) > 20)
        driver.take(4 * GIB)
        desk.wait(lambda: driver.free >= GIB and vm.now.state is YieldState.YIELDED)
        assert reply in desk.client.open_replies
        given = (full - desk.slots) * record
        assert 2 * GIB <= given <= 4 * GIB  # the floor of 1 GiB is free again; no more than taken
        assert vm.now.cause is Cause.MEMORY
        assert "the floor is 1.0 GiB" in vm.now.reason
        so_far = len(desk.text)
        desk.wait(lambda: len(desk.text) > so_far + 20)
        driver.take(0)
        desk.wait(lambda: vm.now.state is YieldState.FULL)
        assert reply in desk.client.open_replies
        assert desk.slots == full
        assert desk.finish(reply) == alone
    finally:
        watch.stop()
    states = [state for state, _ in itertools.groupby(seen, key=lambda shown: shown[0])]
    assert states[-3:] == [YieldState.YIELDED, YieldState.RESTORING, YieldState.FULL]
    steps = [reason for state, _, reason in seen if state is YieldState.RESTORING]
    assert all(reason.startswith("Taking memory back in steps:") for reason in steps)
    pauses = [event.pause_ms for event in desk.applied]
    record_property("resizes", len(pauses))
    record_property("given GiB", round(given / GIB, 1))
    record_property("longest pause ms", round(max(pauses), 1))
