"""Forecasts: monotone in slots, honest where little is known, empty where nothing is."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.predict.fit import Fit, judge_fit
from app.predict.hits import HitCurve
from app.predict.machines import REFERENCE_MACHINES
from app.predict.speed import (
    Measured,
    MissCost,
    expected_hits,
    fills_per_miss,
    predict_speed,
    routed_bytes,
)

POINTS = st.lists(st.tuples(st.integers(1, 255), st.floats(0, 1)), min_size=1, max_size=6)


@given(POINTS, st.integers(0, 256), st.integers(0, 256))
@example([(6, 0.25648977255512057)], 0, 256)  # the end of a line, past 1 by rounding
def test_hit_curve_when_more_slots_then_never_worse(points, one, other):
    """Bounds are ordered, within 0..1, and grow with the slots, whatever noise was observed."""
    curve = HitCurve(256, points)
    few, many = curve.at(min(one, other)), curve.at(max(one, other))
    for hits in (few, many):
        assert 0 <= hits.low <= hits.middle <= hits.high <= 1
    assert few.low <= many.low + 1e-12
    assert few.high <= many.high + 1e-12


def test_hit_curve_when_concave_then_the_truth_lies_inside():
    """Three points of a square-root curve bracket it everywhere."""
    curve = HitCurve(256, [(n, math.sqrt(n / 256)) for n in (32, 96, 180)])
    for slots in range(257):
        hits = curve.at(slots)
        assert hits.low - 1e-9 <= math.sqrt(slots / 256) <= hits.high + 1e-9


@given(
    POINTS,
    st.floats(0.1, 500),
    st.integers(1, 255),
    st.floats(1e6, 1e12),
    st.tuples(st.integers(0, 256), st.integers(0, 256)),
)
def test_predict_when_more_slots_then_not_slower(points, speed, slots, rate, asked):
    """The whole range grows with the slots; that is what the slider promises."""
    share = HitCurve(256, points).at(slots).middle
    now = Measured(speed, share, slots)
    cost = MissCost(routed_bytes(8, 4, 115_200), rate)
    few, many = (predict_speed(HitCurve(256, points), now, cost, n) for n in sorted(asked))
    assert few.low <= few.middle <= few.high
    assert few.low <= many.low * (1 + 1e-9)
    assert few.middle <= many.middle * (1 + 1e-9)
    assert few.high <= many.high * (1 + 1e-9)


def test_predict_when_asked_for_today_then_returns_today():
    """At the present size the forecast is the measurement."""
    curve = HitCurve(256, [(64, 0.6)])
    cost = MissCost(routed_bytes(8, 4, 115_200), 5e9)
    here = predict_speed(curve, Measured(40.0, 0.6, 64), cost, 64)
    assert here.low == pytest.approx(40.0)
    assert here.high == pytest.approx(40.0)


def test_predict_when_worked_by_hand_then_agrees():
    """100 MB routed, 1 GB/s, hit 0.5: 50 ms of a 60 ms token are misses; all resident: 10 ms."""
    curve = HitCurve(10, [(5, 0.5)])
    here = predict_speed(curve, Measured(1 / 0.06, 0.5, 5), MissCost(100_000_000, 1e9), 10)
    assert here.middle == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("speed", "rate", "points"), [(0.0, 1e9, [(5, 0.5)]), (9.0, 0.0, [(5, 0.5)]), (9.0, 1e9, [])]
)
def test_predict_when_something_is_unmeasured_then_none(speed, rate, points):
    """No speed, no rate or no hit rate: no number."""
    assert (
        predict_speed(HitCurve(10, points), Measured(speed, 0.5, 5), MissCost(10, rate), 7) is None
    )


def test_expected_hits_when_shrinking_then_not_above_today():
    """A curve with an old, better observation never promises a gain from fewer slots."""
    curve = HitCurve(256, [(64, 0.9), (128, 0.92)])
    assert expected_hits(curve, Measured(9.0, 0.5, 128), 64).high <= 0.5


def test_hit_curve_when_no_records_then_refused():
    """A dense model has no curve."""
    with pytest.raises(ValueError, match="record"):
        HitCurve(0, [])


@pytest.mark.parametrize(
    ("rates", "share"),
    [
        ((12.0, 24.0), 0.5),
        ((4.0, 8.0), 0.5),
        ((30.0, 10.0), 1.0),
        ((1.0, 0.0), 0.0),
        ((9.0, 9.0, 48.3, 31.5), 48.3 / 79.8),
    ],
)
def test_fills_per_miss_when_rates_known_then_as_in_the_paper(rates, share):
    """q*/m = B_P / B_H, at most 1; measured joint rates decide where they exist."""
    assert fills_per_miss(*rates) == pytest.approx(share)


def test_reference_machines_when_read_then_the_papers_ratios():
    """Table 1's last column, to two places."""
    assert [round(machine.ratio, 2) for machine in REFERENCE_MACHINES] == [
        0.68,
        0.40,
        0.45,
        0.91,
        0.25,
        0.29,
    ]


@pytest.mark.parametrize(
    ("model", "total", "free", "fit"),
    [
        (100, 1000, 900, Fit.FITS),
        (100, 1000, 50, Fit.TIGHT),
        (1000, 900, 800, Fit.TOO_BIG),
        (0, 900, 1, Fit.UNKNOWN),
    ],
)
def test_judge_fit_when_memory_differs_then_says_which(model, total, free, fit):
    """The chip and its number come from one sum."""
    assert judge_fit(model, total, free).fit is fit
