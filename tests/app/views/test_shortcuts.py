"""The table of shortcuts: unique, bound, reachable."""

import itertools
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.theme import theme
from app.views.help_dialog import HelpDialog
from app.views.main_window import MainWindow
from app.views.shortcuts import PAGES, SHORTCUTS, shown_keys
from app.widgets.chips import Chip
from tests.app.faces import FakeSession, make_faces
from tests.app.walk import settle

pytestmark = pytest.mark.usefixtures("looks")


class Page(QWidget):
    """A page that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def shortcut(self, name: str) -> bool:
        self.asked.append(name)
        return name != "search"


def test_table_then_ids_and_keys_are_unique() -> None:
    """Two entries with one key would both be dead (case G-03)."""
    keys = [QKeySequence(key).toString() for entry in SHORTCUTS for key in entry.keys]
    assert all(keys)
    assert len(keys) == len(set(keys))
    assert len({entry.id for entry in SHORTCUTS}) == len(SHORTCUTS)


def test_table_then_it_is_the_list_of_the_plan() -> None:
    """The table of shortcuts that a person can rely on."""
    wanted = {f"Ctrl+{key}" for key in (*"NKLIRBQ1234567", ",", "+", "-")}
    wanted |= {"Ctrl+Shift+C", "Ctrl+Shift+Y", "Ctrl+Shift+T", "Esc", "Up", "F1"}
    assert wanted <= set(itertools.chain(*(entry.keys for entry in SHORTCUTS)))


def test_every_bound_shortcut_then_something_happens(qtbot: QtBot) -> None:
    """Each action of the window does its own thing, on a page or on the window."""
    pages = {name: Page() for name, _ in PAGES}
    window = MainWindow(FakeSession(), pages)
    qtbot.addWidget(window)
    window.show()
    for entry in SHORTCUTS:
        if entry.listed_only:
            continue
        start = "server"
        window.show_page(start)
        before = (window.page, theme().zoom, window.rail.folded, window.isVisible())
        for page in pages.values():
            page.asked.clear()
        quits: list[bool] = []
        for wanted in (window.quit_wanted, window.yield_wanted, window.palette_wanted):
            wanted.connect(lambda quits=quits: quits.append(True))
        window.actions_by_id[entry.id].trigger()
        settle()
        after = (window.page, theme().zoom, window.rail.folded, window.isVisible())
        asked = any(page.asked for page in pages.values())
        dialogs = [w for w in window.findChildren(HelpDialog) if w.isVisible()]
        for dialog in dialogs:
            dialog.accept()
        done = before != after or asked or bool(dialogs) or bool(quits)
        assert done or entry.id in (f"page_{start}", "zoom_reset"), entry.id
        window.actions_by_id["zoom_reset"].trigger()


def test_help_then_it_lists_every_shortcut(qtbot: QtBot) -> None:
    """The dialog is fed by the same table."""
    dialog = HelpDialog()
    qtbot.addWidget(dialog)
    dialog.show()
    texts = {label.text() for label in dialog.findChildren(QLabel)}
    keys = {chip.text for chip in dialog.findChildren(Chip)}
    assert {entry.text for entry in SHORTCUTS} <= texts
    assert {shown_keys(entry) for entry in SHORTCUTS} == keys


def test_esc_when_a_reply_runs_then_it_is_stopped_last(qtbot: QtBot, tmp_path: Path) -> None:
    """A search text goes first, the reply at the second press."""
    faces = make_faces(tmp_path)
    qtbot.addWidget(faces.window)
    faces.window.show()
    faces.window.show_page("logs")
    search = faces.window.pages["logs"].search
    search.setText("ready")
    qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert search.text() == ""
    assert faces.session.calls == []
    qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert faces.session.calls == [("stop",)]
