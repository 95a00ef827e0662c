"""The arithmetic of the window's bench."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.ui_figures import Figure, longest_gap, slope_per_step


def test_longest_gap_then_it_is_the_largest_of_the_pauses() -> None:
    """Beats at 0, 1, 4, 5: the pause of three counts; one beat has none."""
    assert longest_gap([0.0, 1.0, 4.0, 5.0]) == 3.0
    assert longest_gap([7.0]) == 0.0


@given(st.floats(-50, 50), st.floats(-50, 50), st.integers(2, 30), st.floats(0.5, 100))
def test_slope_of_a_line_then_it_is_that_of_the_line(
    start: float, rise: float, count: int, step: float
) -> None:
    """Whatever the samples, a straight line has one slope."""
    samples = [(10.0 * i, start + rise * 10.0 * i) for i in range(count)]
    assert slope_per_step(samples, step) == pytest.approx(rise * step, abs=1e-6)


@pytest.mark.parametrize("samples", [[], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)]])
def test_slope_without_two_places_then_it_says_so(samples: list[tuple[float, float]]) -> None:
    """Too few samples make no figure."""
    with pytest.raises(ValueError, match="two"):
        slope_per_step(samples, 1.0)


def test_figure_then_its_line_says_goal_and_miss() -> None:
    """A missed goal is seen at once; a figure without goal is only shown."""
    assert Figure("gap", 120.0, "ms", 100).line.endswith("goal 100 ms   MISSED")
    assert Figure("gap", 80.0, "ms", 100).line.endswith("goal 100 ms")
    assert Figure("memory", 80.0, "MiB", None).is_met
