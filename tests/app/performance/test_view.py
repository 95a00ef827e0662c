"""The Performance page as a person meets it: states, sizes, tones, languages."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.predict import amounts
from app.predict.split import Divider, Phase
from app.services.settings import SettingsStore
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.performance_state import POLICIES
from app.viewmodels.yielding import YieldingViewModel
from app.views.performance import PerformanceView
from app.widgets.charts.table import ValuesDialog
from app.widgets.look import use
from engine.protocol import messages as m
from tests.app.accessible import nameless
from tests.app.performance.stubs import (
    EMPTY,
    StubClient,
    big_status,
    cache_map,
    profile_bytes,
    stats,
    tiny_status,
)
from tests.app.walk import clipped, settle


@pytest.fixture
def page(qtbot, tmp_path):
    """A page of a machine in use, 1180x760 less rail and strip; its client and view model."""
    use("dark", 1.0, "en", True)
    (tmp_path / "a.json").write_bytes(profile_bytes())
    client = StubClient()
    vm = PerformanceViewModel(client, tmp_path)
    settings = SettingsStore(tmp_path / "home" / "settings.json")
    view = PerformanceView(vm, YieldingViewModel(client, settings))
    qtbot.addWidget(view)
    view.resize(996, 712)
    view.show()
    client.tell_status(big_status())
    for _ in range(6):
        client.stats.emit(stats())
    client.cache_map.emit(cache_map())
    view.client, view.vm = client, vm
    return view


def test_drag_when_released_on_the_page_then_asks_and_shows_the_answer(page):
    """The whole way: pointer, view model, client, and back."""
    bar, client = page.split.bar, page.client
    x = round(
        sum(bar.shown.sizes()[n] for n in ("weights", "kv")) / bar.shown.total_bytes * bar.width()
    )
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=QPoint(x, 46))
    QTest.mouseMove(bar, QPoint(x - 30, 46))
    assert page.forecast._chip.text == "Predicted"
    assert page.split.kv.value() == bar.shown.kv_tokens
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=QPoint(x - 30, 46))
    kv, slots = client.asked[-1]
    assert bar.phase is Phase.PENDING
    client.apply(kv, slots)
    client.tell_status(big_status(kv, slots))
    assert page.split.note.words.text() == "Applied in 31 ms."
    assert page.split.undo.isVisible()
    assert page.split.slots.value() == slots


def test_field_when_typed_then_previewed(page):
    """The exact fields go the same way; they follow the bar without asking by themselves."""
    page.split.slots.setValue(900)
    assert page.split.bar.phase is Phase.PREVIEW
    assert page.split.bar.active is Divider.EXPERTS
    assert page.split.bar.shown.expert_slots == 900


def test_refusal_when_long_then_on_its_own_line_in_full(page):
    """A reason is never cut: it leaves the row of the fields when it does not fit there."""
    reason = "Not below 1.2 GiB: this chat already uses 181K tokens. " * 3
    page.vm.release(page.vm.applied.with_kv(200 * 1024))
    page.client.resize_refused.emit(
        m.ResizeRefused(id="resize-1", reason=reason, kv_tokens=0, expert_slots=0)
    )
    words = page.split.note.words
    assert words.text() == reason
    assert not page.split._is_beside
    QTest.qWait(0)
    assert words.height() >= words.heightForWidth(words.width())


def test_cpu_only_when_shown_then_says_that_vram_is_emulated(page):
    """Nobody shall take an ordinary buffer for a graphics card."""
    page.client.tell_status(tiny_status())
    assert "emulated VRAM" in page.split.where.text()
    assert "48.0 MiB" in page.split.where.text()
    page.client.decode(stats())
    assert any("Copied" in label.text() for label in page.now._shares._words)


def test_no_model_when_shown_then_one_sentence_and_one_button(page, qtbot):
    """Everything stays where it was; the way on is a button."""
    page.client.tell_status(EMPTY)
    page.client.unloaded.emit(None)
    assert page.split.bar.shown is None
    assert not page.split.kv.isEnabled()
    assert page.memory.is_empty() or page.vm.applied is None
    with qtbot.waitSignal(page.models_wanted):
        page.split.choose.click()
    assert nameless(page) == []


def test_names_when_walked_then_every_control_has_one(page):
    """Assistive tools find no nameless control."""
    assert nameless(page) == []


def test_policy_when_picked_then_sent(page):
    """One click, one command, one sentence of explanation in the tool tip."""
    page.policy.choice.segments[POLICIES.index(m.MissPolicy.CPU_ONLY)].click()
    assert page.client.policies == [m.MissPolicy.CPU_ONLY]
    page.client.tell_status(big_status(policy=m.MissPolicy.CPU_ONLY))
    assert "RAM" in page.policy.choice.toolTip()


@pytest.mark.parametrize(
    ("size", "language"),
    [((996, 712), "pseudo"), ((843, 552), "pseudo"), ((700, 500), "en"), ((1600, 1000), "en")],
)
def test_layout_when_any_size_then_nothing_is_wider_than_the_page(page, size, language):
    """Also in a language 30 % longer the page scrolls down only."""
    use("dark", 1.0, language, True)
    page.resize(*size)
    QTest.qWait(0)
    content = page.split.parentWidget()
    assert content.minimumSizeHint().width() <= size[0]
    assert not page.grab().isNull()
    use("dark", 1.0, "en", True)


def test_look_when_switched_live_then_words_and_colours_follow(page):
    """Theme and language change without a new page."""
    dark = page.grab().toImage()
    use("light", 1.0, "pseudo", True)
    assert page.grab().toImage() != dark
    assert page.split.bar.accessibleName() != "VRAM split"
    use("dark", 1.0, "en", True)
    assert page.split.bar.accessibleName() == "VRAM split"


def test_hidden_when_frames_come_then_charts_wait_until_shown(page):
    """A hidden page paints nothing, and is right when it comes back."""
    page.hide()
    before = page.speed.series
    page.client.decode(stats(99.0))
    page.client.cache_map.emit(cache_map(layers=4, experts=16, held=4))
    assert page.speed.series is before
    page.show()
    assert page.speed.series is not before
    assert len(page.heat._map.rows) == 4


def test_map_when_broken_then_the_page_stays(page, caplog):
    """A malformed frame keeps the last good picture."""
    good = page.heat._map
    page.client.cache_map.emit(m.CacheMap(num_layers=2, num_experts=2, hits="AA", resident=""))
    assert page.heat._map is good


def test_now_when_automatic_then_what_link_and_cpu_really_did(page):
    """Share of the misses and GB/s, each for itself; all hits are no misses."""
    page.client.tell_status(big_status(policy=m.MissPolicy.TWO_ENDED))
    page.client.decode(stats())
    link, cpu = (amounts.number(v) for v in (page.vm.figures.fill_gbps, page.vm.figures.cpu_gbps))
    assert page.now._copied.value.text() == f"78 % of misses · {link} GB/s"
    assert page.now._computed.value.text() == f"22 % of misses · {cpu} GB/s"
    for _ in range(8):  # the window of what is shown holds some frames
        page.client.decode(stats(hit=1.0, fill=0.0))
    assert page.now._copied.value.text() == "no misses"
    settle()
    assert clipped(page) == []


@pytest.mark.parametrize("name", ["speed", "shares", "links", "memory", "heat"])
def test_chart_when_ctrl_shift_t_then_its_values_as_a_table(page, name):
    """Every chart of the page can be read without seeing it."""
    chart = getattr(page, name)
    page.spans.segments[1].click()  # drawn now, not at the next step
    page.activateWindow()
    chart.setFocus()
    keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    QTest.keyClick(chart, Qt.Key.Key_T, keys)
    dialog = chart.findChild(ValuesDialog)
    assert dialog.grid.rowCount() > 0
    assert dialog.grid.accessibleName()
    dialog.close()
