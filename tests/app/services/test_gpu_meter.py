"""The meter: readings from a thread, with and without a driver, clean stop."""

import sys
import threading
from types import SimpleNamespace

import pytest

from app.services.gpu_meter import GpuMeter


class NVMLError(Exception):
    """As of the driver library."""


def fake_nvml(**changes):
    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda i: "gpu",
        nvmlDeviceGetHandleByUUID=lambda key: fail(),
        nvmlDeviceGetName=lambda gpu: b"Fake GPU",
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=5, total=10),
        nvmlDeviceGetTemperature=lambda gpu, kind: 61,
    )
    for name, value in changes.items():
        setattr(library, name, value)
    return library


def fail(*_):
    raise NVMLError("no")


@pytest.fixture
def meter(qtbot):
    meter = GpuMeter(interval_s=0.02)
    yield meter
    meter.stop()


def first(qtbot, meter):
    with qtbot.waitSignal(meter.reading, timeout=5_000) as told:
        meter.start()
    return told.args[0]


def test_reading_when_gpu_then_all_figures(qtbot, meter, monkeypatch):
    """Name, memory and temperature come from the driver."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    reading = first(qtbot, meter)
    assert (reading.gpu_name, reading.vram_used, reading.vram_total) == ("Fake GPU", 5, 10)
    assert reading.temperature == 61
    assert 0 < reading.ram_used < reading.ram_total


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_reading_when_no_driver_then_ram_only(qtbot, meter, monkeypatch, broken):
    """No GPU is no error."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**{broken: fail}))
    reading = first(qtbot, meter)
    assert reading.gpu_name is None
    assert reading.vram_total is None
    assert reading.ram_total > 0


def test_reading_when_driver_fails_later_then_goes_on(qtbot, meter, monkeypatch):
    """A driver update under a running app costs the VRAM figure only."""
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        fake_nvml(nvmlDeviceGetMemoryInfo=fail, nvmlDeviceGetTemperature=fail),
    )
    reading = first(qtbot, meter)
    assert reading.gpu_name == "Fake GPU"
    assert reading.vram_used is None


def test_stop_then_thread_is_gone(qtbot, meter):
    """No thread outlives the window."""
    first(qtbot, meter)
    meter.stop()
    assert "gpu-meter" not in [thread.name for thread in threading.enumerate()]


def test_reading_when_another_card_is_in_use_then_of_that_one(qtbot, meter, monkeypatch):
    """Case M-20: the meter shows the card that the model runs on; a missing one is no error."""

    def handle(index):
        return index if index < 2 else fail()

    cards = {
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetHandleByUUID": lambda key: handle(int(key.removeprefix("GPU-"))),
        "nvmlDeviceGetName": lambda gpu: f"Card {gpu}",
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=gpu + 5, total=gpu + 10),
    }
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**cards))
    assert first(qtbot, meter).gpu_name == "Card 0"
    for card, name in (
        ("GPU-1", "Card 1"), ("GPU-2", None), ("cuda:1", "Card 1"), ("cuda:2", None),
        ("", "Card 0"),
    ):  # fmt: skip
        meter.follow(card)
        with qtbot.waitSignal(meter.reading, check_params_cb=lambda r, n=name: r.gpu_name == n):
            pass
