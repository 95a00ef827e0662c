"""Pressure: late neither in shrinking, nor nervous in growing."""

from hypothesis import given
from hypothesis import strategies as st

from engine.memory.pressure import Pressure, PressureRules, Reading

RULES = PressureRules(
    reserve_bytes=1000, margin_bytes=500, calm_s=5.0, interval_s=1.0, grow_share=0.5
)


def _reading(now, free, slots, wanted=40, floor=8):
    return Reading(now, free, slots, floor, wanted, 100)


def test_little_free_memory_shrinks_at_once_by_what_is_missing():
    """Another program took memory: case M-14."""
    pressure = Pressure(RULES)
    assert pressure.step(_reading(0, 650, 40)) == 36
    assert pressure.step(_reading(0.5, 650, 36)) is None  # rate limit
    assert pressure.step(_reading(1.1, 0, 36)) == 26


def test_floor_is_kept_however_little_is_free():
    """Experts of one token must always fit."""
    pressure = Pressure(RULES)
    assert pressure.step(_reading(0, 0, 12)) == 8
    assert pressure.step(_reading(2, 0, 8)) is None


def test_growth_waits_for_calm_and_comes_in_steps():
    """Hysteresis: the reserve alone is not enough, and a moment is not calm."""
    pressure = Pressure(RULES)
    assert pressure.step(_reading(0, 1400, 20)) is None  # above the reserve, within the margin
    assert pressure.step(_reading(10, 1400, 20)) is None
    assert pressure.step(_reading(11, 9000, 20)) is None
    assert pressure.step(_reading(15, 9000, 20)) is None
    assert pressure.step(_reading(16.1, 9000, 20)) == 30
    assert pressure.step(_reading(16.5, 9000, 30)) is None
    assert pressure.step(_reading(17.2, 9000, 30)) == 35
    assert pressure.step(_reading(18, 1600, 35)) is None
    assert pressure.step(_reading(19, 9000, 40)) is None  # all there is


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5000)), max_size=60))
def test_slots_under_any_readings_stay_within_floor_and_wish(readings):
    """Never below the floor, never above what the person chose."""
    pressure, slots, now = Pressure(RULES), 30, 0.0
    for wait, free in readings:
        now += wait
        wished = pressure.step(_reading(now, free, slots))
        if wished is not None:
            assert 8 <= wished <= 40
            slots = wished
