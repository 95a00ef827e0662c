"""What a prompt leaves in the slots: over the real tables, on the CPU, without kernels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe.arena import ExpertArena
from engine.moe.device_residency import DeviceResidency
from kernels.cuda.moe_state import MoeState
from kernels.cuda.residency import FREE, NO_SLOT
from kernels.cuda.shape import DecodeShape
from kernels.device.cpu import CpuDevice
from kernels.layouts import RecordLayout
from tests.engine.moe.routes import prompt_uses

LAYERS, EXPERTS = 3, 8
RECORDS = LAYERS * EXPERTS
LAYOUT = RecordLayout(256, 16, "bf16")
SHAPE = DecodeShape(
    rows=1, layout=LAYOUT, num_experts=EXPERTS, top_k=2, num_layers=LAYERS, num_heads=2,
    num_kv_heads=1, head_dim=32, vocab=64, projections="bf16", head="bf16", embedding="bf16",
    router="bf16", max_slots=RECORDS,
)  # fmt: skip


def world(num_slots: int) -> tuple[DeviceResidency, MoeState]:
    """Empty tables of so many slots."""
    device = CpuDevice(RECORDS * LAYOUT.record_bytes)
    state = MoeState(SHAPE, torch.device("cpu"), num_slots)
    arena = ExpertArena(device, LAYOUT, RECORDS, num_slots)
    return DeviceResidency(state, arena, EXPERTS), state


def layer_of(moe_layer: int) -> list[int]:
    return list(range(moe_layer * EXPERTS, (moe_layer + 1) * EXPERTS))


def prompt(residency: DeviceResidency, uses: list[list[int]], groups: int = 1) -> None:
    """A prompt that routes `uses[layer][expert]` tokens; the late ones are those with most."""
    residency.begin()
    for layer, counts in enumerate(uses):
        residency.credit(layer, counts, 8)
        there = residency.slots()[layer] != NO_SLOT
        missing = [r for r in layer_of(layer) if not there[r % EXPERTS]]
        for part in range(groups):
            offered = missing[part::groups]
            residency.admit(offered, [float(counts[r % EXPERTS] > 2) for r in offered])
    residency.commit()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, RECORDS),
    st.lists(
        st.lists(st.lists(st.integers(0, 9), min_size=8, max_size=8), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_tables_whatever_prompts_come_stay_sound(num_slots, prompts, groups):
    """`commit` refuses contradictions; free slots are used before anybody is evicted."""
    residency, state = world(num_slots)
    for uses in prompts:
        prompt(residency, uses, groups)
        tables = state.snapshot()
        assert tables.faults() == []
        assert len(tables.resident()) == num_slots


def test_free_slots_when_a_first_prompt_ran_then_every_layer_has_its_share():
    """The first layers must not take all there is."""
    residency, _ = world(12)
    prompt(residency, [[1] * EXPERTS] * LAYERS, groups=4)
    residency.begin()
    assert (residency.slots() != NO_SLOT).sum(1).tolist() == [4, 4, 4]


def test_everything_fits_when_it_ran_once_then_nothing_is_left_to_copy():
    """With room for all, one prompt makes all of it resident: no cold misses afterwards."""
    residency, _ = world(RECORDS)
    prompt(residency, [[0] * 7 + [8]] * LAYERS)
    residency.begin()
    assert (residency.slots() != NO_SLOT).all()


def test_addresses_are_those_of_the_slots():
    """Arithmetic in place of views."""
    residency, _ = world(5)
    slots = np.array([4, 0, 2], np.int32)
    found = residency.addresses(slots)
    assert found.dtype == np.int64
    assert found.tolist() == [residency.slot(slot).data_ptr() for slot in slots.tolist()]


def test_layer_with_most_missing_when_there_is_room_for_all_then_it_takes_what_it_needs():
    """A slot for each expert: none needs to be kept for later layers, nobody loses one."""
    residency, state = world(RECORDS)
    assert residency.has_room_for_all
    tables = state.snapshot()
    for slot, record in enumerate(layer_of(1) + layer_of(2)):
        tables.owner[slot], tables.slot_of[record] = record, slot
        tables.valid[record] = tables.num_units
    state.install(tables)
    residency.begin()
    given = residency.admit(layer_of(0), [0.0] * EXPERTS)
    assert sorted(given) == layer_of(0)
    residency.commit()
    assert (state.snapshot().slot_of != NO_SLOT).all()
    assert not world(RECORDS - 1)[0].has_room_for_all


def test_prompt_that_changes_nothing_writes_nothing(monkeypatch):
    """Not when it ends and not when it fails; uses that were counted are written in both cases."""
    for close in (DeviceResidency.commit, DeviceResidency.abandon):
        residency, state = world(RECORDS)
        prompt(residency, [[1] * EXPERTS] * LAYERS)
        written = []
        monkeypatch.setattr(state, "install", written.append)
        residency.begin()
        residency.admit(layer_of(0), [1.0] * EXPERTS)  # they have slots
        close(residency)
        assert written == []
        residency.begin()
        residency.credit(0, [1] * EXPERTS, 8)
        close(residency)
        assert len(written) == 1


def test_hot_expert_when_slots_are_full_then_it_replaces_a_colder_one():
    """And never one of a later layer, which was planned with its own."""
    residency, state = world(6)
    prompt(residency, [[9, 9, 0, 0, 0, 0, 0, 0]] * LAYERS)
    cold = [[0, 0, 9, 0, 0, 0, 0, 0], [0] * EXPERTS, [0] * EXPERTS]
    for _ in range(3):
        prompt(residency, cold)
    tables = state.snapshot()
    assert tables.slot_of[2] != NO_SLOT
    assert {int(r) for r in tables.owner if r != FREE and r >= EXPERTS} == {8, 9, 16, 17}


def test_prompt_when_it_fails_then_what_it_admitted_is_forgotten():
    """Slots whose copy may be missing must not count as filled."""
    residency, state = world(6)
    residency.begin()
    residency.credit(0, [5] * EXPERTS, 8)
    given = residency.admit(layer_of(0), [1.0] * EXPERTS)
    assert given
    residency.abandon()
    assert state.snapshot().resident() == []


def test_partly_filled_record_is_not_resident_for_a_prompt():
    """Units that decode brought so far are no whole expert."""
    residency, state = world(RECORDS)
    prompt(residency, [[1] * EXPERTS] * LAYERS)
    tables = state.snapshot()
    tables.valid[3] = 0
    state.install(tables)
    residency.begin()
    there = residency.slots() != NO_SLOT
    assert not there[0, 3]
    assert there.sum() == RECORDS - 1


def test_prompt_when_it_died_elsewhere_then_nobody_trusts_overwritten_slots():
    """Attention of a later layer ran out of memory: victims' slots hold other experts' bytes."""
    residency, state = world(6)
    prompt(residency, [[9, 9, 0, 0, 0, 0, 0, 0]] * LAYERS)
    residency.begin()
    residency.credit(0, [0, 0, 99, 99, 0, 0, 0, 0], 8)
    given = residency.admit([2, 3], [9.0, 9.0])
    assert given
    residency.begin()  # the next prompt; the one before never ended
    tables = state.snapshot()
    assert all(tables.owner[slot] == FREE for slot in given.values())
    assert not set(given) & set(tables.resident())
    before = tables.resident()
    residency.commit()
    residency.abandon()  # nothing is open: nothing changes
    assert state.snapshot().resident() == before


def test_old_uses_when_a_long_prompt_follows_then_they_fade():
    """Of what a reply used before, a prompt of its own text keeps little."""
    for num_tokens, stays in ((8, True), (500, False)):
        residency, state = world(1)
        prompt(residency, [[9] + [0] * 7, [0] * EXPERTS, [0] * EXPERTS])
        residency.begin()
        residency.credit(0, [0, 0, 8, 0, 0, 0, 0, 0], num_tokens)
        residency.admit([2], [1.0])
        residency.commit()
        assert bool(state.snapshot().slot_of[0] != NO_SLOT) is stays


def test_prompt_uses_count_late_tokens_most():
    """Two tokens a hundred apart: the earlier one's route counts about a third."""
    ids = torch.full((101, 2), 3)
    ids[0, 0], ids[100, 0] = 1, 2
    uses = prompt_uses(ids, 5).uses
    assert uses[0] == uses[4] == 0.0
    assert uses[2] == 1.0
    assert uses[1] == pytest.approx(0.99**100, abs=1e-3)
    assert uses[3] > uses[2]


def test_prompt_uses_when_a_route_is_too_old_to_weigh_then_it_is_counted():
    """The first of two thousand tokens alone routes to expert 1; counts are exact."""
    ids = torch.full((2000, 2), 3)
    ids[0, 0] = 1
    uses = prompt_uses(ids, 4)
    assert uses.counts.tolist() == [0, 1, 0, 3999]
    assert uses.uses[1] == 0.0
    assert uses.uses[3] == pytest.approx(2 / (1 - 0.99), rel=1e-3)


def test_old_uses_when_many_prompts_follow_then_they_still_tell_cold_from_never_used():
    """What fades to nothing would count as never used."""
    residency, state = world(4)
    prompt(residency, [[9] + [0] * 7, [0] * EXPERTS, [0] * EXPERTS])
    for _ in range(40):
        residency.begin()
        residency.credit(0, [0, 0, 8, 0, 0, 0, 0, 0], 4000)
        residency.commit()
    worth = state.snapshot().worth()
    assert worth[0] > worth[1]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, RECORDS - 1),
    st.lists(
        st.lists(st.lists(st.integers(0, 9), min_size=8, max_size=8), min_size=3, max_size=3),
        min_size=2,
        max_size=6,
    ),
)
def test_prompts_when_slots_are_full_then_each_layer_keeps_as_many(
    num_slots: int, prompts: list[list[list[int]]]
) -> None:
    """Else prompt after prompt would move slots to the last layers: compute and link, which work
    layer by layer, would wait for each other, and the first layers would miss nearly all."""
    residency, _ = world(num_slots)
    prompt(residency, [[1] * EXPERTS] * LAYERS)
    shares = (residency.slots() != NO_SLOT).sum(1).tolist()
    assert sum(shares) == num_slots
    for uses in prompts:
        prompt(residency, uses)
        assert (residency.slots() != NO_SLOT).sum(1).tolist() == shares
