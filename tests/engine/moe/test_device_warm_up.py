"""What idle moments copy, in which order and how much at once: on the fake device, no kernels."""

from collections import Counter, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe.arena import ExpertArena
from engine.moe.device_warm_up import FIRST_PIECE_BYTES, PIECE_S, WarmUp, next_parts, warm_order
from engine.moe.pool import ExpertPool
from kernels.cuda.moe_state import MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Eviction, Ranking, Residency
from kernels.device.base import DeviceLostError
from kernels.device.fake import FakeDevice, FakeEvent
from tests.engine.moe.test_device_residency import EXPERTS, LAYERS, LAYOUT, RECORDS, SHAPE

UNITS = 4


@st.composite
def any_tables(draw: st.DrawFn) -> Residency:
    """Sound tables: some slots free, some experts whole, some in part, some never used."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_slots = draw(st.integers(1, RECORDS))
    owner = np.full(RECORDS, FREE, np.int32)
    slots = np.flatnonzero(rng.random(num_slots) <= draw(st.floats(0, 1)))
    owner[slots] = rng.permutation(RECORDS)[: len(slots)]
    slot_of = np.full(RECORDS, NO_SLOT, np.int32)
    slot_of[owner[slots]] = slots
    valid = np.where(slot_of == NO_SLOT, 0, rng.integers(0, UNITS + 1, RECORDS)).astype(np.int32)
    used = rng.random(RECORDS) <= draw(st.floats(0, 1))
    score = np.where(used, rng.random(RECORDS) * 9 + 0.1, 0).astype(np.float32)
    ranking = Ranking(draw(st.sampled_from(Eviction)), 0.05, LAYERS)
    stamp = rng.integers(0, 99, RECORDS).astype(np.int32)
    return Residency(num_slots, UNITS, 99, ranking, slot_of, valid, owner, score, stamp)


LINKS = st.lists(st.booleans(), min_size=LAYERS, max_size=LAYERS)


@given(any_tables(), LINKS)
def test_order_whatever_the_tables_names_what_is_missing_best_first(tables, links):
    """Used ones by worth; then layers in turn; layers without a link not at all."""
    order = warm_order(tables, EXPERTS, links)
    missing = {r for r in range(RECORDS) if links[r // EXPERTS] and tables.valid[r] < UNITS}
    assert Counter(order) == Counter(missing)
    seen = [record for record in order if tables.score[record] > 0]
    assert order[: len(seen)] == seen
    assert np.all(np.diff(tables.worth()[seen]) <= 0)


@given(any_tables(), LINKS)
def test_order_when_the_rest_was_never_used_then_every_layer_gets_as_many(tables, links):
    """At any moment the layers that still lack something differ by one expert at most."""
    count = Counter(int(r) // EXPERTS for r in tables.owner if r != FREE)
    order = [r for r in warm_order(tables, EXPERTS, links) if tables.slot_of[r] == NO_SLOT]
    new = [record for record in order if tables.score[record] <= 0]
    count.update(record // EXPERTS for record in order if tables.score[record] > 0)
    for done, record in enumerate(new):
        layer = record // EXPERTS
        waiting = {one // EXPERTS for one in new[done:]}
        assert count[layer] == min(count[one] for one in waiting)
        count[layer] += 1


@given(any_tables(), LINKS, st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_parts_whatever_the_pieces_fill_free_slots_and_evict_nobody(tables, links, pieces):
    """Sound after each piece, never more than asked, begun experts first to the end."""
    order = deque(warm_order(tables, EXPERTS, links))
    for units in pieces:
        owners, valid = tables.owner.copy(), tables.valid.copy()
        parts = next_parts(tables, order, units)
        assert tables.faults() == []
        assert np.array_equal(tables.owner[owners != FREE], owners[owners != FREE])
        assert sum(part.last - part.first for part in parts) <= units
        for record, slot, first, last in parts:
            assert (first, last) == (valid[record], tables.valid[record])
            assert tables.slot_of[record] == slot < tables.num_slots
        if not parts:
            break
    else:
        return
    assert not order
    lacking = [r for r in warm_order(tables, EXPERTS, links) if tables.slot_of[r] != NO_SLOT]
    assert lacking == []
    free = int((tables.owner[: tables.num_slots] == FREE).sum())
    homeless = [r for r in warm_order(tables, EXPERTS, links) if tables.slot_of[r] == NO_SLOT]
    assert not (free and homeless)


class Link:
    """A clock that copies move: `rate` bytes a second."""

    def __init__(self, device: FakeDevice, rate: float) -> None:
        self._device, self._rate = device, rate

    def __call__(self) -> float:
        """Seconds."""
        return sum(size for what, size in self._device.calls if what == "copy") / self._rate


class World:
    """Empty slots for every record, a pool of random bytes, and a link."""

    def __init__(self, rate: float = 1e9) -> None:
        self.device = FakeDevice()
        buffer = self.device.host_buffer(RECORDS * LAYOUT.record_bytes)
        buffer.tensor.random_(generator=torch.Generator().manual_seed(1))
        self.pool = ExpertPool(LAYOUT, LAYERS, EXPERTS, buffer)
        self.arena = ExpertArena(self.device, LAYOUT, RECORDS, RECORDS)
        self.state = MoeState(SHAPE, torch.device("cpu"), RECORDS)
        self.link = Link(self.device, rate)
        self.warm = WarmUp(self.pool, self.arena, self.state, self.device, self.link)

    def assert_slots(self) -> None:
        """Every resident record's bytes are there."""
        tables = self.state.snapshot()
        for slot, record in enumerate(tables.owner.tolist()):
            if record != FREE:
                size = int(tables.valid[record]) * LAYOUT.unit_bytes
                assert self.arena.slot(slot)[:size].equal(self.pool.record(record)[:size])


@settings(max_examples=40, deadline=None)
@given(st.floats(1e5, 1e11))
def test_pieces_whatever_the_link_end_in_time(rate: float) -> None:
    """After the first ones a piece takes 4 ms, or is as small as can be copied."""
    world = World(rate)
    first_bytes = min(FIRST_PIECE_BYTES, 3 * LAYOUT.record_bytes)  # of this small model
    world.warm._piece_bytes = float(first_bytes)
    took, begin = [], world.link()
    while world.warm.step():
        end = world.link()
        took.append(end - begin)
        begin = end
    assert world.warm.num_bytes == RECORDS * LAYOUT.num_units * LAYOUT.unit_bytes
    least_s = LAYOUT.unit_bytes / rate
    assert max(took[1:], default=0.0) <= max(PIECE_S, least_s) * 1.001
    assert took[0] <= max(first_bytes / rate, least_s) * 1.001
    world.assert_slots()


def test_copies_when_compute_is_still_queued_then_they_wait_for_it() -> None:
    """A prompt that failed may yet write to a slot that is free again."""
    world, passed = World(), []

    def run(event: FakeEvent) -> None:
        passed.append(len(world.state.snapshot().resident()))
        event.passed = True

    world.device.record = lambda: FakeEvent(run)
    assert world.warm.step()
    assert passed == [0]


def test_step_when_the_device_is_lost_then_no_slot_is_believed() -> None:
    """A copy that may not have landed is none; afterwards everything is looked up anew."""
    world = World()
    world.warm._piece_bytes = 3.0 * LAYOUT.record_bytes
    assert world.warm.step()
    before = world.state.snapshot().resident()
    world.device.lost = True
    with pytest.raises(DeviceLostError):
        world.warm.step()
    assert world.state.snapshot().resident() == before
    world.device.lost = False
    while world.warm.step():
        world.assert_slots()
    assert len(world.state.snapshot().resident()) == RECORDS


def test_step_when_nothing_is_left_then_the_tables_are_not_read_again() -> None:
    """An idle engine stays idle until something may have changed."""
    world = World()
    while world.warm.step():
        pass
    looks = []
    snapshot = world.state.snapshot
    world.state.snapshot = lambda: looks.append(1) or snapshot()
    assert not world.warm.step()
    assert looks == []
    world.warm.forget()
    assert not world.warm.step()
    assert looks == [1]
