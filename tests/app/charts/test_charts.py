"""Charts: arithmetic of axes and decimation; painting of nothing, one, many and NaN."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent
from PySide6.QtTest import QTest

from app.theme import color
from app.widgets.charts.bars import PairBars, PairRow, RangeBar, RangeValue, Sparkline
from app.widgets.charts.curves import CurveChart
from app.widgets.charts.heat import HeatMap, HeatScale, read_map
from app.widgets.charts.lines import LineChart, StackChart
from app.widgets.charts.series import Curve, Limit, Mark, Series, decimate, nice_ticks, runs, spread
from app.widgets.look import use
from tests.app.performance.stubs import cache_map

NAN = math.nan
VALUES = {
    "nothing": [],
    "only gaps": [NAN] * 50,
    "one": [5.0],
    "one among gaps": [NAN, 3.0, NAN],
    "zeros": [0.0] * 40,
    "many": [math.sin(i / 9) * 20 + 22 for i in range(5_000)],
    "with gaps": [NAN if i % 50 < 20 else float(i % 17) for i in range(300)],
    "infinite": [1.0, math.inf, 2.0],
}


@pytest.fixture(autouse=True)
def look(qtbot):
    use("dark", 1.0, "en", True)


def shown(qtbot, widget, width=320, height=140):
    qtbot.addWidget(widget)
    widget.resize(width, height)
    widget.show()
    return widget


@given(st.floats(0, 1e12, allow_subnormal=False))
def test_nice_ticks_when_any_height_then_few_and_covering(high):
    """Two to four round ticks from 0 that reach the value."""
    ticks = nice_ticks(high)
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= 4
    assert ticks[-1] >= high * (1 - 1e-6)
    assert list(ticks) == sorted(set(ticks))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(1, 400))
def test_decimate_when_long_then_extremes_survive(values, columns):
    """What a person must not miss, the peaks, is still there; the order stays."""
    run = list(enumerate(values))
    kept = decimate(run, columns)
    assert {min(values), max(values)} <= {v for _, v in kept}
    assert [i for i, _ in kept] == sorted(i for i, _ in kept)
    assert len(kept) <= max(300, 2 * columns)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_spread_when_labels_are_close_then_apart(places):
    """End words never cover each other while there is room."""
    moved = sorted(spread(places, 13, 0, 100))
    for a, b in pairwise(moved):
        assert b - a >= 13 - 1e-9


def test_runs_when_gaps_then_stretches():
    """A gap ends a line; nothing is drawn across it."""
    assert runs([NAN, 1.0, 2.0, NAN, 3.0]) == [[(1, 1.0), (2, 2.0)], [(4, 3.0)]]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("kind", [LineChart, StackChart])
def test_time_chart_when_painted_then_no_error(qtbot, kind, values):
    """Any values, with limits, marks and a pointer over it."""
    chart = shown(qtbot, kind("Speed", "tok/s"))
    if kind is LineChart:
        chart.set_limits([Limit(7.0, "fill", "B 7")])
    chart.set_marks([Mark(0.2, "up", "kv", "KV grew"), Mark(0.22, "down", "experts", "Shrank")])
    chart.set_x_labels(["−15 min", "now"])
    chart.set_series([Series("a", "kv", values), Series("b", "other", values, (2, 3))], 60)
    place = QPointF(160, 60)
    move = QMouseEvent(
        QEvent.Type.MouseMove, place, place, Qt.MouseButton.NoButton, Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    chart.mouseMoveEvent(move)
    assert not chart.grab().isNull()


def test_chart_when_empty_then_says_one_sentence_and_draws_no_line(qtbot):
    """The frame stays; the colour of the series is nowhere."""
    chart = shown(qtbot, LineChart("Speed", "tok/s", "Nothing generated yet."))
    chart.set_series([Series("a", "kv", [NAN] * 9)], 60)
    assert chart.is_empty()
    assert color("kv").name() not in colours(chart.grab().toImage())


def test_chart_when_values_then_the_series_colour_is_there(qtbot):
    """The opposite, so that the test above means something."""
    chart = shown(qtbot, LineChart("Speed", "tok/s"))
    chart.set_series([Series("a", "kv", [3.0] * 9), Series("b", "cpu", [1.0] * 9)], 60)
    assert color("kv").name() in colours(chart.grab().toImage())


def test_table_when_asked_by_key_then_values_as_text(qtbot):
    """Ctrl+Shift+T on a focused chart opens its values."""
    chart = shown(qtbot, LineChart("Speed", "tok/s"))
    chart.set_series([Series("Decode", "accent", [NAN, 1.0, 24.8])], 60)
    QTest.keyClick(
        chart, Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    dialog = next(c for c in chart.children() if hasattr(c, "grid"))
    assert dialog.grid.rowCount() == 2  # a moment without values is no row
    assert dialog.grid.item(1, 1).text() == "24.8"
    assert dialog.grid.item(0, 0).text() == "30"
    dialog.close()


def test_chart_when_told_of_values_then_describes_them(qtbot):
    """The newest values are spoken, in the language in use."""
    chart = shown(qtbot, LineChart("Speed", "tok/s"))
    chart.set_series([Series("Decode", "accent", [1.0, 24.8, NAN])], 60)
    assert chart.accessibleName() == "Speed, tok/s"
    assert chart.accessibleDescription() == "Decode 24.8"


def test_heat_when_decoded_then_residents_stand_left():
    """The stair line is exactly the edge of residency."""
    event = cache_map(layers=4, experts=16, held=5)
    rows = read_map(4, 16, event.hits, event.resident, 40)
    import base64

    inside = base64.b64decode(event.resident)
    assert rows.resident == tuple(sum(inside[i * 16 : (i + 1) * 16]) for i in range(4))
    for row, held in zip(rows.rows, rows.resident, strict=True):
        assert list(row[:held]) == sorted(row[:held], reverse=True)
        assert list(row[held:]) == sorted(row[held:], reverse=True)


@pytest.mark.parametrize(
    ("hits", "resident"), [("AAAA", "AAA="), ("not base64!", "AAAA"), ("", "")]
)
def test_heat_when_sizes_differ_then_refused(hits, resident):
    """A broken frame is named, not drawn."""
    with pytest.raises(ValueError, match="cache map"):
        read_map(1, 4, hits, resident, 1)


def test_heat_when_theme_changes_then_recoloured(qtbot):
    """The image keeps its numbers; only the colour table is made anew."""
    heat = shown(qtbot, HeatMap("Expert hits"))
    event = cache_map(layers=43, experts=256, held=30)
    heat.set_rows(read_map(43, 256, event.hits, event.resident, 40))
    dark = heat.grab().toImage()
    use("light")
    assert heat.grab().toImage() != dark
    assert heat.table().rows[0][0] == "0"
    scale = shown(qtbot, HeatScale())
    scale.set_high("40 / min")
    assert not scale.grab().isNull()


def test_pair_bars_when_not_measured_then_the_others_stand_alone(qtbot):
    """NaN for this PC draws no bar and says a dash."""
    chart = shown(qtbot, PairBars("Machines"), 460, 200)
    chart.set_rows([PairRow("This PC", NAN, NAN, mine=True), PairRow("PRO 6000", 51.5, 178.0)])
    assert not chart.grab().isNull()
    assert chart.table().rows[0][1:] == ("–", "–", "–")
    assert chart.table().rows[1][3] == "0.29"


@pytest.mark.parametrize(
    "value",
    [
        None,
        RangeValue(24.9, 26.2, 27.5, 24.8),
        RangeValue(5, 5, 5, 5),
        RangeValue(0, 0, 0, 0),
        RangeValue(1, 2, 3, 9),
    ],
)
def test_range_bar_when_any_value_then_painted_and_named(qtbot, value):
    """Nothing, a point, zero, or today outside of the range."""
    bar = shown(qtbot, RangeBar("tok/s"), 280, 36)
    bar.set_value(value)
    assert not bar.grab().isNull()
    assert bool(bar.accessibleName())


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_sparkline_when_painted_then_no_error(qtbot, values):
    """Any values."""
    line = shown(qtbot, Sparkline("Speed"))
    line.set_values(values)
    assert not line.grab().isNull()


def test_curves_when_empty_then_no_plot_is_made(qtbot):
    """pyqtgraph is imported only for a chart with values that somebody sees."""
    chart = shown(qtbot, CurveChart("Copies", "Not measured yet."), 460, 240)
    chart.set_curves([Curve("a", "fill")])
    assert chart._plot is None
    assert not chart.grab().isNull()


@pytest.mark.parametrize("count", [1, 2, 60])
def test_curves_when_points_then_drawn_in_their_colour(qtbot, count):
    """One point, two, many; with the working point of a model; in both tones and another size."""
    chart = shown(qtbot, CurveChart("Copies", "Not measured yet."), 460, 240)
    points = tuple((float(1 << (12 + i % 24)) + i, 3.0 + i % 24) for i in range(count))
    chart.set_curves(
        [Curve("to GPU", "fill", tuple(sorted(points))), Curve("with CPU", "cpu")],
        (115_200.0, "this model"),
    )
    assert color("fill").name() in colours(chart.grab().toImage())
    chart.resize(300, 160)
    use("light")
    assert color("fill").name() in colours(chart.grab().toImage())
    assert len(chart.table().rows) == len({x for x, _ in points})
    assert chart.accessibleName() == "Copies, GB/s"


def colours(image: QImage) -> set[str]:
    return {
        image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())
    }


def test_lines_when_they_ended_before_now_then_words_stay_in_a_lesser_ink(qtbot):
    """Idle: the last value is still there, and cannot be taken for a present one."""
    chart = shown(qtbot, LineChart("Speed", "tok/s"))
    words = {}

    def ends(values):
        chart.set_series([Series("Speed", "accent", values)])
        painted = QImage(chart.size(), QImage.Format.Format_RGB32)
        chart.render(painted)
        return sum(
            painted.pixelColor(x, y).lightness() > 200
            for x in range(painted.width() - 40, painted.width())
            for y in range(painted.height())
        )

    words["live"] = ends([20.0] * 60)
    words["over"] = ends([20.0] * 50 + [NAN] * 10)
    assert words["live"] > 0
    assert words["over"] < words["live"]
