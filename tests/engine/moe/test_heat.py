"""The heat map's window: uses expire, and the largest count is white."""

from engine.moe.heat import Heat


def test_heat_when_time_passes_forgets_old_uses():
    """A use counts for one window, in steps of a twelfth."""
    now = [0.0]
    heat = Heat(4, lambda: now[0], window_s=12.0)
    heat.add([0, 1, 1])
    assert heat.scaled() == (bytes([128, 255, 0, 0]), 2)
    now[0] = 6.0
    heat.add([3])
    now[0] = 11.9
    assert heat.scaled()[1] == 2
    now[0] = 12.1
    assert heat.scaled() == (bytes([0, 0, 0, 255]), 1)
    now[0] = 100.0
    assert heat.scaled() == (bytes(4), 0)


def test_heat_when_a_use_is_rare_is_never_black():
    """One use beside thousands still shows."""
    heat = Heat(2, lambda: 0.0)
    heat.add([0] * 1000)
    heat.add([1])
    assert heat.scaled() == (bytes([255, 1]), 1000)


def test_follow_when_totals_grow_then_only_the_growth_counts_and_expires():
    """A device counts since load; the map shows the last minute."""
    now = [0.0]
    heat = Heat(3, lambda: now[0], window_s=12.0)
    heat.follow([4, 0, 2])
    heat.follow([4, 1, 2])
    assert heat.scaled() == (bytes((255, 64, 128)), 4)
    now[0] = 13.0
    heat.follow([5, 1, 2])
    assert heat.scaled() == (bytes((255, 0, 0)), 1)
