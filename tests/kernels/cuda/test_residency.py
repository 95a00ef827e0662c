"""Residency between steps: arithmetic against plain models, for any tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.cuda.moe_state import MoePolicy
from kernels.cuda.residency import FREE, NO_SLOT, Eviction, Ranking, Residency

RECORDS, MAX_SLOTS, UNITS, LAYERS = 24, 12, 4, 3


@st.composite
def tables(draw: st.DrawFn) -> Residency:
    """Sound tables of any fill."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_slots, full = draw(st.integers(1, MAX_SLOTS)), draw(st.floats(0, 1))
    owner = np.full(MAX_SLOTS, FREE, np.int32)
    slots = np.flatnonzero(rng.random(num_slots) <= full)
    owner[slots] = rng.permutation(RECORDS)[: len(slots)]
    slot_of = np.full(RECORDS, NO_SLOT, np.int32)
    slot_of[owner[slots]] = slots
    valid = np.where(slot_of == NO_SLOT, 0, rng.integers(0, UNITS + 1, RECORDS)).astype(np.int32)
    tick = draw(st.integers(0, 2**32 - 1))
    ages = rng.integers(0, draw(st.sampled_from([1, 4, 2**20])), RECORDS)
    stamp = ((tick - ages) % 2**32).astype(np.uint32).astype(np.int32)
    return Residency(
        num_slots=num_slots,
        num_units=UNITS,
        tick=tick,
        ranking=Ranking(draw(st.sampled_from(Eviction)), 0.05, LAYERS),
        slot_of=slot_of,
        valid=valid,
        owner=owner,
        score=(rng.random(RECORDS) * rng.integers(0, 9, RECORDS)).astype(np.float32),
        stamp=stamp,
    )


def contents(residency: Residency) -> dict[int, int]:
    """Slot to record."""
    return {s: int(r) for s, r in enumerate(residency.owner) if r != FREE}


@given(tables(), st.integers(1, MAX_SLOTS))
def test_shrink_keeps_the_worthiest_and_moves_only_tails(residency, wanted):
    """Moves lead from the tail into free slots below it, so that a device can copy in any order."""
    wanted = min(wanted, residency.num_slots)
    before, worth = contents(residency), residency.worth()
    shrunk = residency.shrink(wanted)
    assert residency.faults() == []
    after = contents(residency)
    assert set(after.values()) | set(shrunk.evicted) == set(before.values())
    assert len(after) == min(len(before), wanted)
    if shrunk.evicted and after:
        assert max(worth[list(shrunk.evicted)]) <= min(worth[list(after.values())])
    for source, target in shrunk.moves:
        assert source >= wanted > target
        assert after[target] == before[source]
    moved = {target for _, target in shrunk.moves}
    assert all(before[slot] == record for slot, record in after.items() if slot not in moved)
    residency.grow(MAX_SLOTS)
    assert contents(residency) == after
    assert residency.faults() == []


@given(tables(), st.lists(st.integers(0, RECORDS - 1), max_size=RECORDS))
def test_admit_makes_records_whole_at_the_cost_of_the_least_worthy(residency, records):
    """As many as there are slots; none of them loses its place to another."""
    worth, before = residency.worth(), contents(residency)
    copies = residency.admit(records)
    assert residency.faults() == []
    after = contents(residency)
    wanted = set(records)
    assert len(wanted & set(after.values())) == min(len(wanted), residency.num_slots)
    assert wanted & set(before.values()) <= set(after.values())
    assert all(residency.valid[record] == UNITS for record in wanted & set(after.values()))
    assert all(copy.first < UNITS and after[copy.slot] == copy.record for copy in copies)
    lost = set(before.values()) - set(after.values())
    kept = set(after.values()) - wanted
    if lost and kept:
        assert max(worth[list(lost)]) <= min(worth[list(kept)])


@given(tables(), st.integers(0, 2**32))
def test_credit_raises_what_was_used_and_nothing_else(residency, seed):
    """A prompt's uses count from now on; old ones count less by then."""
    rng = np.random.default_rng(seed)
    uses = rng.choice(np.array([0.0, 0.5, 3.0], np.float32), RECORDS)
    before = residency.worth()
    residency.credit(uses)
    after = residency.worth()
    assert (after[uses > 0] >= before[uses > 0]).all()
    assert (after[uses == 0] == before[uses == 0]).all()
    assert (residency.ages()[uses > 0] == 0).all()


@given(st.integers(0, 2**33), st.floats(2**-20, 2**20, width=32), st.floats(0, 1))
def test_worth_orders_by_age_and_score_and_is_never_free(age, score, growth):
    """Older is worth no more; a higher score is worth no less; 0 is left to free slots."""
    for eviction in Eviction:
        ranking = Ranking(eviction, growth, LAYERS)
        ages = np.array([age, age, age + 1000], np.int64)
        scores = np.array([score, score * 2, score], np.float32)
        base, better, older = ranking.worth(ages, scores)
        assert older <= base <= better
        assert min(base, better, older) >= 1
    never = Ranking(Eviction.FREQUENCY, growth, LAYERS).worth(
        np.array([age], np.int64), np.zeros(1, np.float32)
    )
    assert never >= 1


def test_sizes_out_of_bounds_and_unsound_policies_are_refused():
    """Before anything changes."""
    residency = Residency(
        num_slots=2,
        num_units=UNITS,
        tick=5,
        ranking=Ranking(Eviction.LRU, 0.0, LAYERS),
        slot_of=np.array([1, NO_SLOT], np.int32),
        valid=np.array([9, 1], np.int32),
        owner=np.array([FREE, 0, 1], np.int32),
        score=np.zeros(2, np.float32),
        stamp=np.zeros(2, np.int32),
    )
    assert len(residency.faults()) == 4
    with pytest.raises(ValueError, match="cannot shrink to 3"):
        residency.shrink(3)
    with pytest.raises(ValueError, match="asked for 4"):
        residency.grow(4)
    for wrong in ({"share": 1.5}, {"growth": -1.0}, {"store_min": 0}):
        with pytest.raises(ValueError, match="no policy"):
            MoePolicy(**wrong)
