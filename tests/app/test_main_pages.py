"""Pages are built when they are needed: at a first visit, or in a pause after the start."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.first_picture import FirstPicture
from app.main import Desktop
from app.pages import NAMES
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.warm_up import WarmUp
from app.widgets.look import use
from app.wording import tr
from engine.protocol.places import data_root
from tests.conftest import REPOSITORY
from tests.support.app_engine import FAKE_ENGINE

pytestmark = pytest.mark.usefixtures("looks")


@pytest.fixture
def desktop(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desktop]:
    """The app, not yet shown."""
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--tokens 5")
    root = data_root(str(tmp_path / "home"))
    made = Desktop(Environment(root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())
    yield made
    with qtbot.waitSignal(made.finished, timeout=10_000):
        made.quit()
    made.window.deleteLater()


def words(page: QWidget) -> set[str]:
    """What the labels of a page say."""
    return {label.text() for label in page.findChildren(QLabel)}


# --- what a start builds ----------------------------------------------------------------------


def test_start_then_the_chat_alone_is_built(qtbot: QtBot, desktop: Desktop) -> None:
    """Nothing before the window is shown, then what is in front; the engine comes after it."""
    assert desktop.pages.built == ()
    assert desktop.window.page == "chat"
    with qtbot.waitSignal(desktop.begun):
        desktop.show()
        assert not desktop.services.client.process.is_running
    assert desktop.services.client.process.is_running
    assert desktop.pages.built == ("chat",)
    assert desktop.window.stack.currentWidget() is desktop.pages.chat


@pytest.mark.parametrize("name", ["logs", "first_run"])
def test_start_elsewhere_then_not_even_the_chat_is_built(
    qtbot: QtBot, desktop: Desktop, name: str
) -> None:
    """The page of the command line, or the first run, is the one that is paid for."""
    if name == "first_run":
        desktop.greet()
    desktop.show("" if name == "first_run" else name)
    assert desktop.window.page == name
    assert desktop.pages.built == (name,)


def test_start_then_only_its_own_parts_are_imported(tmp_path: Path) -> None:
    """A fresh interpreter up to the first picture: no other page, no chart, no parser."""
    code = (
        "import os, sys\n"
        "from PySide6.QtCore import QEventLoop\n"
        "from app.application import make_application\n"
        "from app.main import Desktop\n"
        "from app.services.log_ring import LogRing\n"
        "from app.services.settings import read_environment\n"
        "app = make_application(offscreen=True)\n"
        "desktop = Desktop(read_environment(sys.argv[1]), LogRing())\n"
        "loop = QEventLoop()\n"
        "desktop._first_picture.drawn.disconnect()\n"
        "desktop._first_picture.drawn.connect(loop.quit)\n"
        "desktop.show()\n"
        "loop.exec()\n"
        "late = ['app.views.' + n for n in "
        "('models', 'performance', 'profiler', 'server', 'logs', 'settings', 'first_run')]\n"
        "late += ['app.widgets.charts', 'app.services.licences', 'markdown_it', 'cryptography']\n"
        "late += ['huggingface_hub', 'keyring']\n"
        "print(*[n for n in late if n in sys.modules], flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


# --- first visits -----------------------------------------------------------------------------


def test_pages_when_visited_twice_then_each_is_built_once(desktop: Desktop) -> None:
    """Every page of the rail, and the first run."""
    desktop.show()
    seen = {}
    for name in NAMES:
        desktop.window.show_page(name)
        assert desktop.window.page == name
        seen[name] = desktop.window.stack.currentWidget()
        assert seen[name].isVisible()
    assert desktop.pages.built == NAMES
    for name in NAMES:
        desktop.window.show_page(name)
        assert desktop.window.stack.currentWidget() is seen[name]
    assert desktop.window.stack.count() == len(NAMES)


def test_page_without_such_a_name_then_nothing_changes(desktop: Desktop) -> None:
    """Neither built nor shown."""
    desktop.show()
    desktop.window.show_page("nowhere")
    assert desktop.window.page == "chat"
    assert "nowhere" not in desktop.pages
    with pytest.raises(KeyError):
        desktop.pages["nowhere"]


def test_shortcut_of_a_page_that_is_not_built_then_it_does_its_work(desktop: Desktop) -> None:
    """Ctrl+6, Ctrl+I and Ctrl+F lead to pages that nobody has seen yet."""
    desktop.show("server")
    actions = desktop.window.actions_by_id
    actions["page_logs"].trigger()
    assert desktop.window.page == "logs"
    assert desktop.window.focusWidget() in desktop.pages.logs.findChildren(QWidget)
    assert desktop.pages.built == ("server", "logs")
    actions["inspector"].trigger()
    assert desktop.window.page == "chat"
    assert desktop.pages.chat.inspector.isVisible()


def test_search_from_a_page_without_one_then_the_chats_are_built_for_it(desktop: Desktop) -> None:
    """Ctrl+F on the Server page."""
    desktop.show("server")
    desktop.window.actions_by_id["search"].trigger()
    assert desktop.window.page == "chat"
    assert desktop.window.focusWidget() is desktop.pages.chat.list.search


def test_palette_when_the_chat_is_not_built_then_it_opens_there(desktop: Desktop) -> None:
    """A chat that the palette found, from a window that has only shown the logs."""
    chat = desktop.services.chats.create_chat("An earlier one")
    desktop.show("logs")
    desktop.palette.chat_chosen.emit(chat.id, 0)
    assert desktop.window.page == "chat"
    assert desktop.vm.chat.talk.chat.id == chat.id
    assert desktop.pages.chat.title.text() == "An earlier one"
    desktop.palette.page_chosen.emit("profiler")
    assert desktop.pages.profiler.isVisible()


def test_tray_and_second_start_when_not_built_then_the_page_is_there(desktop: Desktop) -> None:
    """Both only raise the window; the page comes with it."""
    desktop.show()
    desktop.tray.open_wanted.emit()
    assert desktop.pages.built == ("chat",)
    desktop.raise_window("models")
    assert desktop.pages.models.isVisible()


def test_links_between_pages_when_not_built_then_they_lead_there(desktop: Desktop) -> None:
    """Hub settings, memory rules, first run: the target is built by the click."""
    desktop.show("performance")
    desktop.vm.discover.flows.settings_wanted.emit()
    assert desktop.pages.settings.groups["storage"].isVisible()
    desktop.pages.performance.settings_wanted.emit("yield")
    assert desktop.pages.settings.groups["yield"].isVisible()
    assert not desktop.pages.settings.groups["storage"].isVisible()
    desktop.pages.settings._extra["general"][0].wanted.emit()
    assert desktop.window.page == "first_run"
    desktop.pages.first_run.page_wanted.emit("chat")
    assert desktop.window.page == "chat"
    desktop.pages.performance.models_wanted.emit()
    assert desktop.window.page == "models"


# --- state from before a page was built -------------------------------------------------------


def test_language_and_tone_before_a_page_is_built_then_it_has_them(desktop: Desktop) -> None:
    """What was chosen earlier counts for a page that comes later, and goes on counting."""
    desktop.show()
    desktop.services.settings.set(language="zh_CN", theme="light", zoom=1.2)
    desktop.window.show_page("logs")
    page = desktop.pages.logs
    title = str(tr("Logs"))
    assert title != "Logs"
    assert title in words(page)
    assert page.copy.font().pixelSize() == round(13 * 1.2)
    desktop.services.settings.set(language="en")
    assert title not in words(page)
    assert "Logs" in words(page)


def test_setting_changed_before_its_page_is_built_then_the_row_shows_it(desktop: Desktop) -> None:
    """Zoom by key, then a first look into Settings; a section comes with its own values."""
    desktop.show()
    desktop.window.actions_by_id["zoom_in"].trigger()
    desktop.services.settings.set(engine_threads=2)
    desktop.window.show_page("settings")
    settings = desktop.pages.settings
    assert settings.rows["zoom"].control.value() == 110
    assert "engine_threads" not in settings.rows
    settings.open_section("engine")
    assert settings.rows["engine_threads"].control.value() == 2


def test_settings_search_then_sections_that_nobody_opened_are_found(desktop: Desktop) -> None:
    """The search goes over all sections, in the order of the list."""
    desktop.show("settings")
    settings = desktop.pages.settings
    assert list(settings.groups) == ["general"]
    settings.search.setText("CPU threads")
    assert settings.rows["engine_threads"].isVisible()
    assert not settings.groups["general"].isVisible()
    order = [settings._column.indexOf(settings.groups[key]) for key in settings.items]
    assert order == sorted(order)


def test_badge_of_a_job_when_its_page_is_not_built_then_the_rail_shows_it(
    qtbot: QtBot, desktop: Desktop
) -> None:
    """What the first start prepares is counted beside Models."""
    badges: list[str] = []
    session, rail = desktop.vm.session, desktop.window.rail
    session.models_changed.connect(lambda: badges.append(rail.items["models"]._badge))
    with qtbot.waitSignal(desktop.services.client.loaded, timeout=15_000):
        desktop.show()
    assert any(badge.endswith("%") for badge in badges)
    assert "models" not in desktop.pages.built


# --- pauses -----------------------------------------------------------------------------------


def never() -> bool:
    """Nothing is under way."""
    return False


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    """A window on screen."""
    widget = QWidget()
    qtbot.addWidget(widget)
    widget.show()
    return widget


def test_pauses_then_every_page_is_built_and_none_comes_to_the_front(
    qtbot: QtBot, desktop: Desktop
) -> None:
    """One piece after the other; then nothing is left to do."""
    with qtbot.waitSignal(desktop.begun):
        desktop.show()
    rest = desktop.pages.rest(desktop.window.prepare)
    warm_up = WarmUp(desktop.window, rest, never, pause_ms=0)
    with qtbot.waitSignal(warm_up.finished, timeout=20_000):
        warm_up.begin()
    assert desktop.pages.built == NAMES
    assert set(desktop.pages.settings.groups) == set(desktop.pages.settings.items)
    assert desktop.window.page == "chat"
    assert desktop.window.stack.currentWidget() is desktop.pages.chat
    assert list(desktop.pages.rest(desktop.window.prepare)) == ["settings"] * len(
        desktop.pages.settings.items
    )


def test_pause_when_a_page_was_visited_meanwhile_then_it_is_not_built_again(
    desktop: Desktop,
) -> None:
    """A click between import and building."""
    desktop.show()
    rest = desktop.pages.rest(desktop.window.prepare)
    assert next(rest) == "models"
    desktop.window.show_page("models")
    page = desktop.pages.models
    assert set(rest) == set(NAMES) - {"chat"}
    assert desktop.pages.models is page
    assert desktop.window.page == "models"


def wheel(window: QWidget) -> None:
    """Turn the wheel over a window."""
    event = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(0, 0), QPoint(0, 120),
        Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(window.windowHandle(), event)


def test_input_then_the_pause_begins_anew(qtbot: QtBot, window: QWidget) -> None:
    """Keys, clicks and the wheel; nothing is built under a person's hands."""
    warm_up = WarmUp(window, iter("a"), never, pause_ms=3_600_000)
    warm_up.begin()
    inputs: list[Callable[[], object]] = [
        lambda: qtbot.keyClick(window.windowHandle(), Qt.Key.Key_A),
        lambda: qtbot.mouseClick(window.windowHandle(), Qt.MouseButton.LeftButton),
        lambda: wheel(window),
    ]
    for act in inputs:
        warm_up._timer.stop()
        act()
        assert warm_up._timer.isActive()


def test_pause_while_the_engine_works_or_a_menu_is_open_then_nothing_is_built(
    qtbot: QtBot, window: QWidget
) -> None:
    """A reply is not held up by a page that nobody asked for."""
    done: list[str] = []
    work = (done.append(name) for name in "ab")
    busy = [True]
    warm_up = WarmUp(window, work, lambda: busy[0], pause_ms=0)
    warm_up.begin()
    for _ in range(3):
        QApplication.processEvents()
    assert done == []
    busy[0] = False
    menu = QMenu(window)
    menu.addAction("x")
    menu.popup(window.pos())
    for _ in range(3):
        QApplication.processEvents()
    assert done == []
    menu.close()
    with qtbot.waitSignal(warm_up.finished):
        pass
    assert done == ["a", "b"]


# --- the first picture ------------------------------------------------------------------------


def test_first_picture_then_said_once_after_all_is_painted(qtbot: QtBot) -> None:
    """A part that is painted after the window still comes before."""
    order: list[str] = []

    class Part(QWidget):
        def paintEvent(self, _event: object) -> None:
            order.append("part")

    window = QWidget()
    qtbot.addWidget(window)
    Part(window).resize(50, 50)
    picture = FirstPicture(window, limit_ms=3_600_000)
    picture.drawn.connect(lambda: order.append("drawn"))
    with qtbot.waitSignal(picture.drawn):
        picture.expect()
        window.show()
    assert order == ["part", "drawn"]
    window.update()
    for _ in range(3):
        QApplication.processEvents()
    assert order.count("drawn") == 1


def test_first_picture_when_nobody_asks_for_one_then_said_all_the_same(qtbot: QtBot) -> None:
    """A window that starts out of sight: the engine is not kept waiting for ever."""
    window = QWidget()
    qtbot.addWidget(window)
    window.setUpdatesEnabled(False)
    picture = FirstPicture(window, limit_ms=0)
    with qtbot.waitSignal(picture.drawn):
        picture.expect()
        window.show()
    use("dark")


# --- the style sheet --------------------------------------------------------------------------


def test_style_sheet_then_it_hangs_on_the_window_alone(
    qapp: QApplication, desktop: Desktop
) -> None:
    """Pages, menus and dialogs inherit it; with one on the application building takes twice."""
    assert qapp.styleSheet() == ""
    before = desktop.window.styleSheet()
    assert "QScrollBar" in before
    desktop.services.settings.set(theme="light")
    assert desktop.window.styleSheet() not in ("", before)
