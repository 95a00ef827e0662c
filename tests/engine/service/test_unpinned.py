"""A device that refuses memory as long as main memory is pinned for it."""

import pytest

from engine.loader.open import open_model
from engine.loader.parts import LoadWatch
from engine.protocol.errors import BudgetError
from engine.protocol.messages import Load, Sampling
from engine.runner.work import RowWork
from engine.service.stats import load_notice
from engine.settings import EngineSettings
from kernels.device.base import DeviceMemoryError
from kernels.device.fake import FakeDevice

pytestmark = pytest.mark.weights
QUIET = LoadWatch(lambda *_: None, lambda: False)


class Counting(FakeDevice):
    """Counts pinned memory against its own, as the driver of case M-12 is said to do."""

    refusals = 0
    always = False
    problem = DeviceMemoryError("too much is pinned")

    def host_buffer(self, num_bytes, piece_bytes=0):
        self.buffer = super().host_buffer(num_bytes, piece_bytes)
        return self.buffer

    def check_growth(self, num_bytes):
        if num_bytes > 0 and (self.buffer.pinned_bytes or self.always):
            self.refusals += 1
            raise self.problem
        super().check_growth(num_bytes)


@pytest.fixture
def device(monkeypatch):
    """The device that any load gets."""
    made = Counting(256 << 20)
    monkeypatch.setattr("engine.loader.open.open_device", lambda name, budget: made)
    return made


def load(home):
    command = Load(id="l", model="builtin", devices=("fake",))
    return open_model(command, EngineSettings(home=home, threads=1), QUIET)


@pytest.mark.parametrize(
    "refusal",
    [DeviceMemoryError, lambda words: RuntimeError(f"CUBLAS_STATUS_ALLOC_FAILED {words}")],
)
def test_load_when_refused_while_memory_is_pinned_then_again_without(
    converted_home, device, refusal
):
    """Cases M-12 and M-02: one more try, both figures in a warning, and the model answers."""
    device.problem = refusal("too much is pinned")
    model = load(converted_home)
    try:
        assert device.refusals == 1
        assert not device.buffer.pinned
        ((_, sentence),) = [one for one in model.notices if one[0] == "not_pinned"]
        assert load_notice("not_pinned", sentence).level == "warning"
        assert load_notice("profile_stale", "Old.").level == "info"
        assert "256 MiB free" in sentence
        assert "28 MiB of main memory were pinned" in sentence
        assert sentence.endswith("not pinned any more. Experts cross the link more slowly.")
        prompt = (5, 6, 7)
        model.runner.open_row(0, Sampling(temperature=0.0), 0, prompt)
        work = RowWork(0, prompt, 0, (0,), sample=True)
        assert model.runner.launch("prefill", [work]).wait()[0] >= 0
        model.runner.close_row(0)
    finally:
        model.close()
    assert device.free_bytes() == device.total_bytes()


def test_load_when_refused_while_a_part_is_pinned_then_that_part_is_named(converted_home, device):
    """Case M-12: what is let go is what was pinned, and only that is said."""
    device.pins.limit = 1
    model = load(converted_home)
    ((_, sentence),) = [one for one in model.notices if one[0] == "not_pinned"]
    assert f"{28 / model.info.num_layers:.1f} MiB of main memory were pinned" in sentence
    assert (device.refusals, device.buffer.pinned_bytes) == (1, 0)
    model.close()


@pytest.mark.parametrize("limit", [0, 1])
def test_load_when_only_some_layers_are_pinned_then_a_warning_with_figures(
    converted_home, monkeypatch, limit
):
    """Case M-02: how much, why no more, and what comes of it; the model loads."""
    device = FakeDevice(256 << 20)
    device.pins.limit, device.emulated = limit, False
    monkeypatch.setattr("engine.loader.open.open_device", lambda name, budget: device)
    model = load(converted_home)
    try:
        ((_, sentence),) = [one for one in model.notices if one[0] == "not_pinned"]
        layers = model.info.num_layers
        assert len(device.pins.held) == limit
        if limit:
            assert f"Only {28 / layers:.1f} MiB of 28 MiB could be pinned" in sentence
            assert f"(1 of {layers} layers). The driver refused to pin more: the fake" in sentence
            assert sentence.endswith(
                f"Experts of the other {layers - 1} layers cross the link more slowly."
            )
        else:
            assert sentence.startswith("The driver refused to pin ")
            assert sentence.endswith("Experts cross the link more slowly.")
    finally:
        model.close()
    assert device.pins.held == {}


@pytest.mark.parametrize("pinned", [True, False])
def test_load_when_refused_for_another_reason_then_an_error(converted_home, device, pinned):
    """Case M-12: twice at most, once where nothing is pinned; nothing stays behind."""
    device.always, device.pins.limit = True, None if pinned else 0
    with pytest.raises(BudgetError, match="too much is pinned"):
        load(converted_home)
    assert device.refusals == (2 if pinned else 1)
    assert device.free_bytes() == device.total_bytes()
