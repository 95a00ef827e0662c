"""Devices that the engine offers, and cards that it cannot have."""

import os
from types import SimpleNamespace

import pytest

from engine.loader import tools
from engine.loader.open import open_model
from engine.loader.parts import LoadWatch
from engine.protocol.errors import DeviceError
from engine.protocol.messages import Load
from engine.protocol.places import DataRoot
from engine.service import devices
from engine.settings import EngineSettings
from engine.system import number_cards_by_bus
from kernels.device import cards
from kernels.device.base import DeviceLostError

GIB = 1 << 30
QUIET = LoadWatch(lambda *_: None, lambda: False)


class NVMLError(Exception):
    """As of the driver's library."""


def library(**changes):
    """A driver with two cards."""
    made = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda card: f"Card {card}",
        nvmlDeviceGetUUID=lambda card: f"GPU-{card}".encode(),
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(total=24 * GIB, free=20 * GIB),
        nvmlDeviceGetPciInfo=lambda card: SimpleNamespace(domain=0, bus=card + 1, device=0),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def refuse(*_):
    raise NVMLError("no")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No card is hidden, unless a test hides it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_devices_when_there_are_cards_then_each_has_its_own_id(monkeypatch):
    """Case M-20: a choice by id survives another order of the slots."""
    monkeypatch.setattr(cards, "pynvml", library())
    cpu, *found = devices.find_devices()
    assert (cpu.name, cpu.emulated, cpu.id) == ("cpu", True, "")
    assert [(card.name, card.id) for card in found] == [("cuda:0", "GPU-0"), ("cuda:1", "GPU-1")]
    assert not any(card.emulated for card in found)
    assert {card.free_bytes for card in found} == {20 * GIB}


def test_devices_when_the_driver_tells_no_id_then_the_card_is_there(monkeypatch):
    """Case M-20: an old driver costs the id only; no driver costs the cards only."""
    monkeypatch.setattr(cards, "pynvml", library(nvmlDeviceGetUUID=refuse))
    assert [one.id for one in devices.find_devices()] == ["", "", ""]
    monkeypatch.setattr(cards, "pynvml", library(nvmlInit=refuse))
    assert [one.name for one in devices.find_devices()] == ["cpu"]


@pytest.mark.parametrize(
    ("order", "visible", "expected"),
    [
        ("PCI_BUS_ID", None, [("cuda:0", "GPU-0"), ("cuda:1", "GPU-1")]),
        ("PCI_BUS_ID", "1", [("cuda:0", "GPU-1")]),
        ("PCI_BUS_ID", "1,0", [("cuda:0", "GPU-1"), ("cuda:1", "GPU-0")]),
        ("FASTEST_FIRST", "GPU-1", [("cuda:0", "GPU-1")]),
        # Which one CUDA means by a number is not known: opening a card asks for its id.
        ("FASTEST_FIRST", "1", [("cuda:0", "GPU-0"), ("cuda:1", "GPU-1")]),
        ("PCI_BUS_ID", "", []),
    ],
)
def test_devices_when_cards_are_hidden_then_numbered_as_cuda_does(
    monkeypatch, order, visible, expected
):
    """Case M-20: a hidden card is not offered, and the others keep their ids."""
    monkeypatch.setattr(cards, "pynvml", library())
    monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [(one.name, one.id) for one in devices.find_devices()[1:]] == expected


def test_devices_when_an_instance_is_chosen_then_its_own_memory(monkeypatch):
    """A part of a card has a name of its own; one that is not there ends the list."""

    def by_name(name):
        return 7 if name == "MIG-a" else refuse()

    monkeypatch.setattr(
        cards, "pynvml", library(nvmlDeviceGetHandleByUUID=by_name, nvmlDeviceGetPciInfo=refuse)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    (card,) = devices.find_devices()[1:]
    assert (card.name, card.title) == ("cuda:0", "Card 7")


@pytest.mark.parametrize(("before", "after"), [(None, "PCI_BUS_ID"), ("FASTEST_FIRST",) * 2])
def test_order_when_nobody_chose_one_then_cuda_counts_as_the_driver_does(
    monkeypatch, before, after
):
    """Case M-20: else "cuda:0" is the fastest card, and another one than listed."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", before or "")
    if before is None:
        monkeypatch.delenv("CUDA_DEVICE_ORDER")
    number_cards_by_bus()
    assert os.environ["CUDA_DEVICE_ORDER"] == after


@pytest.mark.weights
def test_load_when_the_card_does_not_answer_then_a_device_error(converted_home):
    """Case M-18: the app knows the kind, and decides between the CPU and a restart."""
    command = Load(id="l", model="builtin", devices=("cuda:97",))
    with pytest.raises(DeviceError, match="CUDA device 97"):
        open_model(command, EngineSettings(home=converted_home, threads=1), QUIET)


@pytest.mark.weights
def test_load_when_the_card_is_lost_half_way_then_a_device_error(converted_home, monkeypatch):
    """Case M-18: a driver that comes back from sleep fails at any later call."""

    def lost(*_: object) -> None:
        raise DeviceLostError("unknown error")

    monkeypatch.setattr("engine.loader.open._make_kv", lost)
    command = Load(id="l", model="builtin")
    with pytest.raises(DeviceError, match="lost while loading: unknown error"):
        open_model(command, EngineSettings(home=converted_home, threads=1), QUIET)


@pytest.mark.parametrize("part", ["cuda_obstacle", "compute_class"])
def test_tools_when_asking_the_card_breaks_then_none_with_the_reason(monkeypatch, tmp_path, part):
    """Case E-06: the model then runs layer by layer; a lost card stays a lost card."""
    device = SimpleNamespace(keeps_addresses=True, torch_device=SimpleNamespace(index=0))
    settings = EngineSettings(home=DataRoot(tmp_path))
    monkeypatch.setattr(tools, "cuda_obstacle", lambda: "")
    monkeypatch.setattr(tools, "compute_class", lambda index: (9, 0))

    def fail(error):
        def call(*_):
            raise error

        return call

    monkeypatch.setattr(tools, part, fail(OSError("no such function")))
    assert tools.card_tools(device, settings) == (
        None,
        "the card's tools failed: no such function",
    )
    monkeypatch.setattr(tools, part, fail(DeviceLostError("gone")))
    with pytest.raises(DeviceLostError):
        tools.card_tools(device, settings)
