"""The device seam: one contract, tried on every device; faults on the fake one."""

import sys
import threading

import pytest
import torch

from kernels.device import host
from kernels.device.base import Device, DeviceLostError, DeviceMemoryError, HostBuffer
from kernels.device.cpu import plain_buffer
from kernels.device.fake import FakeDevice
from kernels.device.memory import CopiedRegion, PlainBuffer
from kernels.device.registry import list_devices, open_device

PAGE = host.PAGE_BYTES
BUDGET = 64 * PAGE
PIECE = 4 * PAGE


def _open(name):
    try:
        return open_device(name, BUDGET)
    except DeviceLostError as problem:
        pytest.skip(f"needs an NVIDIA GPU: {problem}")


@pytest.fixture(params=["cpu", "fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    opened = _open(request.param)
    yield opened
    opened.close()


def test_resize_when_grown_and_shrunk_keeps_the_common_prefix(device: Device):
    """What both sizes hold survives every resize."""
    region = device.region(8 * PAGE, 2 * PAGE)
    region.tensor.fill_(7)
    region.resize(5 * PAGE)
    assert region.tensor.numel() == 5 * PAGE
    assert bool((region.tensor[: 2 * PAGE] == 7).all())
    region.tensor.fill_(9)
    region.resize(PAGE)
    assert region.tensor.numel() == PAGE
    assert bool((region.tensor == 9).all())
    region.close()


def test_resize_when_beyond_the_reservation_is_refused_unchanged(device: Device):
    """A region never outgrows what it reserved."""
    region = device.region(4 * PAGE, PAGE)
    with pytest.raises(ValueError, match="asked of a region"):
        region.resize(5 * PAGE)
    assert region.tensor.numel() == PAGE
    region.close()


@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_resize_when_over_the_budget_says_need_and_room(name):
    """An emulated budget refuses like a full card, and counts what regions map."""
    device = _open(name)
    first = device.region(BUDGET, BUDGET // 2)
    second = device.region(BUDGET, BUDGET // 4)
    second.tensor.fill_(3)
    assert device.free_bytes() == BUDGET // 4
    with pytest.raises(DeviceMemoryError, match=f"{BUDGET // 4}"):
        second.resize(BUDGET)
    assert bool((second.tensor == 3).all())
    assert second.tensor.numel() == BUDGET // 4
    first.resize(0)
    second.resize(BUDGET)
    assert device.free_bytes() == 0
    assert bool((second.tensor[: BUDGET // 4] == 3).all())


def test_close_when_region_is_closed_twice_gives_its_budget_back_once():
    """Load and unload must not drift."""
    device = open_device("cpu", BUDGET)
    region = device.region(8 * PAGE, 8 * PAGE)
    region.close()
    region.close()
    assert device.free_bytes() == device.total_bytes() == BUDGET


@pytest.mark.parametrize("can_map", [True, False])
def test_region_when_the_system_refuses_leaves_the_budget_whole(monkeypatch, can_map):
    """No address range, or no memory: one error, and nothing stays charged."""

    def refuse(*_arguments, **_options):
        raise OSError(12, "Cannot allocate memory") if can_map else RuntimeError("no memory")

    device = open_device("cpu", BUDGET)
    monkeypatch.setattr(host, "CAN_MAP", can_map)
    monkeypatch.setattr(host, "reserve", refuse)
    with monkeypatch.context() as fault:
        fault.setattr(torch, "empty", refuse)
        with pytest.raises(DeviceMemoryError):
            device.region(8 * PAGE, 4 * PAGE)
    with pytest.raises(ValueError, match="asked of a region"):
        device.region(PAGE, 4 * PAGE)
    assert device.free_bytes() == BUDGET


@pytest.mark.gpu
def test_host_buffer_when_on_a_gpu_is_pinned_to_the_byte():
    """Registered memory of any size, read by the card, and free for the next one after close."""
    device = _open("cuda")
    for _ in range(2):
        buffer = device.host_buffer(3 * PAGE + 5)
        assert (buffer.pinned, buffer.reason, buffer.tensor.is_pinned()) == (True, "", True)
        buffer.tensor.fill_(6)
        region = device.region(4 * PAGE, 3 * PAGE + 5)
        device.wait(device.copy(region.tensor, buffer.tensor))
        assert bool((region.tensor == 6).all())
        region.close()
        buffer.close()
    device.close()


@pytest.mark.gpu
def test_host_buffer_when_a_gpu_refuses_the_pin_is_pageable_and_harmless():
    """The same memory twice: refused with a reason, and the next launch knows nothing of it."""
    device = _open("cuda")
    first = device.host_buffer(4 * PAGE)
    twin = device._pin(PlainBuffer(first.tensor))
    assert (twin.pinned, twin.pinned_bytes) == (False, 0)
    assert "already" in twin.reason
    assert torch.ones(4, device=device.torch_device).sum().item() == 4
    twin.close()
    assert first.tensor.is_pinned()  # who was refused lets nothing of another go
    first.close()
    device.close()


def pinned_at(buffer: HostBuffer, start: int) -> bool:
    """Whether a byte is pinned: torch asks for the first one of a storage."""
    whole = buffer.tensor.numpy()
    return torch.frombuffer(whole, dtype=torch.uint8, count=1, offset=start).is_pinned()


def arrives(device: Device, buffer: HostBuffer, piece: slice) -> bool:
    """Whether the device gets a piece of the buffer as it is."""
    source = buffer.tensor[piece]
    region = device.region(source.numel(), source.numel())
    device.wait(device.copy(region.tensor, source))
    same = region.tensor.cpu().equal(source)
    region.close()
    return same


@pytest.mark.gpu
def test_host_buffer_when_pinned_in_pieces_on_a_gpu_then_each_can_be_copied_and_let_go():
    """Neighbours are pinned apart, the last one shorter; after `unpin` all is pageable."""
    device = _open("cuda")
    size = 3 * PIECE + PAGE + 5
    pieces = [slice(start, min(start + PIECE, size)) for start in range(0, size, PIECE)]
    for _ in range(2):  # memory of the first round may come again
        buffer = device.host_buffer(size, PIECE)
        assert (buffer.pinned, buffer.pinned_bytes, buffer.reason) == (True, size, "")
        buffer.tensor.copy_(torch.arange(size) % 251)
        assert all(pinned_at(buffer, piece.start) for piece in pieces)
        assert all(arrives(device, buffer, piece) for piece in pieces)
        assert buffer.unpin("Nobody needs it.")
        assert not any(pinned_at(buffer, piece.start) for piece in pieces)
        assert all(arrives(device, buffer, piece) for piece in pieces)
        buffer.close()
    device.close()


@pytest.mark.gpu
def test_host_buffer_when_a_gpu_refuses_a_piece_then_those_before_it_stay_pinned():
    """The third piece is pinned by another already: two serve, and no launch fails for it."""
    device = _open("cuda")
    plain = plain_buffer(4 * PIECE)
    plain.tensor.copy_(torch.arange(4 * PIECE) % 251)
    third = device._pin(PlainBuffer(plain.tensor[2 * PIECE : 3 * PIECE]))
    buffer = device._pin(plain, PIECE)
    assert (buffer.pinned, buffer.pinned_bytes) == (False, 2 * PIECE)
    assert "already" in buffer.reason
    assert torch.ones(4, device=device.torch_device).sum().item() == 4
    starts = range(0, 4 * PIECE, PIECE)
    assert [pinned_at(buffer, start) for start in starts] == [True, True, True, False]
    assert all(arrives(device, buffer, slice(start, start + PIECE)) for start in starts)
    assert buffer.unpin("Nobody needs it.")
    assert [pinned_at(buffer, start) for start in starts] == [False, False, True, False]
    third.close()
    device.close()


@pytest.mark.linux
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: pages are given back by madvise")
def test_shrink_when_on_linux_really_gives_pages_back():
    """Bytes behind a shrink are gone: they read as zero when mapped again, at the same address."""
    device = open_device("cpu", BUDGET)
    region = device.region(8 * PAGE, 8 * PAGE)
    region.tensor.fill_(5)
    address = region.tensor.data_ptr()
    region.resize(3 * PAGE - 1)
    region.resize(8 * PAGE)
    assert region.tensor.data_ptr() == address
    assert bool((region.tensor[: 3 * PAGE - 1] == 5).all())
    assert bool((region.tensor[3 * PAGE :] == 0).all())


def test_copied_region_when_allocation_fails_keeps_the_old_memory():
    """The fallback without virtual memory rolls back by itself (case M-01)."""
    sizes = []

    def allocate(num_bytes):
        if sizes and num_bytes > 100:
            raise DeviceMemoryError("full")
        sizes.append(num_bytes)
        return torch.zeros(num_bytes, dtype=torch.uint8)

    region = CopiedRegion(allocate, lambda: None, 1000, 50)
    region.tensor.fill_(4)
    with pytest.raises(DeviceMemoryError):
        region.resize(500)
    assert bool((region.tensor == 4).all())
    assert region.tensor.numel() == 50


def test_copy_when_waited_for_has_arrived(device: Device):
    """A copy is there behind its event, on the device's own queue and on a stream."""
    source = device.host_buffer(4 * PAGE)
    source.tensor.fill_(11)
    region = device.region(8 * PAGE, 8 * PAGE)
    stream = device.stream()
    first = device.copy(region.tensor[: 4 * PAGE], source.tensor, device.record())
    second = stream.copy(region.tensor[4 * PAGE :], source.tensor, first)
    device.wait(second)
    assert bool((region.tensor == 11).all())
    second.synchronize()
    assert first.done()
    assert second.done()
    assert second.seconds() > 0.0
    stream.close()
    region.close()


def test_stream_when_closed_ends_its_thread():
    """Copy threads do not outlive their stream."""
    before = set(threading.enumerate())
    stream = open_device("cpu").stream()
    stream.copy(torch.empty(8), torch.ones(8)).synchronize()
    stream.close()
    assert set(threading.enumerate()) == before


def test_stream_when_a_copy_fails_tells_whoever_waits():
    """An error on the copy thread is not lost, and the thread goes on."""
    stream = open_device("cpu").stream()
    bad = stream.copy(torch.empty(3), torch.ones(4))
    with pytest.raises(RuntimeError, match="size"):
        bad.synchronize()
    stream.copy(torch.empty(4), torch.ones(4)).synchronize()
    stream.close()


def test_fake_when_nobody_waits_has_not_copied():
    """The fake device makes a missing wait visible."""
    device = FakeDevice()
    target = torch.zeros(4)
    event = device.copy(target, torch.ones(4))
    assert not event.done()
    assert target.sum() == 0
    device.synchronize()
    assert target.sum() == 4


def test_fake_when_told_refuses_pins_growth_and_answers():
    """Each fault hook does what it says."""
    device = FakeDevice()
    assert device.host_buffer(16).pinned
    device.pins.limit = 0
    buffer = device.host_buffer(16)
    assert not buffer.pinned
    assert buffer.reason.endswith(".")
    region = device.region(64, 16)
    device.refuse_growth = True
    with pytest.raises(DeviceMemoryError):
        region.resize(32)
    region.resize(8)
    device.lost = True
    with pytest.raises(DeviceLostError):
        device.copy(torch.zeros(1), torch.ones(1))
    with pytest.raises(DeviceLostError):
        device.synchronize()


@pytest.fixture
def broken_cuda(monkeypatch):
    """CUDA fails as on a card that another program has filled."""

    def fail(*_arguments):
        raise RuntimeError("CUDA error: out of memory")

    for name in ("is_available", "device_count", "mem_get_info", "init"):
        monkeypatch.setattr(f"torch.cuda.{name}", fail)


@pytest.mark.usefixtures("broken_cuda")
def test_open_when_only_cpu_is_asked_never_touches_cuda():
    """A CPU-only start works on a machine whose card is full (case E-13)."""
    (facts,) = list_devices()
    device = open_device("cpu")
    assert facts.name == device.name == "cpu"
    assert facts.emulated
    assert facts.title
    assert 0 < facts.free_bytes <= facts.total_bytes
    assert device.torch_device == torch.device("cpu")


@pytest.mark.usefixtures("broken_cuda")
def test_list_when_cuda_is_asked_and_broken_carries_the_reason():
    """A card that does not answer is listed with the driver's sentence; the CPU stays usable."""
    cpu, card = list_devices(("cpu", "cuda"))
    assert not cpu.problem
    assert "out of memory" in card.problem
    with pytest.raises(DeviceLostError, match="out of memory"):
        open_device("cuda:0")


@pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "cpu:1"])
def test_open_when_the_name_is_unknown_says_what_there_is(name):
    """A wrong name is answered with the known kinds."""
    with pytest.raises(DeviceLostError, match="known kinds: cpu, cuda, fake"):
        open_device(name)
