"""A division of memory can only be moved to divisions that the engine named as possible."""

from hypothesis import given
from hypothesis import strategies as st

from app.predict.split import ORDER, PAGE_TOKENS, Divider, Split
from engine.protocol.messages import DeviceInfo, DeviceStatus, Pool


def status(kv=(1024, 512, 4096), slots=(100, 8, 256), kv_unit=4096, slot=115_200, free=3_000_000):
    """One device; each triple is units, floor, maximum."""
    pools = (
        Pool(name="weights", used_bytes=5_000_000, units=1, min_units=1, max_units=1),
        Pool(
            name="kv",
            used_bytes=kv[0] * kv_unit,
            unit_bytes=kv_unit,
            units=kv[0],
            min_units=kv[1],
            max_units=kv[2],
        ),
        Pool(
            name="experts",
            used_bytes=slots[0] * slot,
            unit_bytes=slot,
            units=slots[0],
            min_units=slots[1],
            max_units=slots[2],
        ),
        Pool(name="runtime", used_bytes=700_000),
        Pool(name="free", used_bytes=free),
        Pool(name="other", used_bytes=0),
    )
    total = sum(pool.used_bytes for pool in pools)
    device = DeviceInfo(name="cpu", title="CPU", total_bytes=total, free_bytes=free, emulated=True)
    return DeviceStatus(device=device, total_bytes=total, pools=pools)


@st.composite
def splits(draw):
    """Any device whose present division is within its own bounds."""
    kv_low = draw(st.integers(0, 64)) * PAGE_TOKENS
    kv_now = kv_low + draw(st.integers(0, 512)) * PAGE_TOKENS
    kv_high = kv_now + draw(st.integers(0, 512)) * PAGE_TOKENS
    low = draw(st.integers(1, 64))
    now = low + draw(st.integers(0, 300))
    high = now + draw(st.integers(0, 300))
    found = Split.from_status(
        status(
            (kv_now, kv_low, kv_high),
            (now, low, high),
            draw(st.integers(1, 9000)),
            draw(st.integers(1, 400_000)),
            draw(st.integers(0, 40_000_000)),
        )
    )
    assert found is not None
    return found


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.sampled_from(Divider), st.floats(-1e9, 1e10)),
        st.tuples(
            st.just("nudge"), st.sampled_from(Divider), st.sampled_from([-0.1, -0.01, 0.01, 0.1])
        ),
        st.tuples(st.just("kv"), st.none(), st.integers(-10, 20_000)),
        st.tuples(st.just("slots"), st.none(), st.integers(-10, 2_000)),
    ),
    max_size=8,
)


@given(splits(), MOVES)
def test_any_moves_when_chained_then_every_division_is_legal(split, moves):
    """Whatever is dragged, typed or stepped: bounds hold, pages are whole, the parts add up."""
    for kind, divider, value in moves:
        if kind == "move":
            split = split.move(divider, value)
        elif kind == "nudge":
            split = split.nudge(divider, value)
        elif kind == "kv":
            split = split.with_kv(value)
        else:
            split = split.with_slots(value)
        assert split.is_legal
        sizes = split.sizes()
        assert sum(sizes.values()) == split.total_bytes
        assert tuple(sizes) == ORDER


@given(splits(), st.floats(0, 1), st.floats(0, 1))
def test_presets_when_taken_then_legal(split, kv_share, expert_share):
    """A preset is a pair of fractions of whatever the bounds allow."""
    assert split.by_shares(kv_share, expert_share).is_legal


@given(splits())
def test_move_when_dropped_at_its_own_place_then_nothing_changes(split):
    """Pressing and letting go of a handle asks for nothing."""
    assert split.move(Divider.KV, split.kv_bytes).same_as(split)
    assert split.move(Divider.EXPERTS, split.expert_bytes).same_as(split)


@given(splits())
def test_nudge_when_small_then_one_unit_at_least(split):
    """On a tiny model 1 % may be less than a slot; the key still does something."""
    _, high = split.bounds(Divider.EXPERTS)
    if split.expert_slots < high:
        assert split.nudge(Divider.EXPERTS, 1e-9).expert_slots == split.expert_slots + 1


def test_move_when_kv_shrinks_then_experts_get_the_rest():
    """The KV divider trades with the experts; free memory keeps less than a slot more."""
    split = Split.from_status(status())
    moved = split.move(Divider.KV, split.kv_bytes / 2)
    assert moved.kv_tokens == 512
    assert moved.expert_slots > split.expert_slots
    assert 0 <= moved.free_bytes - split.free_bytes < 115_200


def test_from_status_when_no_model_then_none():
    """Without KV and expert pools there is nothing to divide."""
    device = DeviceInfo(name="cpu", title="CPU", total_bytes=10, free_bytes=10)
    empty = DeviceStatus(device=device, total_bytes=10, pools=(Pool(name="free", used_bytes=10),))
    assert Split.from_status(empty) is None


def test_like_when_bounds_have_moved_then_clipped():
    """A choice made under older bounds is brought back into the new ones."""
    old = Split.from_status(status()).with_slots(120)
    new = Split.from_status(status(slots=(50, 8, 60)))
    assert new.like(old).expert_slots == 60


def test_bounds_when_the_rest_is_full_then_name_what_fits():
    """The most slots are limited by memory, not only by the pool's own maximum."""
    split = Split.from_status(status(free=115_200 * 3 + 5))
    assert split.bounds(Divider.EXPERTS) == (8, 103)
