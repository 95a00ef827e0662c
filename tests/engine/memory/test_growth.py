"""How far the context grows by itself: what it costs, and where it ends."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.memory.budget import GIB, Bounds, Division, MemoryBudget, up_to_page
from engine.memory.growth import grown, kept_slots, most_tokens
from tests.engine.memory.test_budget import BIG

NOW = Division(8192, 2000)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[MemoryBudget, Division, int]:
    """A budget, any division that it allows, with free bytes or none, and slots that are kept."""
    budget = MemoryBudget(
        total_bytes=draw(st.integers(2_000_000, 60_000_000)),
        weights_bytes=draw(st.integers(0, 1_000_000)),
        runtime_bytes=draw(st.integers(0, 500_000)),
        kv_token_bytes=draw(st.integers(1, 2000)),
        record_bytes=draw(st.integers(1, 300_000)),
        num_records=draw(st.integers(8, 500)),
        min_slots=draw(st.integers(1, 8)),
        context_tokens=draw(st.integers(1, 20_000)),
        max_rows=draw(st.integers(1, 8)),
    )
    assume(budget.smallest_bytes <= budget.total_bytes)
    bounds: Bounds = budget.bounds()
    kv = draw(st.integers(bounds.min_kv_tokens // 16, bounds.max_kv_tokens // 16)) * 16
    room = (budget.elastic_bytes - budget.kv_bytes(kv)) // budget.record_bytes
    most = max(budget.min_slots, min(room, bounds.max_slots))
    slots = most - draw(st.integers(0, most - budget.min_slots))
    assume(not budget.problem(Division(kv, slots)))
    return budget, Division(kv, slots), draw(st.integers(budget.min_slots, slots))


@st.composite
def growths(draw: st.DrawFn) -> tuple[MemoryBudget, Division, int, int]:
    """The same, and a number of tokens that the experts can pay."""
    budget, now, kept = draw(worlds())
    room = most_tokens(budget, now, kept) - now.kv_tokens
    assume(room > 0)
    return budget, now, kept, draw(st.integers(1, room))


limits = st.integers(1, 200_000)


@given(growths(), limits)
def test_growth_when_there_is_any_then_enough_within_the_floor_and_for_no_more_bytes(world, limit):
    """The sum never rises: what a division leaves free may belong to a game (case M-14)."""
    budget, now, kept, missing = world
    after = grown(budget, now, missing, kept, limit)
    if after is None:
        assert up_to_page(limit) < now.kv_tokens + missing
        return
    assert now.kv_tokens + missing <= after.kv_tokens <= up_to_page(limit)
    assert after.kv_tokens <= most_tokens(budget, now, kept)
    assert kept <= after.expert_slots < now.expert_slots
    assert budget.need_bytes(after) <= budget.need_bytes(now)
    assert budget.problem(after) == ""


@given(worlds(), st.integers(1, 40_000))
def test_growth_when_refused_then_not_even_the_floor_would_do(world, missing):
    """No reply ends early while experts above the floor could have paid."""
    budget, now, kept = world
    if grown(budget, now, missing, kept, 10**9) is not None:
        return
    least = up_to_page(now.kv_tokens + missing)
    price = -(-(budget.kv_bytes(least) - budget.kv_bytes(now.kv_tokens)) // budget.record_bytes)
    assert least > budget.bounds().max_kv_tokens or now.expert_slots - price < kept


@given(growths())
def test_growth_when_not_at_a_limit_then_the_experts_give_no_slot_for_nothing(world):
    """What they give is context: less than a page of it is lost."""
    budget, now, kept, missing = world
    after = grown(budget, now, missing, kept, 10**9)
    assert after is not None
    if after.kv_tokens + 16 <= budget.bounds().max_kv_tokens:
        lost = budget.need_bytes(now) - budget.need_bytes(after)
        assert lost < budget.kv_bytes(16)


@given(worlds(), st.integers(1, 500))
def test_kept_slots_then_the_least_where_needed_and_half_of_a_choice_otherwise(world, chosen):
    """A reply that others stand in the way of costs no more than half; one that must, all."""
    budget, _, _ = world
    assert kept_slots(budget, chosen, is_needed=True) == budget.min_slots
    half = kept_slots(budget, chosen, is_needed=False)
    assert half == max(budget.min_slots, (chosen + 1) // 2)


@pytest.mark.parametrize(("size", "step"), [(1024, 1024), (8192, 1024), (65_536, 8192)])
def test_step_then_1024_tokens_or_an_eighth_beyond_what_is_missing(size, step):
    """A long reply does not resize every 16 tokens."""
    slot = BIG.record_bytes // BIG.kv_token_bytes
    after = grown(BIG, replace(NOW, kv_tokens=size), 16, 8, BIG.context_tokens)
    assert after is not None
    assert 16 + step <= after.kv_tokens - size < 16 + step + slot


def test_reply_that_grows_token_by_token_then_few_resizes_up_to_the_limit():
    """From 8,192 to 262,144 tokens in about as many steps as the powers of 9/8 need."""
    large, now, steps = replace(BIG, total_bytes=40 * GIB), Division(8192, 4000), 0
    while now.kv_tokens < BIG.context_tokens:
        after = grown(large, now, 16, BIG.min_slots, BIG.context_tokens)
        assert after is not None
        now, steps = after, steps + 1
    assert now.kv_tokens == BIG.context_tokens
    assert steps <= 30


def test_growth_when_nothing_is_missing_then_none():
    """It is asked before anything is known to lack."""
    assert grown(BIG, NOW, 0, 8, BIG.context_tokens) is None
    assert grown(BIG, NOW, -16, 8, BIG.context_tokens) is None
