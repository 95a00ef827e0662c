"""The experts of captured steps as the host sees them: on the fake device, without kernels."""

import ctypes
from collections.abc import Callable
from typing import Literal

import pytest
import torch

from engine.moe import device_prefill
from engine.moe.arena import ExpertArena
from engine.moe.device_experts import DeviceExperts, DeviceParts
from engine.moe.device_planner import PrefillRates
from engine.moe.device_prefill import DevicePrefill, PrefillOptions
from engine.moe.device_residency import DeviceResidency
from engine.moe.pool import ExpertPool
from engine.moe.prompt_routes import RouteCounter
from engine.moe.router import Routing, kept
from engine.protocol.messages import MissPolicy
from kernels.cuda.dense import StepReport
from kernels.cuda.moe_state import MoeState
from kernels.device.base import DeviceMemoryError
from kernels.device.fake import FakeDevice
from kernels.reference.grouped import ReferenceGrouped
from tests.engine.moe.test_device_residency import EXPERTS, LAYERS, LAYOUT, RECORDS, SHAPE

SLOTS = 6


class Failing(FakeDevice):
    """Refuses one of its host buffers or copy queues, and counts those that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1 << 30  # until one is refused
        self.open_buffers = 0

    def host_buffer(self, num_bytes: int, piece_bytes: int = 0):
        """Allocate, or refuse."""
        self._count()
        buffer = super().host_buffer(num_bytes, piece_bytes)
        self.open_buffers += 1
        close = buffer.close

        def closed() -> None:
            self.open_buffers -= 1
            close()

        buffer.close = closed
        return buffer

    def stream(self):
        """Open a queue, or refuse."""
        self._count()
        return super().stream()

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DeviceMemoryError("none is left")


class Threads:
    """A CPU pool that can be closed once."""

    def __init__(self) -> None:
        self.closed = 0

    def wake(self) -> None:
        """Nobody sleeps."""

    def close(self) -> None:
        """End."""
        self.closed += 1


def parts_on(
    device: FakeDevice,
    threads: Threads,
    slots: int = SLOTS,
    loading: Literal["auto", "stream", "demand"] = "auto",
) -> DeviceParts:
    """Everything that experts are built from."""
    buffer = device.host_buffer(RECORDS * LAYOUT.record_bytes)
    pool = ExpertPool(LAYOUT, LAYERS, EXPERTS, buffer)
    arena = ExpertArena(device, LAYOUT, RECORDS, slots)
    state = MoeState(SHAPE, torch.device("cpu"), slots)
    residency = DeviceResidency(state, arena, EXPERTS)
    kernel = ReferenceGrouped(LAYOUT, torch.device("cpu"), torch.float32)
    options = PrefillOptions(staging_records=4, loading=loading)
    prefill = DevicePrefill(pool, residency, device, kernel, options)
    memory = torch.zeros(ctypes.sizeof(StepReport), dtype=torch.uint8)
    report = StepReport.from_address(memory.data_ptr())
    return DeviceParts(pool, arena, state, prefill, residency, threads, report, (memory,))


@pytest.mark.parametrize("left", range(4))
def test_experts_when_a_part_is_refused_then_everything_is_given_back(left: int) -> None:
    """Whichever buffer or queue it was: a load that fails leaves nothing on the device."""
    device, threads = Failing(), Threads()
    before = device.free_bytes()
    parts = parts_on(device, threads)
    assert device.free_bytes() < before
    device.left = left
    with pytest.raises(DeviceMemoryError):
        DeviceExperts(parts, MissPolicy.TWO_ENDED, None, device)
    assert device.free_bytes() == before
    assert threads.closed == 1
    assert device.open_buffers == 1  # the pool's, which is another's


def test_experts_when_closed_then_everything_is_given_back() -> None:
    """Slots, staging, host buffers and threads."""
    device, threads = Failing(), Threads()
    before = device.free_bytes()
    DeviceExperts(parts_on(device, threads), MissPolicy.TWO_ENDED, None, device).close()
    assert (device.free_bytes(), threads.closed, device.open_buffers) == (before, 1, 1)


def chunk(experts: DeviceExperts, ids: tuple[int, int], last: bool) -> None:
    """Run a prompt chunk of 40 tokens through all layers; each routes the same two experts."""
    experts.start(40, 2, last)
    for layer in range(LAYERS):
        routes = torch.tensor([ids] * 40, dtype=torch.int32)
        routing = Routing(routes, torch.full((40, 2), 0.5))
        hidden = torch.ones(40, LAYOUT.hidden)
        experts.add(layer, hidden, kept(hidden.clone()), routing, "prefill")


def test_prompt_of_several_chunks_then_its_last_experts_move_to_slots_of_every_layer() -> None:
    """Chunks before the end take free slots only; the end takes those of colder experts."""
    device = FakeDevice()
    experts = DeviceExperts(parts_on(device, Threads()), MissPolicy.TWO_ENDED, None, device)
    state = experts._parts.state

    def resident() -> list[list[int]]:
        found = sorted(state.snapshot().resident())
        return [[r % EXPERTS for r in found if r // EXPERTS == layer] for layer in range(LAYERS)]

    chunk(experts, (0, 1), last=False)
    assert resident() == [[0, 1]] * LAYERS  # the used ones, before others that were copied along
    chunk(experts, (2, 3), last=False)
    assert resident() == [[0, 1]] * LAYERS
    for _ in range(3):
        chunk(experts, (4, 5), last=False)
        assert resident() == [[0, 1]] * LAYERS
    chunk(experts, (4, 5), last=True)
    assert resident() == [[4, 5]] * LAYERS
    tables, parts = state.snapshot(), experts._parts
    for slot, record in enumerate(tables.owner[:SLOTS].tolist()):
        assert parts.arena.slot(slot).equal(parts.pool.record(record))
    experts.close()


def test_prompts_teach_how_many_experts_their_tokens_route() -> None:
    """Of those that were missing: two of eight in each layer, then none; both ways of loading."""
    for loading in ("stream", "demand"):
        device = FakeDevice()
        parts = parts_on(device, Threads(), loading=loading)
        experts = DeviceExperts(parts, MissPolicy.TWO_ENDED, None, device)
        chunk(experts, (0, 1), last=True)
        learned = PrefillRates().with_routes(40, 2, EXPERTS, 2 / EXPERTS).variety
        assert learned < PrefillRates().variety
        assert parts.prefill.rates.variety == learned
        chunk(experts, (0, 1), last=True)
        fallen = PrefillRates(variety=learned).with_routes(40, 2, EXPERTS, 0.0).variety
        assert parts.prefill.rates.variety == fallen < learned
        experts.close()


@pytest.mark.parametrize("slots", [RECORDS - 1, RECORDS])
def test_prompt_when_every_expert_finds_a_slot_then_no_layer_waits_for_its_routes(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """Nothing is left to choose: neither who is worth a slot, nor who was used last."""
    read: list[str] = []

    def noting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: (read.append(name), function(*given))[1]

    monkeypatch.setattr(RouteCounter, "count", noting("uses", RouteCounter.count))
    monkeypatch.setattr(device_prefill, "hotness", noting("heat", device_prefill.hotness))
    device = FakeDevice()
    parts = parts_on(device, Threads(), slots)
    experts = DeviceExperts(parts, MissPolicy.TWO_ENDED, None, device)
    for _ in range(2):
        chunk(experts, (0, 1), last=True)
    assert set(read) == (set() if slots == RECORDS else {"uses", "heat"})
    assert len(parts.state.snapshot().resident()) == slots
    experts.close()
