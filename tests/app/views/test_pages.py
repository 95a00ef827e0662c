"""Logs, Settings and Server, over their real view models."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QAbstractSlider, QAbstractSpinBox
from pytestqt.qtbot import QtBot

from app.services.log_ring import LogRing
from app.services.settings import SettingsStore
from app.viewmodels.logs import LogsViewModel
from app.viewmodels.server import CLIENTS, ServerViewModel
from app.viewmodels.settings import SettingsViewModel
from app.views.logs import LogsView
from app.views.server import ServerView
from app.views.settings import SettingsView
from app.widgets.look import use
from engine.protocol.places import DataRoot
from tests.app.faces import LINES
from tests.app.walk import settle

pytestmark = pytest.mark.usefixtures("looks")


def logs(qtbot: QtBot, folder: Path) -> tuple[LogsView, LogRing]:
    """The page over a ring with seven lines."""
    ring = LogRing()
    for source, level, text in LINES:
        ring.append(source, level, text)
    view = LogsView(LogsViewModel(ring, folder))
    qtbot.addWidget(view)
    view.resize(996, 500)
    view.show()
    return view, ring


def settings(qtbot: QtBot, folder: Path) -> tuple[SettingsView, SettingsStore]:
    """The page over a store in a folder."""
    store = SettingsStore(folder / "settings.json")
    view = SettingsView(SettingsViewModel(store, DataRoot(folder)))
    qtbot.addWidget(view)
    view.resize(996, 700)
    view.show()
    return view, store


def test_logs_when_filtered_then_only_those_lines_are_shown(qtbot: QtBot, tmp_path: Path) -> None:
    """By source, by level, by words; and a sentence when none is left."""
    view, _ = logs(qtbot, tmp_path)
    rows = view.list.model().rowCount
    assert rows() == 7
    qtbot.mouseClick(view.sources.segments[2], Qt.MouseButton.LeftButton)
    assert rows() == 4
    qtbot.mouseClick(view.levels.segments[2], Qt.MouseButton.LeftButton)
    assert rows() == 1
    qtbot.keyClicks(view.search, "nothing has this")
    assert rows() == 0
    assert not view.list.isVisible()
    assert not view.copy.isEnabled()


def test_logs_when_a_line_comes_then_the_newest_is_in_view(qtbot: QtBot, tmp_path: Path) -> None:
    """Follow on; off, the list stands still."""
    view, ring = logs(qtbot, tmp_path)
    with qtbot.waitSignal(view.list.model().rowsInserted):
        for number in range(60):
            ring.append("app", "info", f"line {number}")
    settle()
    assert view.list.is_at_end()
    view.list.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction.SliderSingleStepSub)
    assert view.follow.isChecked()  # a small step is no wish to read
    view.list.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction.SliderPageStepSub)
    assert not view.follow.isChecked()
    with qtbot.waitSignal(ring.changed):
        ring.append("app", "info", "one more")
    assert view.list.model().rowCount() == 67
    qtbot.mouseClick(view.follow, Qt.MouseButton.LeftButton)
    assert view.list.model().rowCount() == 68


def test_logs_when_copied_then_selection_or_all(qtbot: QtBot, tmp_path: Path) -> None:
    """The clipboard has whole lines with time, source and level."""
    view, _ = logs(qtbot, tmp_path)
    view.copy.click()
    assert len(QGuiApplication.clipboard().text().splitlines()) == 7
    view.list.setCurrentIndex(view.list.model().index(3, 0))
    view.copy.click()
    assert QGuiApplication.clipboard().text().endswith(LINES[3][2])


def test_logs_when_20000_lines_then_painting_touches_only_those_in_view(
    qtbot: QtBot, tmp_path: Path
) -> None:
    """A long list is as quick as a short one."""
    view, ring = logs(qtbot, tmp_path)
    for _ in range(20_500):
        ring.append("engine", "info", "the same line")
    view.shortcut("search")
    qtbot.mouseClick(view.sources.segments[0], Qt.MouseButton.LeftButton)
    model, seen = view.list.model(), set()
    ask = model.data
    model.data = lambda index, role=0: (seen.add(index.row()), ask(index, role))[1]
    view.list.viewport().repaint()
    assert model.rowCount() == 20_000
    assert len(seen) < 60


def test_settings_when_changed_then_stored_and_resettable(qtbot: QtBot, tmp_path: Path) -> None:
    """Each kind of control writes its value; reset brings the default back."""
    view, store = settings(qtbot, tmp_path)
    row = view.rows["theme"]
    assert not row.reset.isVisible()
    row.control.setCurrentIndex(2)
    row.control.activated.emit(2)
    assert store.value.theme == "light"
    assert row.reset.isVisible()
    view.rows["zoom"].control.setValue(130)
    assert store.value.zoom == 1.3
    qtbot.mouseClick(view.rows["reduced_motion"].control, Qt.MouseButton.LeftButton)
    assert store.value.reduced_motion is True
    for key in ("theme", "zoom", "reduced_motion"):
        view.rows[key].reset.click()
    assert (store.value.theme, store.value.zoom, store.value.reduced_motion) == (
        "system",
        1.0,
        False,
    )
    assert view.rows["zoom"].control.value() == 100


def test_settings_when_a_value_is_refused_then_why_stands_at_the_row(
    qtbot: QtBot, tmp_path: Path
) -> None:
    """The old value stays, on screen and on disk."""
    view, store = settings(qtbot, tmp_path)
    view.open_section("storage")
    row = view.rows["models_folder"]
    row.edited.emit("models_folder", "no/full/path")
    assert row.note.isVisible()
    assert "no/full/path" in row.note.text()
    assert store.value.models_folder == ""
    row.edited.emit("models_folder", str(tmp_path))
    assert not row.note.isVisible()
    assert row.control.text() == str(tmp_path)


def test_settings_when_changed_elsewhere_then_the_row_follows(qtbot: QtBot, tmp_path: Path) -> None:
    """Ctrl + changes the zoom; the page shows it."""
    view, store = settings(qtbot, tmp_path)
    store.set(zoom=1.2, language="zh_CN")
    assert view.rows["zoom"].control.value() == 120
    assert view.rows["language"].control.currentText() == "简体中文"


def test_settings_when_searched_then_rows_of_all_sections_are_found(
    qtbot: QtBot, tmp_path: Path
) -> None:
    """In the language on screen; an empty search goes back to the section."""
    view, _ = settings(qtbot, tmp_path)
    view.search.setText("folder")
    assert view.rows["models_folder"].isVisible()
    assert not view.rows["theme"].isVisible()
    view.search.setText("no setting is called so")
    assert not any(group.isVisible() for group in view.groups.values())
    use(language_code="zh_CN")
    view.search.setText("缩放")
    assert view.rows["zoom"].isVisible()
    view.search.clear()
    assert view.rows["theme"].isVisible()
    assert not view.rows["models_folder"].isVisible()


def test_settings_then_every_row_has_help(qtbot: QtBot, tmp_path: Path) -> None:
    """A name alone explains nothing."""
    view, _ = settings(qtbot, tmp_path)
    assert view.rows
    assert all(row.field.help for row in view.rows.values())


def test_server_then_switches_are_off_and_snippets_can_be_read(qtbot: QtBot) -> None:
    """The page says that the API comes later, and lets nobody switch it on."""
    view = ServerView(ServerViewModel())
    qtbot.addWidget(view)
    view.show()
    usable = [
        w
        for w in view.findChildren(QAbstractButton) + view.findChildren(QAbstractSpinBox)
        if w.isEnabled() and w not in view.clients.segments
    ]
    assert usable == []
    for index, client in enumerate(CLIENTS):
        qtbot.mouseClick(view.clients.segments[index], Qt.MouseButton.LeftButton)
        assert view.code.text() == "\n".join(ServerViewModel().snippet(client))
