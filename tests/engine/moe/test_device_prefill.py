"""A prompt through streamed experts: right, same bits for any residency, nothing overwritten."""

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe import device_planner
from engine.moe.device_planner import plan_groups
from engine.moe.device_prefill import PrefillOptions
from engine.protocol.errors import BudgetError
from kernels.device.fake import FakeDevice
from kernels.device.registry import open_device
from tests.engine.moe.prefill_world import OrderedDevice, PrefillWorld, chunk_of
from tests.engine.moe.routes import prompt_uses
from tests.engine.moe.world import EXPERTS, LAYERS, LAYOUT, RECORDS, TOP_K, oracle

TWO_LAYERS = 2 * EXPERTS


def same(got, wanted):
    return all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.fixture
def exact_runs(monkeypatch):
    """Copy nothing but what is missing: the test's records are small."""
    monkeypatch.setattr(device_planner, "BRIDGE_BYTES", 0)


@pytest.fixture(scope="module")
def cold():
    """Return what each layer gives with nothing resident, for one chunk."""
    with PrefillWorld() as world:
        return world.run(chunk_of(19))


def test_output_is_that_of_the_experts(cold):
    """Against the decode kernels of the CPU, route by route; float32 sums in another order."""
    hidden, routings = chunk_of(19)
    with PrefillWorld() as world:
        for layer, routing in enumerate(routings):
            wanted = oracle(world.pool, layer, hidden, routing)
            bound = 1e-5 * wanted.abs().max().item()
            torch.testing.assert_close(cold[layer], wanted, rtol=0, atol=bound)


@settings(deadline=None, max_examples=20)
@given(
    resident=st.sets(st.integers(0, RECORDS - 1)).flatmap(lambda s: st.permutations(sorted(s))),
    spare=st.integers(0, 4),
    staging=st.integers(EXPERTS, 3 * EXPERTS),
    loading=st.sampled_from(["auto", "stream", "demand"]),
    bridge=st.sampled_from([0, 2 * LAYOUT.record_bytes]),
    again=st.booleans(),
)
def test_bits_do_not_depend_on_residency_and_nothing_is_overwritten(
    cold, resident, spare, staging, loading, bridge, again
):
    """Any residency, ring and way of loading: the bits of the cold run, in legal order.

    The device checks that no place of the ring is written before its readers are through and that
    nothing is read before it has landed; so does a second chunk, over what the first left behind.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_planner, "BRIDGE_BYTES", bridge)
        patch.setattr(device_planner, "GROUP_BYTES", LAYOUT.record_bytes)
        options = {"staging_records": staging, "loading": loading, "warm_tokens": 4}
        with PrefillWorld(resident, len(resident) + spare or 1, **options) as world:
            assert same(world.run(chunk_of(19)), cold)
            if again:
                assert same(world.run(chunk_of(19)), cold)


@pytest.mark.parametrize("staging", [2, 3, 5])
def test_ring_smaller_than_a_layer_passes_groups(staging):
    """Any ring from two records works; a layer's groups then give way to each other."""
    chunk = chunk_of(19)
    with (
        PrefillWorld(staging_records=staging) as bare,
        PrefillWorld(range(0, RECORDS, 2), staging_records=staging, tile_tokens=4) as half,
    ):
        wanted = bare.run(chunk)
        assert same(half.run(chunk), wanted)
        assert {tile for tile, _ in half.kernel.chunks} == {19}


@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_chunk_in_tiles_crosses_the_link_once(name, exact_runs):
    """Tiles of a chunk share the staged layer; the tile's length changes no launch shape."""
    device = open_device(name)
    resident = (0, 3, 7, 11, 12)
    with PrefillWorld(resident, device=device, tile_tokens=8, warm_tokens=0) as world:
        outputs = world.run(chunk_of(20))
        moved = world.prefill.num_bytes
        assert moved == (RECORDS - len(resident)) * LAYOUT.record_bytes
        assert world.prefill.seconds > 0.0
    assert world.kernel.chunks == [(6, 20), (7, 20), (7, 20)] * LAYERS
    hidden, routings = chunk_of(20)
    for layer, routing in enumerate(routings):
        wanted = oracle(world.pool, layer, hidden, routing)
        bound = 1e-5 * wanted.abs().max().item()
        torch.testing.assert_close(outputs[layer], wanted, rtol=0, atol=bound)


def test_demand_loading_copies_routed_records_only(exact_runs):
    """Two tokens route at most six of six experts; what they do not route stays in host memory."""
    hidden, routings = chunk_of(1)
    resident = (1, 6, 8)
    with PrefillWorld(resident, loading="demand") as world:
        world.run((hidden, routings))
        needed = {
            layer * EXPERTS + expert
            for layer, routing in enumerate(routings)
            for expert in routing.ids.flatten().tolist()
        }
        assert world.prefill.num_bytes == len(needed - {*resident}) * LAYOUT.record_bytes


def test_everything_resident_copies_nothing_and_reads_no_routes():
    """At full residency there is nothing to choose, wait for or hand on."""
    with PrefillWorld(range(RECORDS), loading="demand") as world:
        world.run(chunk_of(5))
        assert world.prefill.num_bytes == 0
        assert world.slots.offers == []


def test_everything_resident_and_unmoved_then_tables_are_not_sent_again(exact_runs, monkeypatch):
    """They are as soon as a record moved, and behind a chunk whose tables named the ring."""
    device, chunk = FakeDevice(), chunk_of(5)

    def refuse(*_given):
        raise MemoryError

    def uploads():
        device.calls.clear()
        got = world.run(chunk)
        return got, sum(what == "copy" for what, _ in device.calls)

    with PrefillWorld(range(RECORDS), num_slots=RECORDS, device=device) as world:
        owner, memory = world.slots.owner, world.slots.memory
        first, sent = uploads()
        assert sent == 1
        again, sent = uploads()
        assert (same(again, first), sent) == (True, 0)
        owner[1], owner[EXPERTS] = owner[EXPERTS], owner[1]
        memory[[owner[1], owner[EXPERTS]]] = memory[[owner[EXPERTS], owner[1]]]
        moved, sent = uploads()
        assert (same(moved, first), sent) == (True, 1)
        slot = owner.pop(2)
        memory[slot] = 0
        _, sent = uploads()  # one layer's record comes over the link, and stays
        assert (sent, owner[2]) == (2, slot)
        back, sent = uploads()
        assert (same(back, first), sent) == (True, 1)
        world.slots.memory = memory.clone()  # as a resize that moves all of it
        memory.zero_()
        with monkeypatch.context() as refusal:
            refusal.setattr(world.prefill._tables, "upload", refuse)
            with pytest.raises(MemoryError):
                world.run(chunk)
        elsewhere, sent = uploads()
        assert (same(elsewhere, first), sent) == (True, 1)


def test_chunk_that_is_given_up_leaves_nothing_for_the_next(exact_runs):
    """What it had queued is read before its places and tables are written anew."""
    chunk = chunk_of(6)
    hidden, routings = chunk
    with PrefillWorld() as world:
        wanted = world.run(chunk)
        world.prefill.start(6, 3)
        world.add(0, hidden, routings[0])
        assert same(world.run(chunk), wanted)


def test_copies_of_the_next_layers_are_queued_before_the_first_is_computed():
    """Layer l + 1 crosses the link while l computes: with room for two, both are queued at once."""
    device = FakeDevice()
    with PrefillWorld(device=device, staging_records=TWO_LAYERS) as world:
        device.calls.clear()
        world.prefill.start(9, 3)
        copies = [size for what, size in device.calls if what == "copy"]
        assert copies[1:] == [EXPERTS * LAYOUT.record_bytes] * 2
        hidden, routings = chunk_of(9)
        device.calls.clear()
        world.add(0, hidden, routings[0])
        assert ("copy", EXPERTS * LAYOUT.record_bytes) in device.calls  # layer 2, behind layer 0


def test_last_experts_of_a_prompt_stay(exact_runs):
    """Experts of the last tokens move from staging to slots: decode and the next turn find them."""
    chunk = chunk_of(19)
    with PrefillWorld((0, 5), num_slots=9, warm_tokens=2) as world:
        before = world.run(chunk)
        crossed = world.prefill.num_bytes
        assert len(world.slots.owner) == 9
        for record, slot in world.slots.owner.items():
            assert torch.equal(world.slots.memory[slot], world.pool.record(record))
        for layer, (records, heat) in enumerate(world.slots.offers):
            routed = chunk[1][layer].ids[-2:].flatten().tolist()
            late = {record for record, hot in zip(records, heat, strict=True) if hot > 0}
            assert late == {layer * EXPERTS + e for e in routed} - {0, 5}
            mine = range(layer * EXPERTS, (layer + 1) * EXPERTS)
            assert set(records) == {*mine} - {0, 5}
            assert list(heat) == sorted(heat, reverse=True)
        held = len(world.slots.owner)
        assert same(world.run(chunk), before)
        assert world.prefill.num_bytes - crossed == (RECORDS - held) * LAYOUT.record_bytes


def test_middle_chunk_takes_free_slots_only(exact_runs):
    """The next chunk need not copy these again; only the end says what decode will want."""
    chunk = chunk_of(7)
    with PrefillWorld((0, 5), num_slots=5) as world:
        before = world.run(chunk, last_chunk=False)
        assert {0, 5} < set(world.slots.owner)
        assert len(world.slots.owner) == 5
        assert all(heat == 0 for _, heats in world.slots.offers for heat in heats)
        held = dict(world.slots.owner)
        crossed = world.prefill.num_bytes
        assert same(world.run(chunk, last_chunk=False), before)
        assert world.slots.owner == held
        assert world.prefill.num_bytes - crossed == (RECORDS - 5) * LAYOUT.record_bytes
        world.run(chunk)
        assert world.slots.owner != held
        for record, slot in world.slots.owner.items():
            assert torch.equal(world.slots.memory[slot], world.pool.record(record))


def test_output_is_added_to_what_is_given():
    """The residual stream is added to in place."""
    hidden, routings = chunk_of(5)
    with PrefillWorld() as world:
        world.prefill.start(5, 3)
        alone = world.add(0, hidden, routings[0])
        world.prefill.start(5, 3)
        stream = torch.ones_like(hidden)
        assert world.add(0, hidden, routings[0], stream) is stream
        torch.testing.assert_close(stream, alone + 1.0)


@pytest.mark.parametrize("tile", [4, 7, 100])
def test_inputs_may_be_made_from_the_stream_that_is_added_to(tile):
    """A tile's inputs are asked for before its rows change, and once."""
    hidden, routings = chunk_of(19)
    asked = []

    def doubled(begin, end):
        asked.append((begin, end))
        return stream[begin:end] * 2

    with PrefillWorld(tile_tokens=tile) as world:
        world.prefill.start(19, 3)
        alone = world.add(0, hidden * 2, routings[0])
        world.prefill.start(19, 3)
        stream = hidden.clone()
        world.prefill.add(0, doubled, routings[0], stream)
    torch.testing.assert_close(stream, hidden + alone)
    assert [end for _, end in asked[:-1]] == [begin for begin, _ in asked[1:]]
    assert (asked[0][0], asked[-1][1]) == (0, 19)


@pytest.mark.parametrize("resident", [(0, 5), range(RECORDS)])
@pytest.mark.parametrize("loading", ["stream", "demand"])
@pytest.mark.parametrize("tile", [4, 100])
def test_counts_are_waited_for_once_compute_is_queued(loading, resident, tile):
    """Else the device would idle between a router and its experts. Short turns need them before."""
    (hidden, routings), reads = chunk_of(19), []
    routes = prompt_uses(routings[0].ids, EXPERTS)

    class Waited:
        def read(self):
            reads.append(len(world.kernel.chunks))
            return routes

    with PrefillWorld(resident, loading=loading, tile_tokens=tile) as world:
        world.prefill.start(19, TOP_K)
        for layer, routing in enumerate(routings):
            world.add(layer, hidden, routing, counted=Waited())
        tiles = len(world.kernel.chunks) // LAYERS
    is_demand = loading == "demand" and len(resident) < RECORDS
    assert reads == [tiles * (layer + (not is_demand)) for layer in range(LAYERS)]
    assert world.slots.credits == [(n, routes.uses.tolist(), 19) for n in range(LAYERS)]


def test_chunk_in_tiles_holds_the_scratch_of_one(monkeypatch):
    """What a tile takes is planned for once: its task is gone before the next one begins."""
    alive = []

    class Task:
        def compute(self, first, last):
            pass

        def merge(self, weights, out):
            pass

    def begin(*_):
        assert not any(task() for task in alive)
        task = Task()
        alive.append(weakref.ref(task))
        return task

    with PrefillWorld(tile_tokens=4) as world:
        monkeypatch.setattr(world.kernel, "begin", begin)
        world.run(chunk_of(19))
    assert len(alive) == 5 * LAYERS


def test_chunk_cut_short_leaves_nothing_behind(cold):
    """A cancelled prompt: the next one starts anew, over a ring whose copies are still going."""
    chunk = chunk_of(19)
    with PrefillWorld((2, 9)) as world:
        for cut in range(LAYERS):
            world.prefill.start(19, 3)
            for layer in range(cut):
                world.add(layer, chunk[0], chunk[1][layer])
            assert same(world.run(chunk), cold)


def test_failure_in_a_layer_ends_the_chunk(cold, monkeypatch):
    """After an error only a new chunk may begin, and that one is right."""
    chunk = chunk_of(19)
    with PrefillWorld() as world:
        world.prefill.start(19, 3)
        with monkeypatch.context() as patch:
            patch.setattr(world.kernel, "begin", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                world.add(0, chunk[0], chunk[1][0])
        with pytest.raises(ValueError, match="not the next"):
            world.add(0, chunk[0], chunk[1][0])
        assert same(world.run(chunk), cold)


def test_layers_out_of_turn_are_refused():
    """Each layer once, in order, after `start`."""
    hidden, routings = chunk_of(3)
    with PrefillWorld() as world:
        with pytest.raises(ValueError, match="layer 0 is not the next"):
            world.add(0, hidden, routings[0])
        world.prefill.start(3, 3)
        with pytest.raises(ValueError, match="layer 1 is not the next"):
            world.add(1, hidden, routings[1])


def test_rates_are_measured_while_serving():
    """Copies teach the link's rate, demand chunks a layer's own time."""
    times = iter(range(100))
    options = {"loading": "demand", "clock": lambda: float(next(times))}
    with PrefillWorld(**options) as world:
        world.run(chunk_of(2))
        before = world.prefill.rates
        assert before.layer_s > PrefillOptions().rates.layer_s
        world.prefill.start(2, 3)
        assert world.prefill.rates.link != before.link


def test_no_room_for_staging_is_said_with_numbers():
    """A ring that does not fit is an error with need and room."""
    with pytest.raises(BudgetError, match="No room for the staging"):
        PrefillWorld(device=OrderedDevice(LAYOUT.record_bytes))


def test_checker_sees_a_copy_that_comes_too_early(monkeypatch):
    """The test's own device: without waiting for readers, a place is overwritten."""

    def careless(missing, record_bytes, ring, first_layer=0):
        groups = plan_groups(missing, record_bytes, ring, first_layer)
        return tuple(type(g)(g.layer, g.experts, g.places, g.runs, min(g.after, 1)) for g in groups)

    monkeypatch.setattr("engine.moe.device_prefill.plan_groups", careless)
    with PrefillWorld(staging_records=EXPERTS) as world, pytest.raises(AssertionError):
        world.run(chunk_of(19))
