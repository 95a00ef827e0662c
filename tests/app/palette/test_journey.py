"""From any page by keyboard: Ctrl+K, some letters, Enter, in the whole app with the fake engine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from engine.protocol.places import data_root
from tests.support.app_engine import FAKE_ENGINE

pytestmark = pytest.mark.usefixtures("looks")


@pytest.fixture
def desktop(qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desktop]:
    """The app on screen, not yet with a model; chats are written by hand."""
    monkeypatch.setitem(os.environ, "FAKE_ENGINE_ARGS", "--tokens 5")
    made = Desktop(Environment(data_root(str(tmp_path)), str(FAKE_ENGINE), True, False), LogRing())
    made.window.show()
    qtbot.waitExposed(made.window)
    yield made
    with qtbot.waitSignal(made.finished, timeout=15_000):
        made.quit()
    made.window.deleteLater()


def open_palette(desktop: Desktop, qtbot, typed: str) -> None:
    """Press Ctrl+K where the keyboard is, and type."""
    desktop.window.activateWindow()
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    assert desktop.palette.isVisible()
    qtbot.keyClicks(desktop.palette.field, typed)
    desktop.palette._vm.search_texts()


def enter(desktop: Desktop, qtbot) -> None:
    qtbot.keyClick(desktop.palette.field, Qt.Key.Key_Return)
    assert desktop.palette.isHidden()


def test_palette_from_the_composer_then_pages_actions_and_back(desktop: Desktop, qtbot) -> None:
    """The field for messages leaves Ctrl+K to the window; the inspector opens by its name."""
    desktop.pages.chat.composer.focus()
    open_palette(desktop, qtbot, "profiler")
    enter(desktop, qtbot)
    assert desktop.window.page == "profiler"
    open_palette(desktop, qtbot, "inspector")
    enter(desktop, qtbot)
    assert desktop.window.page == "chat"
    assert desktop.pages.chat.inspector.isVisible()


def test_palette_finds_a_message_on_another_branch_then_it_is_on_screen(
    desktop: Desktop, qtbot
) -> None:
    """The text of every version is searched; Enter shows its branch and scrolls to it."""
    chat, store = desktop.vm.chat, desktop.services.chats
    for number in range(30):
        chat.send(f"Question {number}, " + "of many words. " * 20)
        chat.talk.stop()  # no model yet: the reply does not come
    first = chat.talk.messages[0]
    chat.talk.edit(first.id, "Tell me of the lighthouse.")
    chat.talk.stop()
    chat.talk.switch(chat.talk.messages[0].id, -1)
    assert chat.talk.messages[0].id == first.id
    chat.new_chat()
    desktop.window.show_page("models")
    desktop.window.rail.items["models"].setFocus()
    open_palette(desktop, qtbot, "lighthouse")
    assert store.search("lighthouse")
    enter(desktop, qtbot)
    assert desktop.window.page == "chat"
    assert chat.talk.messages[0].text == "Tell me of the lighthouse."
    view = desktop.pages.chat.column.views[chat.talk.messages[0].id]
    assert 0 <= view.y() < desktop.pages.chat.column.viewport().height()


def test_found_in_the_list_then_the_chat_opens_at_the_message(desktop: Desktop, qtbot) -> None:
    """A long chat that is opened from a search does not begin at its end."""
    chat = desktop.vm.chat
    for number in range(30):
        words = "the word is needle" if number == 4 else "of many words. " * 20
        chat.send(f"Question {number}: {words}")
        chat.talk.stop()
    found = next(m for m in chat.talk.messages if "needle" in m.text)
    chat_id = chat.talk.chat.id
    chat.new_chat()
    chat.chats.set_query("needle")
    chat.chats.refresh()
    desktop.pages.chat._open_chat(chat_id)
    view = desktop.pages.chat.column.views[found.id]
    assert 0 <= view.y() < desktop.pages.chat.column.viewport().height()
    assert not desktop.pages.chat.column.is_at_end
