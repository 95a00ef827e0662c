"""Who serves a miss: the paper's worked examples, and properties of the split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.bandwidth import Rates
from engine.moe.plan import Miss, MissPlan, forecast, plan_misses, split
from engine.protocol.messages import MissPolicy

MIB, GB = 1024**2, 10**9
POLICIES = st.sampled_from(list(MissPolicy))
SPEED = st.integers(1, 60)


def test_split_when_two_misses_of_4_mib_balances_both_sides():
    """Worked example 1: B_P = 12, B_H = 24 GB/s, m = 2 -> one fill, one on the CPU."""
    rates = Rates(fill=12 * GB, cpu=24 * GB)
    assert split(2, rates) == 1
    times = forecast(2, 1, 4 * MIB, rates)
    assert times.fill_s == pytest.approx(0.35e-3, rel=0.01)
    assert times.cpu_s == pytest.approx(times.fill_s)
    # The paper's 0.17 ms gives the CPU the whole 24 GB/s.
    whole_rate_s = 4 * MIB / (24 * GB)
    assert whole_rate_s == pytest.approx(0.17e-3, rel=0.03)


def test_split_when_three_misses_tie_goes_to_the_fill():
    """Worked example 2: S = 1 GB, B_P = 4, B_H = 8, m = 3 -> q* = 1.5 -> 2."""
    rates = Rates(fill=4 * GB, cpu=8 * GB)
    assert split(3, rates) == 2
    times = forecast(3, 2, GB, rates)
    assert (times.fill_s, times.cpu_s) == (0.5, 0.25)
    assert forecast(3, 1, GB, rates).miss_s == times.miss_s


def test_split_when_four_misses_of_figure_2_fills_one():
    """Figure 2: 12 routed, 8 hits, m = 4 -> one by PCIe, three on the CPU (laptop's 11.8/47.5)."""
    assert split(4, Rates(fill=11.8 * GB, cpu=47.5 * GB)) == 1


def test_split_when_joint_rates_were_measured_uses_them():
    """q = m P / (P + C): the reference machine's 52 beside 74.5 gives 0.41 of 10."""
    alone = Rates(fill=53 * GB, cpu=92 * GB)
    joint = Rates(fill=53 * GB, cpu=92 * GB, joint_fill=52 * GB, joint_cpu=74.5 * GB)
    assert split(10, alone) == 6
    assert split(10, joint) == 4


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [
        (None, 2),
        (Rates(fill=0.0, cpu=5.0), 0),
        (Rates(fill=5.0, cpu=0.0), 3),
        (Rates(fill=9.0, cpu=5.0), 3),
    ],
)
def test_split_when_a_rate_is_missing_stays_in_bounds(rates, wanted):
    """No rates: even, the tie to the fill; a side without a rate gets nothing."""
    assert split(3, rates) == wanted
    assert split(0, rates) == 0


def test_split_when_misses_are_negative_raises():
    """A negative count is a bug of the caller."""
    with pytest.raises(ValueError, match="-1"):
        split(-1, None)


@given(st.integers(0, 40), SPEED, SPEED)
def test_split_when_compared_with_brute_force_is_the_best_integer(num_misses, fill, cpu):
    """The smallest max of both times over all integers; of equal ones the most fills."""
    wanted = min(range(num_misses + 1), key=lambda q: (max(q * cpu, (num_misses - q) * fill), -q))
    assert split(num_misses, Rates(fill, fill + cpu)) == wanted
    assert split(num_misses, Rates(1.0, 2.0, joint_fill=fill, joint_cpu=cpu)) == wanted


@given(st.integers(0, 60), st.floats(0.001, 1e3), st.floats(0.001, 1e3))
def test_split_when_misses_grow_is_monotone(num_misses, fill, cpu):
    """One more miss adds one to one side and takes nothing from the other."""
    rates = Rates(fill, cpu)
    step = split(num_misses + 1, rates) - split(num_misses, rates)
    assert step in (0, 1)


MISSES = st.lists(
    st.builds(Miss, st.integers(0, 200), st.integers(0, 5), st.booleans()),
    max_size=20,
    unique_by=lambda miss: miss.record,
)


@given(MISSES, POLICIES, SPEED, SPEED, st.integers(0, 20), st.randoms())
def test_plan_when_drawn_at_random_is_disjoint_covering_and_deterministic(
    misses, policy, fill, cpu, room, random
):
    """Every miss is served exactly once, and the order of the misses does not matter."""
    rates = Rates(fill, cpu)
    plan = plan_misses(misses, policy, rates, room)
    assert sorted(plan.fills + plan.cpu) == sorted(miss.record for miss in misses)
    shuffled = list(misses)
    random.shuffle(shuffled)
    assert plan_misses(shuffled, policy, rates, room) == plan
    if policy is MissPolicy.FILL_ONLY:
        assert not plan.cpu
    elif policy is MissPolicy.CPU_ONLY:
        assert not plan.fills
    else:
        assert len(plan.fills) == min(split(len(misses), rates), room)


def test_plan_when_misses_differ_fills_the_most_recently_routed():
    """Pinned first, then recency, then the lower number."""
    misses = [Miss(7, 3), Miss(2, 5), Miss(9, 5), Miss(1, 9, pinned=False), Miss(4, 0)]
    plan = plan_misses(misses, MissPolicy.FILL_ONLY, None, 10)
    assert plan == MissPlan(fills=(2, 9, 7, 4, 1))
    plan = plan_misses(misses, MissPolicy.SPLIT, None, 10)
    assert plan == MissPlan(fills=(2, 9, 7), cpu=(4, 1))


def test_plan_when_two_ended_is_planned_ahead_then_it_is_a_split():
    """Without kernels that share the list, the default divides like `split`."""
    misses = [Miss(record, last_use=record % 3) for record in range(9)]
    both = [
        plan_misses(misses, policy, Rates(fill=20.0, cpu=60.0), 4)
        for policy in (MissPolicy.TWO_ENDED, MissPolicy.SPLIT)
    ]
    assert both[0] == both[1]
    assert both[0].fills
    assert both[0].cpu
