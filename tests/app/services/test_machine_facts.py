"""What the machine is: driver that knows all, some or nothing; modules; battery; sleep."""

import struct
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest

from app.parts import _follow, _follow_next
from app.services import power
from app.services.machine_facts import MachineFacts, MachineReader, read_machine
from app.services.memory_modules import MemoryModules, from_smbios, from_udev
from app.services.power import WakeWatch
from engine.protocol import messages as m
from tests.app.services.test_gpu_meter import fail, fake_nvml

UDEV = """I:5234567
E:MEMORY_DEVICE_0_SIZE=17179869184
E:MEMORY_DEVICE_0_SPEED_MTS=6000
E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=5600
E:MEMORY_DEVICE_1_PRESENT=0
E:MEMORY_DEVICE_2_SIZE=17179869184
E:MEMORY_DEVICE_2_SPEED_MTS=6000
G:systemd
"""


def nvml(**changes):
    known = {
        "nvmlSystemGetDriverVersion": lambda: "590.44",
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: 1,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: 4,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: 16,
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=40),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x20 | 0x1,
        "nvmlClocksThrottleReasonSwThermalSlowdown": 0x20,
        "nvmlClocksThrottleReasonHwThermalSlowdown": 0x40,
    }
    return fake_nvml(**(known | changes))


def test_read_when_the_driver_knows_all_then_all_facts(monkeypatch, tmp_path):
    """Name, driver, memory, both link figures, use, heat."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    facts = read_machine(tmp_path / "not" / "there" / "yet")
    gpu = facts.gpu
    assert (gpu.name, gpu.driver, gpu.vram_total) == ("Fake GPU", "590.44", 10)
    assert (gpu.link_width, gpu.best_width, gpu.best_generation) == (4, 16, 5)
    assert (gpu.busy_share, gpu.is_throttled, gpu.temperature) == (0.4, True, 61)
    assert facts.disk_free > 0
    assert 0 < facts.ram_free <= facts.ram_total


def test_read_when_the_driver_knows_little_then_the_rest_is_not_known(monkeypatch, tmp_path):
    """A notebook's driver refuses some questions: each costs its own answer only."""
    refused = {name: fail for name in vars(nvml()) if name.startswith("nvmlDeviceGet")}
    kept = {"nvmlDeviceGetHandleByIndex": lambda i: "gpu", "nvmlDeviceGetName": lambda g: "Card"}
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**(refused | kept)))
    gpu = read_machine(tmp_path).gpu
    assert (gpu.name, gpu.driver) == ("Card", "590.44")
    assert (gpu.vram_total, gpu.link_width, gpu.is_throttled, gpu.busy_share) == (0, 0, None, None)


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_read_when_no_driver_then_no_gpu(monkeypatch, tmp_path, broken):
    """No card is no error."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**{broken: fail}))
    assert read_machine(tmp_path).gpu is None


def test_reader_when_asked_twice_then_one_reading_off_the_window_thread(qtbot, tmp_path):
    """A driver that takes its time is asked once."""
    go, threads = threading.Event(), []

    def read(folder, card):
        threads.append(threading.current_thread())
        go.wait(5)
        return MachineFacts(disk_free=7)

    reader = MachineReader(read)
    with qtbot.waitSignal(reader.known, timeout=5_000) as told:
        reader.ask(tmp_path)
        reader.ask(tmp_path)
        go.set()
    assert told.args[0].disk_free == 7
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    reader.stop()


def test_reader_when_another_card_is_in_use_then_facts_of_that_one(qtbot, monkeypatch, tmp_path):
    """Case M-20: as the meter; a card that is not there is no error."""
    cards = {
        "nvmlDeviceGetHandleByIndex": lambda index: index if index < 2 else fail(),
        "nvmlDeviceGetHandleByUUID": lambda key: 1 if key == "GPU-b" else fail(),
        "nvmlDeviceGetName": lambda gpu: f"Card {gpu}",
    }
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**cards))
    reader = MachineReader()
    names = []
    for card in (None, "GPU-b", "GPU-c", "cuda:1", "cuda:2", ""):
        if card is not None:
            reader.follow(card)
        with qtbot.waitSignal(reader.known, timeout=5_000) as told:
            reader.ask(tmp_path)
        reader.stop()
        gpu = told.args[0].gpu
        names.append(gpu.name if gpu is not None else None)
    assert names == ["Card 0", "Card 1", None, "Card 1", None, "Card 0"]


def watched(devices, wanted=""):
    """Services that only remember which card they shall watch."""
    names = ("meter", "presence", "machine", "under_load")
    client = SimpleNamespace(devices=devices)
    settings = SimpleNamespace(value=SimpleNamespace(device=wanted))
    return SimpleNamespace(client=client, settings=settings, **{name: Mock() for name in names})


def followed(services):
    """The one card that all were told of."""
    told = [
        watcher.follow.call_args.args
        for watcher in (services.meter, services.presence, services.machine, services.under_load)
    ]
    assert len(set(told)) == 1
    return told[0][0]


SECOND = m.DeviceInfo(name="cuda:0", id="GPU-b", title="Second", total_bytes=8, free_bytes=8)
FIRST = m.DeviceInfo(name="cuda:1", id="GPU-a", title="First", total_bytes=4, free_bytes=4)


def test_model_loaded_then_everybody_watches_its_card():
    """Case M-20: meter, auto-yield, facts and the facts around a measurement, by the card's id.

    Its number is CUDA's, which may count from the other end or hide a card.
    """
    services = watched((SECOND, FIRST))
    for names, key in ((("cuda:1", "cpu"), "GPU-a"), (("cuda:0",), "GPU-b"), (("cpu",), "")):
        _follow(names, services)
        assert followed(services) == key
    services.client.devices = (msgspec.structs.replace(FIRST, id=""),)
    _follow(("cuda:1",), services)
    assert followed(services) == "cuda:1"


@pytest.mark.parametrize(
    ("devices", "wanted", "key"),
    [
        ((SECOND,), "", "GPU-b"),
        ((SECOND, FIRST), "", "GPU-b"),
        ((SECOND, FIRST), "GPU-a", "GPU-a"),
        ((SECOND, FIRST), "cpu", ""),
        ((), "", ""),
    ],
)
def test_engine_ready_then_the_next_models_card_is_watched(devices, wanted, key):
    """Case M-20: the driver's first card may be hidden from the engine."""
    services = watched(devices, wanted)
    _follow_next(services)
    assert followed(services) == key


def test_udev_then_plugged_modules_and_the_slowest_speed():
    """The configured speed counts; an empty slot is none."""
    assert from_udev(UDEV) == MemoryModules(2, 5600)
    assert from_udev("") == MemoryModules()


def structure(kind, body, strings=b"A\0B\0\0"):
    return bytes((kind, 4 + len(body))) + b"\0\0" + body + strings


def module(size, speed, configured):
    body = bytearray(0x28 - 4)
    struct.pack_into("<H", body, 0x0C - 4, size)
    struct.pack_into("<H", body, 0x15 - 4, speed)
    struct.pack_into("<H", body, 0x20 - 4, configured)
    return structure(17, bytes(body))


TABLE = (
    structure(0, b"bios")
    + module(16_384, 6000, 5200)
    + module(0, 0, 0)
    + module(0x7FFF, 6000, 0)
    + structure(1, b"x", b"\0\0")
    + structure(127, b"", b"\0\0")
    + module(16_384, 100, 100)
)


def test_smbios_then_the_same_from_windows_table():
    """Empty slots are none, what stands behind the end is nothing."""
    assert from_smbios(TABLE) == MemoryModules(2, 5200)


@pytest.mark.parametrize("cut", range(0, len(TABLE), 5))
def test_smbios_when_cut_then_no_more_than_is_there(cut):
    """Firmware tables are not to be trusted."""
    assert from_smbios(TABLE[:cut]).count <= 2


@pytest.mark.parametrize(
    ("battery", "said"),
    [
        (None, None),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
        (SimpleNamespace(power_plugged=None), None),
    ],
)
def test_battery_then_plugged_or_not_or_not_known(monkeypatch, battery, said):
    """A desktop has none; some drivers do not say."""
    monkeypatch.setattr(power.psutil, "sensors_battery", lambda: battery, raising=False)
    assert power.on_battery() is said


def test_wake_when_the_clock_jumps_then_noticed_and_a_late_tick_is_none(qtbot):
    """The wall clock went on while the timer stood still."""
    now = [1000.0]
    watch = WakeWatch(clock=lambda: now[0])
    slept = []
    watch.woke.connect(slept.append)
    for step in (2.0, 2.1, 6.0, -3600.0, 2.0):
        now[0] += step
        watch.look()
    assert slept == []
    assert not watch.slept_within(60)
    now[0] += 602.0
    watch.look()
    assert slept == [600.0]
    now[0] += 30
    assert watch.slept_within(60)
    now[0] += 60
    assert not watch.slept_within(60)
