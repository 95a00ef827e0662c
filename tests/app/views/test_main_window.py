"""The window: what the session says is seen, what is pressed reaches the session."""

from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.services.gpu_meter import MeterReading
from app.theme import color, theme
from app.viewmodels.session_words import Problem
from app.views.geometry import WindowPlace
from app.views.help_dialog import HelpDialog
from app.views.main_window import MainWindow
from app.views.shortcuts import PAGES
from app.widgets.look import use
from engine.protocol import messages as m
from tests.app.faces import GIB, Faces, make_faces
from tests.app.walk import (
    clipped,
    controls,
    described,
    overlaps,
    settle,
    spoken_name,
    unreachable,
)

pytestmark = pytest.mark.usefixtures("looks")
TROUBLE = Problem(
    kind="stopped",
    sentence="The engine stopped because of a device error.",
    hint="Try a smaller expert cache.",
    last_log="out of memory",
    can_restart=True,
    can_shrink=True,
)


@pytest.fixture
def faces(qtbot: QtBot, tmp_path: Path) -> Faces:
    """A window on the screen, without log lines (they carry the time)."""
    made = make_faces(tmp_path, with_lines=False)
    qtbot.addWidget(made.window)
    made.window.show()
    settle()
    return made


def test_every_control_then_it_is_named_and_reached_by_tab(faces: Faces) -> None:
    """A full keyboard path, and nothing silent, on each page."""
    for name, _ in PAGES:
        faces.window.show_page(name)
        settle()
        silent = [described(w) for w in controls(faces.window) if not spoken_name(w)]
        assert not silent, name
    assert not unreachable(faces.window)


@pytest.mark.parametrize("language", ["en", "pseudo", "zh_CN"])
def test_pages_at_900x600_then_nothing_is_cut_or_covered(faces: Faces, language: str) -> None:
    """The least size, words 30 % longer (cases G-15, G-22)."""
    use(language_code=language)
    faces.window.resize(900, 600)
    for page in ("server", "logs", "settings", "chat"):
        faces.window.show_page(page)
        settle()
        assert faces.window.size().toTuple() == (900, 600)
        assert not clipped(faces.window), page
        assert not overlaps(faces.window), page
        assert faces.window.strip.stop.isVisible()


@pytest.mark.parametrize("page", ["server", "logs", "settings"])
def test_page_when_look_switches_live_then_it_is_as_if_built_so(
    qtbot: QtBot, tmp_path: Path, faces: Faces, page: str
) -> None:
    """No widget keeps a colour, size or word of the former look (case G-17)."""
    faces.window.show_page(page)
    settle()
    use("light", 1.2, "zh_CN")
    faces.window.resize(1300, 860)
    settle()
    live = faces.window.grab().toImage()
    fresh = make_faces(tmp_path, with_lines=False)
    qtbot.addWidget(fresh.window)
    fresh.window.show_page(page)
    fresh.window.resize(1300, 860)
    fresh.window.show()
    settle()
    assert live == fresh.window.grab().toImage()
    assert live.pixelColor(3, 3) == color("rail")


def test_pill_then_it_says_what_the_session_says(faces: Faces) -> None:
    """Each state of the engine, and words of its own."""
    session, pill = faces.session, faces.window.strip.pill
    for state, shown in (
        (m.EngineState.IDLE, "Off"),
        (m.EngineState.READY, "Ready"),
        (m.EngineState.GENERATING, "Generating"),
        (m.EngineState.MOVING, "Moving memory"),
    ):
        session.state = state
        session.changed.emit()
        assert pill.text() == shown
    session.state, session.state_detail = m.EngineState.LOADING, "Loading 43 %"
    session.changed.emit()
    assert pill.accessibleName() == "Engine state: Loading 43 %"


def test_strip_when_idle_then_only_what_makes_sense_is_there(faces: Faces) -> None:
    """No speed, no Stop, no context without a model."""
    session, strip = faces.session, faces.window.strip
    session.model_name, session.quant, session.tok_s = "", "", 0.0
    session.can_stop = False
    faces.window.set_context(0, 0)
    session.changed.emit()
    assert strip.picker.text() == "Choose a model"
    parts = (strip.stop, strip.speed, strip.context, strip.quant)
    assert not any(part.isVisible() for part in parts)


def test_stop_when_pressed_then_the_session_is_asked(qtbot: QtBot, faces: Faces) -> None:
    """While loading as well (case G-10): the session decides what is stopped."""
    qtbot.mouseClick(faces.window.strip.stop, Qt.MouseButton.LeftButton)
    assert faces.session.calls == [("stop",)]


def test_picker_when_a_model_is_chosen_then_it_is_loaded(faces: Faces) -> None:
    """The list is that of the session; the last entry leads to the page of models."""
    strip = faces.window.strip
    strip.menu.aboutToShow.emit()
    actions = strip.menu.actions()
    assert [a.text() for a in actions if a.text()] == [
        "tiny-moe-fp8   FP8 · 38 MB",
        "Another-MoE-Model   MXFP4 · 63.0 GB",
        "All models",
    ]
    actions[1].trigger()
    assert faces.session.calls == [("load", "/models/large")]
    actions[-1].trigger()
    assert faces.window.page == "models"


def test_engine_gone_then_cause_and_way_forward_are_shown(qtbot: QtBot, faces: Faces) -> None:
    """The window stays, meters go on, two ways to restart."""
    session, window = faces.session, faces.window
    window.show_page("logs")
    session.trouble, session.status = TROUBLE, None
    session.changed.emit()
    session.meters_changed.emit()
    settle()
    assert window.strip.pill.state == "error"
    texts = {label.text() for label in window.problem.findChildren(QLabel) if label.isVisible()}
    assert {TROUBLE.sentence, TROUBLE.hint, TROUBLE.last_log} <= texts
    assert window.rail.meters.ram_text.text() == "158 / 192 GiB"
    qtbot.mouseClick(window.problem.smaller, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(window.problem.restart, Qt.MouseButton.LeftButton)
    assert session.calls == [("restart", True), ("restart", False)]
    window.show_page("chat")
    assert not window.problem.isVisible()  # the chat has a card of its own
    window.show_page("logs")
    assert window.problem.isVisible()
    session.trouble = None
    session.changed.emit()
    assert not window.problem.isVisible()


def test_refused_model_then_another_can_be_chosen_or_the_band_put_away(
    qtbot: QtBot, faces: Faces
) -> None:
    """The engine is well: nothing forces the person to restart it."""
    session, window = faces.session, faces.window
    session.trouble = Problem(kind="load", sentence="It needs 162 GiB.", hint="Free some.")
    session.changed.emit()
    assert window.problem.isVisible()
    assert not window.problem.restart.isVisible()
    qtbot.mouseClick(window.problem.models, Qt.MouseButton.LeftButton)
    assert window.page == "models"
    qtbot.mouseClick(window.problem.close_button, Qt.MouseButton.LeftButton)
    assert not window.problem.isVisible()
    session.trouble = TROUBLE
    session.changed.emit()
    assert not window.problem.close_button.isVisible()
    assert not window.problem.models.isVisible()


def test_help_then_it_leads_to_the_first_run_again(qtbot: QtBot, tmp_path: Path) -> None:
    """F1 is where a person looks who wants the first steps once more."""
    made = make_faces(tmp_path, with_lines=False)
    pages = {**made.window.pages, "first_run": QLabel("first run")}
    window = MainWindow(made.session, pages)
    qtbot.addWidget(window)
    window.show()
    window.actions_by_id["help"].trigger()
    dialog = window.findChild(HelpDialog)
    dialog.first_run.click()
    assert window.page == "first_run"
    assert not dialog.isVisible()


def test_card_names_then_only_what_tells_them_apart(faces: Faces) -> None:
    """The rail has room for "RTX 5090"; the whole name is in the tool tip."""
    name = "NVIDIA GeForce RTX 5090"
    faces.session.reading = MeterReading(20 * GIB, 64 * GIB, name, 2 * GIB, 32 * GIB, 61)
    faces.session.meters_changed.emit()
    device = faces.window.rail.meters.device
    assert (device.text(), device.toolTip()) == ("RTX 5090", name)


def test_meters_without_gpu_then_the_card_says_emulated(faces: Faces) -> None:
    """Nobody is made to believe in a graphics card."""
    card = faces.window.rail.meters
    assert card.device.text() == "CPU · emulated VRAM"
    assert card.vram_name.text() == "Emulated"
    assert card.vram_text.text() == "29.0 / 32.0 GiB"
    faces.session.reading = MeterReading(20 * GIB, 64 * GIB, "RTX 5090", 2 * GIB, 32 * GIB, 61)
    faces.session.status = None
    faces.session.meters_changed.emit()
    assert (card.device.text(), card.heat.text()) == ("RTX 5090", "61 °C")
    assert card.vram_text.text() == "2.0 / 32.0 GiB"
    assert card.vram_name.text() == "VRAM"


def test_meters_when_cpu_holds_no_model_then_ram_is_not_shown_as_vram(faces: Faces) -> None:
    """Without a model the engine's device is the machine's RAM: nothing stands for VRAM."""
    status = faces.session.status
    assert status is not None
    faces.session.status = msgspec.structs.replace(status, model=None)
    faces.session.meters_changed.emit()
    assert faces.window.rail.meters.vram_text.text() == "–"


def test_job_then_the_badge_shows_its_share(faces: Faces) -> None:
    """A conversion can be followed from every page."""
    faces.session.job_shares = {"models": 0.43}
    faces.session.models_changed.emit()
    item = faces.window.rail.items["models"]
    assert item.accessibleName() == "Models, 43 %"
    faces.session.job_shares = {"profiler": 0.2}
    faces.session.models_changed.emit()
    assert item.accessibleName() == "Models"
    assert faces.window.rail.items["profiler"].accessibleName() == "Profiler, 20 %"


def test_rail_then_it_folds_by_key_and_by_width(faces: Faces) -> None:
    """Under 1000 px by itself; what was chosen by hand comes back."""
    window = faces.window
    window.actions_by_id["rail"].trigger()
    assert window.rail.folded
    window.actions_by_id["rail"].trigger()
    assert not window.rail.folded
    window.resize(900, 600)
    settle()
    assert window.rail.folded
    assert not window.strip.search.isVisible()
    window.resize(1180, 760)
    settle()
    assert not window.rail.folded


def test_restore_when_place_is_off_the_screen_then_it_comes_back(faces: Faces) -> None:
    """Saved at x = 5000 on a screen that is gone (case G-16)."""
    faces.window.restore(WindowPlace(QRect(5000, 50, 1180, 760)).text(), rail_folded=True)
    screen = QGuiApplication.primaryScreen().availableGeometry()
    assert screen.intersects(faces.window.geometry())
    assert faces.window.rail.folded
    faces.window.resize(1180, 760)
    settle()
    faces.window.restore("damaged", rail_folded=False)
    assert not faces.window.rail.folded


def test_close_then_the_place_is_handed_out(qtbot: QtBot, faces: Faces) -> None:
    """And can be restored from what was handed out."""
    with qtbot.waitSignal(faces.window.remembered) as seen:
        faces.window.close()
    place, folded = seen.args
    assert folded is False
    faces.window.restore(place, folded)


def test_notice_then_a_toast_with_its_words(faces: Faces) -> None:
    """Sentences of the engine that need no decision."""
    faces.session.notice.emit("The remembered split does not fit.", "info")
    assert faces.window.toasts.shown[0].label.text() == "The remembered split does not fit."


def test_page_key_then_focus_is_on_its_first_control(faces: Faces) -> None:
    """Ctrl+7 opens the settings with the search field ready."""
    faces.window.activateWindow()
    faces.window.actions_by_id["page_settings"].trigger()
    settle()
    page = faces.window.pages["settings"]
    assert page.isAncestorOf(QApplication.focusWidget())


def test_zoom_key_then_it_is_told_and_held(faces: Faces) -> None:
    """So that it can be remembered (case G-15)."""
    seen: list[float] = []
    faces.window.zoomed.connect(seen.append)
    for _ in range(7):
        faces.window.actions_by_id["zoom_in"].trigger()
    assert theme().zoom == seen[-1] == 1.6
    faces.window.actions_by_id["zoom_reset"].trigger()
    assert theme().zoom == 1.0
