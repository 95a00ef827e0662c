"""Prefill's plan is arithmetic: what crosses the link, where it lands, when it may."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe.device_planner import (
    BRIDGE_BYTES,
    GROUP_BYTES,
    MAX_GROUPS,
    Group,
    PrefillRates,
    Run,
    coalesce,
    demand_seconds,
    hotness,
    plan_groups,
    plan_layer,
    prefers_demand,
    routed_share,
    stream_seconds,
    tile_bounds,
)

RECORD_BYTES = st.sampled_from([4096, 100_000, BRIDGE_BYTES, 9_437_184])
EXPERTS = st.integers(1, 24)


@st.composite
def passes(draw):
    """Draw (missing experts of each layer, bytes of a record, records of the ring)."""
    experts = draw(EXPERTS)
    subset = st.sets(st.integers(0, experts - 1)).map(sorted)
    missing = draw(st.lists(subset, min_size=1, max_size=5))
    return missing, draw(RECORD_BYTES), draw(st.integers(2, 60))


@settings(deadline=None)
@given(st.sets(st.integers(0, 40)).map(sorted), RECORD_BYTES)
def test_coalesce_covers_what_is_wanted_and_bridges_short_gaps_only(experts, record_bytes):
    """Runs are ascending and apart, begin and end with a wanted expert, gaps stay below a copy."""
    runs = coalesce(experts, record_bytes)
    covered = [run.first + i for run in runs for i in range(run.count)]
    assert covered == sorted(set(covered))
    assert set(experts) <= set(covered)
    for run, follower in itertools.pairwise(runs):
        assert (follower.first - run.first - run.count) * record_bytes > BRIDGE_BYTES
        assert follower.place == run.place + run.count
    for run in runs:
        inside = [e for e in experts if run.first <= e < run.first + run.count]
        assert inside[0] == run.first
        assert inside[-1] == run.first + run.count - 1
        assert all(
            (b - a - 1) * record_bytes <= BRIDGE_BYTES for a, b in itertools.pairwise(inside)
        )


def test_coalesce_of_large_records_copies_nothing_else():
    """An expert of Qwen3-30B in bf16 has 9 MiB: no gap is worth a copy."""
    assert coalesce([0, 1, 3, 4, 7], 9_437_184, 20) == (
        Run(0, 2, 20),
        Run(3, 2, 22),
        Run(7, 1, 24),
    )
    assert coalesce([0, 1, 3, 4, 7], 100_000) == (Run(0, 8, 0),)
    assert coalesce([], 100_000) == ()


@settings(deadline=None)
@given(passes())
def test_groups_bring_every_missing_record_once_to_a_place_of_its_own(case):
    """Each missing expert is in one group, in its layer's turn, where the copy puts it."""
    missing, record_bytes, ring = case
    groups = plan_groups(missing, record_bytes, ring, first_layer=3)
    assert [g.layer for g in groups] == sorted(g.layer for g in groups)
    for layer, experts in enumerate(missing, 3):
        assert [e for g in groups if g.layer == layer for e in g.experts] == experts
    for group in groups:
        landed = {run.first + i: run.place + i for run in group.runs for i in range(run.count)}
        assert [landed[e] for e in group.experts] == list(group.places)
        assert len(set(landed.values())) == len(landed)
        assert all(0 <= place < ring for place in landed.values())


def used(group):
    return {run.place + i for run in group.runs for i in range(run.count)}


@settings(deadline=None)
@given(passes())
def test_group_waits_for_every_earlier_group_in_its_places_and_for_no_later_one(case):
    """`after` is exactly the last group that lies where this one lands."""
    groups = plan_groups(*case)
    for number, group in enumerate(groups):
        sharing = [i + 1 for i in range(number) if used(groups[i]) & used(group)]
        assert group.after == max(sharing, default=0) <= number


@settings(deadline=None)
@given(passes())
def test_layer_that_fits_lies_in_the_ring_as_a_whole(case):
    """All groups of such a layer can land before its first one is given back."""
    missing, record_bytes, ring = case
    groups = plan_groups(missing, record_bytes, ring)
    for layer in range(len(missing)):
        mine = [i for i, g in enumerate(groups) if g.layer == layer]
        spans = sum(len(used(groups[i])) for i in mine)
        if mine and sum(r.count for r in coalesce(missing[layer], record_bytes)) <= ring:
            assert len(mine) <= MAX_GROUPS
            assert spans <= ring
            assert all(groups[i].after <= mine[0] for i in mine)


def test_two_layers_fit_a_ring_of_two_layers():
    """Double buffering: the next layer's copies wait for no reader of this one."""
    layers = [list(range(128))] * 4
    groups = plan_groups(layers, 9_437_184, 256)
    assert len(groups) == 4 * MAX_GROUPS
    assert [g.after for g in groups[4:8]] == [0, 0, 0, 0]
    assert [g.after for g in groups[8:12]] == [1, 2, 3, 4]
    # at half residency four layers do
    groups = plan_groups([list(range(0, 128, 2))] * 5, 9_437_184, 256)
    assert [g.after for g in groups if g.layer == 3] == [0, 0, 0, 0]


def test_small_ring_passes_halves():
    """Less room than a layer: groups of half the ring, the next lands while one is read."""
    groups = plan_groups([list(range(128))], 9_437_184, 64)
    assert [len(g.experts) for g in groups] == [32] * 4
    assert [g.after for g in groups] == [0, 0, 1, 2]
    with pytest.raises(ValueError, match="ring"):
        plan_groups([[0]], 4096, 1)


def test_group_begins_and_ends_with_an_expert_that_is_missing():
    """A gap that would be copied along inside a group is left out where the layer is cut."""
    plan = plan_groups([[0, 2, 4, 6], [1]], BRIDGE_BYTES, 6, first_layer=5)
    assert plan == (
        Group(5, (0, 2), (0, 2), (Run(0, 3, 0),), 0),
        Group(5, (4, 6), (3, 5), (Run(4, 3, 3),), 0),
        Group(6, (1,), (0,), (Run(1, 1, 0),), 1),
    )
    assert plan_groups([[], [3], []], BRIDGE_BYTES, 2) == (
        Group(1, (3,), (0,), (Run(3, 1, 0),), 0),
    )
    assert plan_groups([[3, 7]] * 2, GROUP_BYTES, 5)[2:] == (
        Group(1, (3,), (2,), (Run(3, 1, 2),), 0),
        Group(1, (7,), (3,), (Run(7, 1, 3),), 0),
    )
    groups = plan_groups([[0], [0, 1, 2, 3]], GROUP_BYTES, 4)  # the second is as large as the ring
    assert [(g.places, g.after) for g in groups[1:]] == [((0,), 1), ((1,), 0), ((2,), 0), ((3,), 0)]


@settings(deadline=None)
@given(passes(), st.data())
def test_layer_plan_orders_residents_first_and_names_every_expert_once(case, data):
    """Ranks are a permutation; portions cover what lies somewhere, in order of arrival."""
    missing, record_bytes, ring = case
    wanted = missing[0]
    free = [e for e in range(25) if e not in wanted]
    resident = {e: 7 * e for e in data.draw(st.sets(st.sampled_from(free)))}
    groups = plan_groups([wanted], record_bytes, ring)
    plan = plan_layer(25, resident, list(enumerate(groups)))
    assert sorted(plan.experts) == list(range(25))
    assert plan.slots == tuple(7 * e for e in plan.experts[: len(resident)])
    assert plan.num_available == len(resident) + len(wanted)
    ends = [0, *(p.last for p in plan.portions)]
    assert [p.first for p in plan.portions] == ends[:-1]
    assert ends[-1] == plan.num_available
    for rank in range(25):
        inside = len(resident) <= rank < plan.num_available
        assert (plan.place(rank) is not None) == inside
    for portion in plan.portions:
        if portion.group is not None:
            group = groups[portion.group]
            assert plan.experts[portion.first : portion.last] == group.experts
            assert [plan.place(r) for r in range(portion.first, portion.last)] == list(group.places)


@settings(deadline=None)
@given(st.integers(1, 100_000), st.integers(16, 9_000))
def test_tiles_cut_a_chunk_evenly(num_tokens, tile_tokens):
    """Tiles follow each other, none is too long, sizes differ by one at most."""
    tiles = tile_bounds(num_tokens, tile_tokens)
    assert tiles[0][0] == 0
    assert tiles[-1][1] == num_tokens
    assert all(a[1] == b[0] for a, b in itertools.pairwise(tiles))
    sizes = [end - begin for begin, end in tiles]
    assert max(sizes) <= tile_tokens
    assert max(sizes) - min(sizes) <= 1


rates = st.builds(
    PrefillRates,
    link=st.floats(1e9, 1e11),
    sync_s=st.floats(0, 1e-3),
    layer_s=st.floats(0, 1e-2),
)


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 8), st.integers(8, 256), st.floats(0, 2e9), rates)
def test_demand_is_chosen_where_it_is_forecast_to_be_faster(tokens, top_k, experts, missing, rate):
    """The choice is the comparison; more tokens never turn streaming back into demand loading."""
    chosen = prefers_demand(tokens, top_k, experts, missing, rate)
    share = routed_share(tokens, top_k, experts, rate.variety)
    faster = demand_seconds(missing, share, rate) < stream_seconds(missing, rate)
    assert chosen == faster
    if not chosen:
        assert not prefers_demand(tokens + 1, top_k, experts, missing, rate)
    if missing == 0.0:
        assert not chosen


def test_demand_pays_for_short_suffixes_of_a_large_model():
    """48 layers of 128 experts, a quarter resident: 8 tokens yes, 512 no; an idle link never."""
    missing = 0.75 * 128 * 9_437_184
    assert prefers_demand(8, 8, 128, missing, PrefillRates())
    assert not prefers_demand(512, 8, 128, missing, PrefillRates())
    assert not prefers_demand(8, 8, 128, missing, PrefillRates(layer_s=0.1))


def test_rates_learn_from_what_happened():
    """A measurement moves the rate towards it; none leaves it."""
    old = PrefillRates(link=40e9)
    assert old.with_link(60_000_000_000, 1.0).link == pytest.approx(45e9)
    assert old.with_link(0, 1.0) == old == old.with_link(10, 0.0)
    assert old.with_layer(-1.0) == old
    assert old.with_layer(700e-6).layer_s == pytest.approx(400e-6)


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 8), st.integers(16, 256), st.floats(0.05, 1.0))
def test_variety_is_found_from_the_share_that_it_leads_to(tokens, top_k, experts, variety):
    """Told often enough what a chunk has routed, the forecast of that chunk is that share."""
    share = routed_share(tokens, top_k, experts, variety)
    seen = PrefillRates()
    for _ in range(60):
        seen = seen.with_routes(tokens, top_k, experts, share)
    forecast = routed_share(tokens, top_k, experts, seen.variety)
    if share > 0.98:
        assert forecast > 0.979
    elif share < 0.02:
        assert forecast < 0.021
    else:
        assert forecast == pytest.approx(share, abs=1e-3)


def test_variety_when_all_or_nothing_is_routed_is_bounded():
    """Nearly all of the missing experts: at least that; nearly none: at most; both end an error."""
    usual = PrefillRates()
    assert usual.with_routes(512, 8, 128, 1.0) == usual  # as was to be expected
    assert usual.with_routes(8, 8, 128, 0.0).variety < usual.variety
    low = PrefillRates(variety=0.02)
    for _ in range(30):
        low = low.with_routes(64, 8, 128, 1.0)
    assert routed_share(64, 8, 128, low.variety) > 0.97
    assert usual.with_routes(64, 8, 8, 0.5) == usual  # every token routes to all
    assert routed_share(1, 8, 8, 0.4) == 1.0


@pytest.mark.parametrize(("tokens", "seen"), [(8, 0.194), (64, 0.668), (256, 0.925)])
def test_share_of_recorded_routes_is_forecast(tokens, seen):
    """What a recorded text routed of the three quarters of the experts that were not resident."""
    assert routed_share(tokens, 8, 128, PrefillRates().variety) == pytest.approx(seen, abs=0.04)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=30))
def test_hotness_orders_by_recent_use(routes):
    """Every routed expert, hottest first; the last token alone outweighs older single uses."""
    heat = hotness(routes)
    assert set(heat) == {e for token in routes for e in token}
    values = list(heat.values())
    assert values == sorted(values, reverse=True)
    assert hotness([[1], [2]]) == {2: 1.0, 1: 0.5 ** (1 / 16)}
    assert list(hotness([[1, 2], [3]])) == [3, 1, 2]
    assert list(hotness([[2, 7], [5, 7], [9, 4]])) == [7, 4, 9, 5, 2]
    assert all(heat[a] > heat[b] or a < b for a, b in itertools.pairwise(heat))
