"""The executor's phases: counters, faults, tiny caches, and what it leaves behind."""

import threading

import pytest
import torch

from engine.memory.bandwidth import Rates
from engine.moe.executor import MoeOptions
from engine.protocol.errors import BudgetError, DeviceError
from engine.protocol.messages import MissPolicy
from kernels.layouts import RecordLayout
from tests.engine.moe.world import (
    EXPERTS,
    LAYERS,
    LAYOUT,
    RECORDS,
    TOP_K,
    World,
    oracle,
    random_step,
    route_to,
)

DEVICES = ("cpu", "fake")
EVEN = Rates(fill=10.0, cpu=20.0)


def _run(world, steps=6, tokens=2):
    for seed in range(steps):
        world.decode(seed % LAYERS, *random_step(seed, tokens))
    return world.moe.counters()


@pytest.mark.parametrize("device", DEVICES)
def test_counters_when_a_policy_runs_count_their_kind(device):
    """`fill_only`, `cpu_only` and `split` each show non-zero counters of their kind."""
    for policy, fills, cpu in (
        (MissPolicy.FILL_ONLY, True, False),
        (MissPolicy.CPU_ONLY, False, True),
        (MissPolicy.SPLIT, True, True),
    ):
        with World(device, 16, policy, EVEN) as world:
            counts = _run(world)
            assert counts.routes == 6 * 2 * TOP_K == counts.hits + counts.fills + counts.cpu
            assert (counts.fills > 0, counts.cpu > 0) == (fills, cpu)
            assert (counts.fill_bytes > 0, counts.fill_s > 0) == (fills, fills)
            assert (counts.cpu_bytes > 0, counts.cpu_s > 0) == (cpu, cpu)
            assert counts.fill_bytes % LAYOUT.record_bytes == 0
            assert (counts.hits > 0) == fills
            assert counts.prefill_bytes == 0


def test_counters_when_experts_are_shared_by_rows_copy_them_once():
    """Shares count routes, bytes count copies."""
    with World("cpu", 8, MissPolicy.FILL_ONLY) as world:
        world.decode(0, *route_to(0, 1, 2, tokens=4))
        counts = world.moe.counters()
        assert counts.fills == 12
        assert counts.fill_bytes == 3 * LAYOUT.record_bytes


def test_split_when_rates_change_follows_them():
    """Four misses at B_P / B_H = 1/4: one fill, three on the CPU (the paper's Figure 2)."""
    with World("cpu", 12, MissPolicy.SPLIT, Rates(fill=10.0, cpu=40.0)) as world:
        world.decode(0, *route_to(0, 1, 2, 3))
        counts = world.moe.counters()
        assert (counts.fills, counts.cpu) == (1, 3)
        world.moe.set_rates(Rates(fill=10.0, cpu=10.0))
        world.decode(1, *route_to(0, 1, 2, 3))
        counts = world.moe.counters()
        assert (counts.fills, counts.cpu) == (5, 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_decode_when_prompts_touch_all_experts_evicts_none_in_use(device, slots):
    """Two prompts in a row through every expert, cache smaller than the layer (case E-18)."""
    with World(device, slots, MissPolicy.FILL_ONLY) as world:
        for _ in range(2):
            for layer in range(LAYERS):
                hidden, routing = random_step(layer, 12)
                routing.ids.copy_(torch.arange(12 * TOP_K).view(12, TOP_K) % EXPERTS)
                world.prefill(layer, hidden, routing)
                output = world.decode(
                    layer, hidden[:8], type(routing)(routing.ids[:8], routing.weights[:8])
                )
                wanted = oracle(world.pool, layer, hidden, routing)[:8]
                assert torch.equal(output, wanted)
        assert world.moe.counters().cpu == 0
        assert world.moe.num_resident == slots


@pytest.mark.parametrize("device", DEVICES)
def test_resize_when_the_device_refuses_keeps_the_old_cache(device):
    """Refused growth: sentence, old size, contents, and serving goes on (case M-01)."""
    room = 16 * LAYOUT.record_bytes
    with World(device, 3, MissPolicy.FILL_ONLY, options=MoeOptions(2), budget_bytes=room) as world:
        world.decode(0, *route_to(0, 1, 2))
        held = world.cache.resident()
        with pytest.raises(BudgetError, match="No room for 15 experts") as refusal:
            world.moe.resize(15)
        assert refusal.value.hint
        assert world.moe.num_slots == 3
        assert world.cache.resident() == held
        hidden, routing = route_to(0, 1, 2)
        output = world.decode(0, hidden, routing)
        assert torch.equal(output, oracle(world.pool, 0, hidden, routing))
        assert world.moe.counters().hits == 3
        world.moe.resize(14)
        assert world.moe.num_slots == 14


def test_resize_when_shrunk_keeps_the_hottest_and_says_who_lost():
    """Bytes follow the slots; the most recently routed survive and still hit."""
    with World("cpu", 6, MissPolicy.FILL_ONLY) as world:
        for expert in range(6):
            world.decode(0, *route_to(expert))
        outcome = world.moe.resize(2)
        assert (outcome.slots, outcome.evicted) == (2, 4)
        assert world.cache.resident() == (4, 5)
        assert world.moe.arena_bytes == 2 * LAYOUT.record_bytes
        before = world.moe.counters().hits
        hidden, routing = route_to(4, 5)
        output = world.decode(0, hidden, routing)
        assert torch.equal(output, oracle(world.pool, 0, hidden, routing))
        assert world.moe.counters().hits == before + 2


@pytest.mark.parametrize("slots", [0, -1, RECORDS + 1])
def test_resize_when_out_of_bounds_is_refused_with_the_bounds(slots):
    """The bounds that the executor names are the ones it keeps."""
    with World("cpu", 4) as world:
        assert (world.moe.min_slots, world.moe.max_slots) == (1, RECORDS)
        with pytest.raises(BudgetError, match=f"1 to {RECORDS}"):
            world.moe.resize(slots)
        assert world.moe.num_slots == 4


def test_prefill_when_done_has_warmed_the_cache_with_the_last_tokens():
    """The most recently routed experts are resident afterwards and hit in decode."""
    with World("cpu", 3 * LAYERS, MissPolicy.SPLIT) as world:
        for layer in range(LAYERS):
            hidden, routing = random_step(layer, 20)
            routing.ids[-1] = torch.tensor([5, 1, 3])
            world.prefill(layer, hidden, routing)
        for layer in range(LAYERS):
            world.decode(layer, *route_to(5, 1, 3))
        counts = world.moe.counters()
        assert (counts.hits, counts.fills, counts.cpu) == (9, 0, 0)
        # Whole layers were staged once; warming copied from there.
        assert counts.prefill_bytes == RECORDS * LAYOUT.record_bytes


def test_prefill_when_the_policy_never_fills_leaves_the_cache_alone():
    """`cpu_only` keeps the cache as it is."""
    with World("cpu", 5, MissPolicy.CPU_ONLY) as world:
        world.prefill(0, *random_step(1, 20))
        assert world.moe.num_resident == 0


def test_prefill_when_the_chunk_is_short_streams_only_what_it_routes():
    """One token of three experts copies three records, not the layer."""
    with World("cpu", 5, MissPolicy.CPU_ONLY) as world:
        world.prefill(0, *route_to(0, 2, 4))
        assert world.moe.counters().prefill_bytes == 3 * LAYOUT.record_bytes


def test_heat_when_routes_were_counted_shows_use_and_residency():
    """The map has one byte per expert: use scaled to 255, and who is in a slot."""
    with World("cpu", 8, MissPolicy.FILL_ONLY) as world:
        world.decode(1, *route_to(0, 2))
        world.decode(1, *route_to(2, 3))
        hits, resident, top = world.moe.heat()
        assert top == 2
        assert {i: uses for i, uses in enumerate(hits) if uses} == {6: 128, 8: 255, 9: 128}
        assert [i for i, is_there in enumerate(resident) if is_there] == [6, 8, 9]


def test_forward_when_the_device_is_lost_raises_and_forgets_what_never_arrived():
    """A copy that did not arrive is not taken for resident."""
    with World("fake", 6, MissPolicy.SPLIT) as world:
        world.decode(0, *route_to(0, 1))
        world.device.lost = True
        with pytest.raises(DeviceError, match="lost"):
            world.decode(0, *route_to(2, 3, 4, 5))
        with pytest.raises(DeviceError, match="lost"):
            world.prefill(0, *random_step(3, 20))
        world.device.lost = False
        hidden, routing = route_to(2, 3, 4, 5)
        assert torch.equal(world.decode(0, hidden, routing), oracle(world.pool, 0, hidden, routing))


def test_forward_when_a_queued_copy_never_lands_forgets_all_of_the_step(monkeypatch):
    """The device goes away between publish and wait: none of that step's fills is resident."""
    with World("fake", 6, MissPolicy.SPLIT) as world:

        def lose(event):
            world.device.lost = True
            event.synchronize()

        with monkeypatch.context() as fault:
            fault.setattr(world.device, "wait", lose)
            with pytest.raises(DeviceError, match="lost"):
                world.decode(0, *route_to(0, 1, 2, 3))
        assert world.cache.resident() == ()
        world.device.lost = False
        hidden, routing = route_to(0, 1, 2, 3)
        assert torch.equal(world.decode(0, hidden, routing), oracle(world.pool, 0, hidden, routing))


def test_forward_when_torch_reports_the_device_lost_raises_a_device_error(monkeypatch):
    """A fault shows in whatever touches the card next, not only in the seam's own calls."""
    with World("fake", 6, MissPolicy.FILL_ONLY) as world:

        def fault(*_arguments):
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

        monkeypatch.setattr(world.moe, "_merge", fault)
        with pytest.raises(DeviceError, match="illegal memory access"):
            world.decode(0, *route_to(0, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_forward_when_the_cpu_side_fails_raises_and_goes_on(device, monkeypatch):
    """What the worker raised reaches the caller, and the next step finds it idle."""
    with World(device, 6, MissPolicy.CPU_ONLY) as world:

        def fail(_index):
            raise RuntimeError("bad memory")

        with monkeypatch.context() as fault:
            fault.setattr(world.pool, "record", fail)
            with pytest.raises(RuntimeError, match="bad memory"):
                world.decode(0, *route_to(0, 1))
        hidden, routing = route_to(0, 1)
        assert torch.equal(world.decode(0, hidden, routing), oracle(world.pool, 0, hidden, routing))


def test_fake_when_a_step_runs_publishes_fills_before_it_waits():
    """Phases: every copy of a layer is queued before the first is waited for."""
    with World("fake", 8, MissPolicy.FILL_ONLY) as world:
        world.device.calls.clear()
        world.decode(0, *route_to(0, 1, 2))
        kinds = [kind for kind, _ in world.device.calls]
        assert kinds == ["copy"] * 3 + ["wait"] * 3


def test_pool_when_pinning_is_refused_says_so_per_record():
    """The plan receives misses with their class; a refused pin has a reason (M-02)."""
    from kernels.device.fake import FakeDevice
    from tests.engine.moe.world import make_pool

    device = FakeDevice()
    assert make_pool(device).memory_class(0) == "pinned"
    device.pins.limit = 0
    pool = make_pool(device)
    assert pool.memory_class(RECORDS - 1) == "pageable"
    assert "refuse" in pool.pin_problem
    with pytest.raises(IndexError):
        pool.memory_class(RECORDS)


def test_pool_when_a_piece_is_refused_then_the_layers_before_it_are_pinned():
    """Case M-02: per layer, with both figures and the driver's words; gone after `unpin`."""
    from kernels.device.fake import FakeDevice
    from tests.engine.moe.world import make_pool

    layout = RecordLayout(64, 32, "bf16")
    size = EXPERTS * layout.record_bytes
    for limit in (None, 2, 1):
        device = FakeDevice()
        device.pins.limit = limit
        pool = make_pool(device, layout=layout, piece_bytes=size)
        num_pinned = LAYERS if limit is None else limit
        assert (pool.num_pinned_layers, pool.is_pinned) == (num_pinned, limit is None)
        assert pool.pinned_bytes == num_pinned * size
        for layer in range(LAYERS):
            assert pool.is_layer_pinned(layer) == (layer < num_pinned)
            for record in (layer * EXPERTS, (layer + 1) * EXPERTS - 1):
                assert (pool.memory_class(record) == "pinned") == (layer < num_pinned)
        if limit is None:
            assert pool.pin_problem == ""
            assert pool.unpin("Enough.")
            assert (pool.is_pinned, pool.pinned_bytes, pool.pin_problem) == (False, 0, "Enough.")
    assert pool.pin_problem == (
        "Only 72 KiB of 216 KiB could be pinned (1 of 3 layers). "
        "The driver refused to pin more: the fake device was told to refuse."
    )
    with pytest.raises(IndexError):
        pool.is_layer_pinned(LAYERS)


def test_executor_when_only_some_layers_are_pinned_then_bits_are_the_same():
    """Fills from pageable memory, and what the CPU computes, differ in nothing but time."""
    with World("fake", 4, pinned_layers=1) as world:
        assert not world.pool.is_pinned
        for policy in MissPolicy:
            world.moe.set_policy(policy)
            for layer in range(LAYERS):
                hidden, routing = random_step(layer)
                expected = oracle(world.pool, layer, hidden, routing)
                assert torch.equal(world.decode(layer, hidden, routing), expected)


def test_executor_when_the_device_has_no_room_says_so():
    """No room for slots or staging is a sentence, not a crash."""
    one = LAYOUT.record_bytes
    with pytest.raises(BudgetError, match="No room for 4 experts"), World(budget_bytes=3 * one):
        pass
    with pytest.raises(BudgetError, match="staging"), World(budget_bytes=5 * one):
        pass


@pytest.mark.parametrize("device", DEVICES)
def test_close_when_called_leaves_no_thread_and_no_memory(device):
    """Load and unload leave nothing behind."""
    before = set(threading.enumerate())
    with World(device, 8) as world:
        _run(world)
        world.prefill(0, *random_step(0, 20))
    assert set(threading.enumerate()) == before
    if device == "cpu":
        assert world.device.free_bytes() == world.device.total_bytes()


def test_decode_when_the_step_loop_is_in_inference_mode_then_the_worker_can_write():
    """Inference mode belongs to a thread; the worker beside an accelerator must enter it too."""
    hidden, routing = random_step(11)
    with World("fake", policy=MissPolicy.CPU_ONLY) as plain:
        expected = plain.decode(0, hidden, routing)
    with World("fake", policy=MissPolicy.CPU_ONLY) as world, torch.inference_mode():
        assert torch.equal(world.decode(0, hidden, routing), expected)
