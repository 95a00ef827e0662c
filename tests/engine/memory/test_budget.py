"""The budget's arithmetic: never over, monotone, refusals with the sum."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.budget import (
    GIB,
    MIB,
    Division,
    MemoryBudget,
    check_host,
    device_reserve,
    device_total,
    emulated_total,
    format_bytes,
)
from engine.protocol.errors import BudgetError

# A published 35B-A3B in BF16, roughly: 40 layers x 256 experts of 6 MiB.
BIG = MemoryBudget(
    total_bytes=24 * GIB,
    weights_bytes=3 * GIB,
    runtime_bytes=GIB,
    kv_token_bytes=80 * 1024,
    record_bytes=6 * MIB,
    num_records=40 * 256,
    min_slots=8,
    context_tokens=262_144,
)
TINY = MemoryBudget(
    total_bytes=128 * MIB,
    weights_bytes=26 * MIB,
    runtime_bytes=20 * MIB,
    kv_token_bytes=8192,
    record_bytes=112 * 1024,
    num_records=256,
    min_slots=4,
    context_tokens=2048,
)

budgets = st.builds(
    MemoryBudget,
    total_bytes=st.integers(0, 40_000_000),
    weights_bytes=st.integers(0, 5_000_000),
    runtime_bytes=st.integers(0, 5_000_000),
    kv_token_bytes=st.integers(1, 4000),
    record_bytes=st.integers(1, 300_000),
    num_records=st.integers(8, 500),
    min_slots=st.integers(1, 8),
    context_tokens=st.integers(1, 20_000),
    max_rows=st.integers(1, 8),
)


@given(budgets, st.booleans())
def test_choose_when_it_succeeds_is_never_over(budget, emulated):
    """Whatever the sizes: the sum fits, floors and limits hold."""
    if budget.smallest_bytes > budget.total_bytes:
        with pytest.raises(BudgetError, match=r"^[^-]*$"):  # M-07: never a negative figure
            budget.choose(emulated)
        return
    division = budget.choose(emulated)
    assert budget.need_bytes(division) <= budget.total_bytes
    assert division.kv_tokens % 16 == 0
    assert budget.kv_floor_tokens <= division.kv_tokens <= budget.kv_limit_tokens
    assert budget.min_slots <= division.expert_slots <= budget.num_records
    assert budget.problem(division) == ""


@given(budgets, st.booleans(), st.integers(0, 5_000_000))
def test_choose_with_more_bytes_gives_no_less(budget, emulated, more):
    """Monotone: more memory never means fewer experts or less context."""
    try:
        small = budget.choose(emulated)
    except BudgetError:
        return
    large = replace(budget, total_bytes=budget.total_bytes + more).choose(emulated)
    assert large.kv_tokens >= small.kv_tokens
    assert large.expert_slots >= small.expert_slots


@given(budgets, st.integers(0, 3000))
def test_bounds_when_reached_are_accepted_and_one_more_is_not(budget, used):
    """No slider offers what a resize must refuse, and none stops short."""
    if budget.smallest_bytes > budget.total_bytes:
        return
    limits = budget.bounds(used)
    if budget.need_bytes(Division(limits.min_kv_tokens, limits.min_slots)) > budget.total_bytes:
        return
    if limits.min_kv_tokens > budget.kv_limit_tokens:
        return
    for division in (
        Division(limits.max_kv_tokens, limits.min_slots),
        Division(limits.min_kv_tokens, limits.max_slots),
    ):
        assert budget.problem(division, used) == ""
    assert budget.problem(Division(limits.max_kv_tokens + 16, limits.min_slots), used)
    assert budget.problem(Division(limits.min_kv_tokens, limits.max_slots + 1), used)
    assert budget.problem(Division(limits.min_kv_tokens - 16, limits.min_slots), used)


@given(budgets, st.integers(0, 400_000), st.integers(0, 1000), st.integers(0, 3000))
def test_nearest_division_always_fits(budget, kv, slots, used):
    """What a refusal suggests would really be accepted."""
    fit = budget.nearest(Division(kv, slots), used)
    limits = budget.bounds(used)
    smallest = Division(limits.min_kv_tokens, limits.min_slots)
    if budget.need_bytes(smallest) <= budget.total_bytes and used <= budget.kv_limit_tokens:
        assert budget.problem(fit, used) == ""


@pytest.mark.parametrize("gib", [8, 12, 16, 24, 32, 48, 96])
def test_context_on_cards_of_8_to_96_gb_has_a_sensible_floor(gib):
    """Case M-09: a big card is not left with 8k tokens."""
    division = replace(BIG, total_bytes=gib * GIB).choose(emulated=False)
    assert division.kv_tokens >= 8192
    if gib >= 24:
        assert division.kv_tokens >= 40_000
    assert division.expert_slots > 100


def test_refusal_writes_the_sum_and_what_would_fit():
    """A person sees which part is too large, and a plan that works (case M-07)."""
    with pytest.raises(BudgetError) as caught:
        BIG.choose(emulated=False, kv_tokens=200_000, expert_slots=2000)
    assert caught.value.message == (
        "Needs 31.0 GiB: weights 3.0 GiB + runtime 1.0 GiB + context 15.3 GiB + experts 11.7 GiB; "
        "24.0 GiB are free for it."
    )
    assert caught.value.hint == "What fits: 200,000 tokens of context and 809 experts."
    with pytest.raises(BudgetError) as caught:
        replace(BIG, total_bytes=2 * GIB).choose(emulated=False)
    assert "free 2.1 GiB more" in caught.value.hint


def test_shrink_below_a_chats_use_is_refused_with_its_tokens():
    """The wording of the split bar's refusal."""
    assert TINY.problem(Division(512, 100), kv_used_tokens=1000) == (
        "Not below 7.9 MiB: this chat already uses 1,000 tokens."
    )


def test_emulated_total_leaves_an_eighth_free_with_all_experts():
    """On a CPU-only machine everything fits and half is resident at first."""
    total = emulated_total(TINY)
    budget = replace(TINY, total_bytes=total)
    assert budget.choose(emulated=True) == Division(2048, 128)
    free = budget.free_bytes(Division(2048, 256))
    assert 0.11 * total < free < 0.14 * total
    assert budget.bounds().max_slots == 256


def test_elastic_redivision_follows_the_papers_table():
    """Mission 3.2: 8 GB shared, 0.5 GB an expert: 10 slots, 8, 12."""
    paper = MemoryBudget(
        total_bytes=8000,
        weights_bytes=0,
        runtime_bytes=0,
        kv_token_bytes=1,
        record_bytes=500,
        num_records=64,
        min_slots=1,
        context_tokens=8000,
    )
    slots = [paper.bounds(kv).max_slots for kv in (3008, 4000, 2000)]
    assert slots == [9, 8, 12]  # 3008: a page is 16 tokens; 3000 exactly would be 10
    assert (8000 - 3000) // 500 == 10


def test_real_device_never_takes_more_than_free_minus_reserve():
    """Case M-16: total 24, free 20."""
    total, free = 24 * GIB, 20 * GIB
    assert device_total(total, free) == free - device_reserve(total)
    with pytest.raises(BudgetError, match=r"20.0 GiB of 24.0 GiB are free"):
        device_total(total, free, 20 * GIB)
    assert device_total(total, 0) == 0


def test_host_memory_is_checked_with_figures():
    """Cases M-06 and M-22: predicted before anything is read."""
    check_host(10 * GIB, 20 * GIB, 32 * GIB)
    with pytest.raises(BudgetError, match=r"Loading needs 64.0 GiB.*20.0 GiB are available"):
        check_host(64 * GIB, 20 * GIB, 32 * GIB)
    with pytest.raises(BudgetError):
        check_host(20 * GIB, 20 * GIB, 32 * GIB)


def test_format_bytes_is_readable_and_never_negative():
    """Sizes adapt to the tiny model as well as to a big one."""
    assert [format_bytes(n) for n in (-5, 1, 1536, 3 * MIB, 30 * MIB, 9 * GIB)] == [
        "0 KiB",
        "1 KiB",
        "2 KiB",
        "3.0 MiB",
        "30 MiB",
        "9.0 GiB",
    ]
