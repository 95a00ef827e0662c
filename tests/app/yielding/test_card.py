"""The auto-yield card as a person meets it, and the head that holds the policy now."""

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QSystemTrayIcon

from app.services.settings import SettingsStore
from app.services.tray import Tray
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.yielding import YieldingViewModel
from app.views.performance import PerformanceView
from app.widgets.icons import icon
from app.widgets.look import use
from tests.app.accessible import nameless
from tests.app.performance.stubs import stats
from tests.app.yielding.stubs import GIB, World

pytestmark = pytest.mark.usefixtures("looks")


@pytest.fixture
def build(qtbot, tmp_path):
    def make(emulated=False):
        world = World(emulated, 96 if emulated else 1024)
        settings = SettingsStore(tmp_path / "settings.json")
        performance = PerformanceViewModel(world.engine, tmp_path / "profiles", world.clock)
        yielding = YieldingViewModel(world.engine, settings, world.watch, world.clock)
        yielding.happened.connect(performance.history.mark)
        world.watch.seen.connect(performance.take_presence)
        view = PerformanceView(performance, yielding)
        qtbot.addWidget(view)
        view.resize(996, 712)
        view.show()
        view.world, view.vm, view.settings = world, performance, settings
        return view

    return make


@pytest.fixture
def page(build):
    made = build()
    made.world.engine.load()
    made.world.tick()
    return made


def test_button_when_clicked_then_yields_and_offers_the_way_back(page):
    """One button, two ways; chip, sentence and last event follow."""
    card = page.yielding
    assert (card.chip.text, card.act.text()) == ("Full", "Yield now")
    card.act.click()
    page.world.engine.answer()
    assert (card.chip.text, card.act.text()) == ("Yielded", "Take back")
    assert card.reason.text() == "Given back by hand, until you take it back."
    assert "9.6 GiB in" in card.last.text()
    page.world.tick()
    card.act.click()
    page.world.engine.answer()
    assert (card.chip.text, card.act.text()) == ("Full", "Yield now")


def test_controls_when_changed_then_in_the_settings_and_back(page):
    """Switch and fields are the settings; the settings page changes them as well."""
    card = page.yielding
    card.floor.setValue(2.5)
    card.after.setValue(45)
    card.toggle.click()
    value = page.settings.value
    assert (value.yield_floor_gib, value.yield_return_s, value.auto_yield) == (2.5, 45, False)
    assert card.chip.text == "Off"
    page.settings.set(auto_yield=True, yield_floor_gib=1.0)
    assert card.toggle.isChecked()
    assert card.floor.value() == 1.0


def test_card_when_no_model_then_nothing_to_press_and_a_reason(build):
    """The switch stays; the button says why it is grey."""
    page = build()
    card = page.yielding
    assert not card.act.isEnabled()
    assert card.act.toolTip() == "No model is loaded."
    assert not card.chip.isVisible()
    assert nameless(page) == []


def test_card_when_emulated_then_says_so_and_has_no_floor(build):
    """Nobody shall take host RAM for a graphics card."""
    page = build(emulated=True)
    page.world.engine.load()
    page.world.tick()
    assert page.yielding.reason.text().startswith("VRAM is emulated here")
    assert not page.yielding.floor.isEnabled()
    assert page.yielding.floor.toolTip()


def test_more_when_clicked_then_the_section_of_the_settings(page, qtbot):
    """Programs and the least share are one click away."""
    with qtbot.waitSignal(page.settings_wanted) as told:
        page.yielding.more.click()
    assert told.args == ["yield"]


def test_chart_when_yielded_then_the_event_and_what_others_took(page):
    """The picture of the design: other apps grow where experts were, with the reason on top."""
    world = page.world
    world.engine.stats.emit(stats())
    before = page.vm.history.series("mem_other", 60.0, world.clock())[-1]
    world.others = 2 * GIB
    world.tick(app="game.exe")
    world.engine.stats.emit(stats())
    page._show_charts()
    assert [mark.text for mark in page.memory.marks] == ["game.exe: yielded"]
    now = page.vm.history.series("mem_other", 60.0, world.clock())[-1]
    assert now - before > GIB // 2  # the mean of a bin
    assert page.vm.note.can_undo is False
    page.vm.undo()
    assert len(world.engine.resizes) == 1  # a yield is no choice that Undo could take back


@pytest.mark.parametrize("size", [(996, 712), (843, 552), (560, 500)])
@pytest.mark.parametrize("language", ["en", "zh_CN", "pseudo"])
def test_layout_when_any_size_then_whole_and_named(page, size, language):
    """Words may get longer; the policy goes below the title where it must."""
    page.world.tick(full_screen=True)
    use("dark", 1.0, language, True)
    page.resize(*size)
    QTest.qWait(0)
    content = page.split.parentWidget()
    assert content.minimumSizeHint().width() <= size[0]
    reason = page.yielding.reason
    assert reason.height() >= reason.heightForWidth(reason.width())
    assert nameless(page) == []
    assert page.policy.y() >= 0
    assert (page.head._is_beside is False) == (size[0] == 560)


@pytest.fixture
def tray(qapp, monkeypatch):
    """The icon where a desktop has room for it; it is not shown."""
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", lambda: True)
    monkeypatch.setattr(QSystemTrayIcon, "show", lambda icon: None)
    one = Tray(icon("models"))
    yield one
    one.close()


def test_tray_when_there_is_one_then_yields_and_takes_back(tray, qtbot):
    """The same command as the key, in the words of what it does now; works without the window."""
    entry = tray._yield
    assert (entry.text(), entry.isEnabled()) == ("Yield now", False)
    tray.set_yield(False, True)
    with qtbot.waitSignal(tray.yield_wanted):
        entry.trigger()
    tray.set_yield(True, True)
    assert entry.text() == "Take back"


def test_tray_then_the_last_model_is_loaded_or_freed(tray, qtbot):
    """G-01: one entry in the sense of now; while something is written it rests."""
    entry = tray._model
    assert (entry.text(), entry.isEnabled()) == ("Load the last model", False)
    tray.set_model(False, True)
    with qtbot.waitSignal(tray.load_wanted):
        entry.trigger()
    tray.set_model(True, True)
    assert entry.text() == "Unload the model"
    with qtbot.waitSignal(tray.unload_wanted):
        entry.trigger()
    tray.set_model(True, False)
    assert not entry.isEnabled()


def test_tray_when_there_is_none_then_nothing_happens(qapp):
    """GNOME without the extension, and tests."""
    tray = Tray(qapp.windowIcon())
    tray.set_yield(True, True)
    tray.close()
