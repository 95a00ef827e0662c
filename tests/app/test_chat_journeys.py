"""The chat as a person uses it in the whole window: drafts, queue, search, export, preset, trace.

By keys and buttons only; the engine is the fake one.
"""

import json
import socket

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.widgets.labels import Label
from engine.protocol.places import data_root
from tests.support.app_engine import FAKE_ENGINE


class Person:
    """What is pressed and read; `restart` ends the app and starts it again on the same data."""

    def __init__(self, qtbot, root):
        self.qtbot, self.root = qtbot, root
        self.desktop = self.start()

    def start(self):
        return Desktop(Environment(self.root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())

    def up(self):
        with self.qtbot.waitSignal(self.client.loaded, timeout=15_000):
            self.desktop.show()

    def end(self):
        with self.qtbot.waitSignal(self.desktop.finished, timeout=8_000):
            self.desktop.quit()
        self.desktop.window.deleteLater()

    def restart(self):
        self.end()
        self.desktop = self.start()
        self.desktop.show()

    @property
    def client(self):
        return self.desktop.services.client

    @property
    def page(self):
        return self.desktop.pages.chat

    @property
    def texts(self):
        return [message.text for message in self.desktop.vm.chat.talk.messages]

    def type(self, text):
        QTest.keyClicks(self.page.composer.edit, text)

    def enter(self):
        QTest.keyClick(self.page.composer.edit, Qt.Key.Key_Return)

    def say(self, text):
        """Send a message and wait for the whole reply."""
        self.type(text)
        with self.qtbot.waitSignal(self.client.finished, timeout=15_000):
            self.enter()

    def open(self, words):
        """Click the chat whose title holds these words."""
        view, items = self.page.list.view, self.page.list.items
        rows = range(items.rowCount())
        (row,) = [r for r in rows if words in (items.data(items.index(r)) or "")]
        place = view.visualRect(items.index(row)).center()
        self.qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)


@pytest.fixture
def person(qtbot, looks, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--tokens 12 --load-delay 0.3")
    made = Person(qtbot, data_root(str(tmp_path / "home")))
    yield made
    made.end()


def test_draft_then_kept_in_its_chat_and_over_a_restart(person):
    """What is typed and not sent belongs to its chat; the next start has it as well."""
    person.up()
    person.say("About foxes")
    person.type("half a thought")
    person.page.new.click()
    assert person.page.composer.text == ""
    person.type("of the new one")
    person.open("About foxes")
    assert person.page.composer.text == "half a thought"
    person.restart()
    assert person.page.composer.text == "of the new one"  # it starts with a new chat
    person.open("About foxes")
    assert person.page.composer.text == "half a thought"


def test_message_sent_while_the_model_loads_then_it_waits_and_is_answered(person):
    """Case G-10: it is on screen, says what it waits for, and goes by itself."""
    person.desktop.show()
    person.type("Hello early")
    assert person.client.model is None
    person.enter()
    assert person.texts[0] == "Hello early"
    assert person.page.composer.hint.text() == "Waiting for the model"
    with person.qtbot.waitSignal(person.client.finished, timeout=15_000):
        pass
    assert len(person.texts) == 2
    assert person.texts[1]
    assert person.page.composer.hint.text() != "Waiting for the model"


def test_search_over_all_chats_then_the_message_is_found_and_opened(person):
    """By words of a message in the middle of another chat, typed into the list."""
    person.up()
    person.say("Tell me of the lighthouse")
    person.say("And of the sea")
    person.page.new.click()
    person.say("Something else")
    QTest.keyClicks(person.page.list.search, "lighthouse")
    person.qtbot.waitUntil(lambda: person.page.list.items.rowCount() == 1)
    person.open("lighthouse")
    assert person.texts[0] == "Tell me of the lighthouse"
    QTest.keyClicks(person.page.list.search, " of nothing")
    person.qtbot.waitUntil(lambda: person.page.list.items.rowCount() == 0)
    assert person.page.list.empty.text() == "No chat holds these words."


def test_export_and_import_then_the_same_chat_with_its_branches(person, tmp_path, monkeypatch):
    """Out by the menu as JSON and Markdown, in by the button; both versions come back."""
    person.up()
    person.say("Round trip")
    with person.qtbot.waitSignal(person.client.finished, timeout=15_000):
        person.page.shortcut("retry")
    chat_id = person.desktop.vm.chat.talk.chat.id
    acts = {act.text(): act for act in person.page.list.menu_for(chat_id).actions()}
    for words, name in (("Export as JSON…", "chat.json"), ("Export as Markdown…", "chat.md")):
        target = str(tmp_path / name)
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, t=target: (t, ""))
        acts[words].trigger()
    person.qtbot.waitUntil(lambda: (tmp_path / "chat.md").is_file())
    assert "Round trip" in (tmp_path / "chat.md").read_text("utf-8")
    assert json.loads((tmp_path / "chat.json").read_text("utf-8"))
    acts["Delete chat"].trigger()
    found = str(tmp_path / "chat.json")
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([found], ""))
    person.page.list.bring.click()
    person.qtbot.waitUntil(lambda: "Round trip" in person.texts)
    talk = person.desktop.vm.chat.talk
    assert len(talk.versions(talk.messages[-1])) == 2


def test_trace_then_one_click_below_the_reply_and_a_way_to_the_split(person):
    """Where experts ran, links and times of this reply, measured; then the Performance page."""
    person.up()
    person.say("How fast was that")
    view = person.page.column.views[person.desktop.vm.chat.talk.messages[-1].id]
    assert "tok/s" in view.stats.label.text()
    view.stats.trace.click()
    words = {label.text() for label in view.stats.card.findChildren(Label)}
    assert {"Where experts ran", "In the cache", "Copies", "Context reused"} <= words
    view.stats.card.split.click()
    assert person.desktop.window.page == "performance"


def test_preset_then_kept_over_a_restart_and_used_in_another_chat(person):
    """Named and saved in the inspector; the next reply of the other chat is sent with it."""
    person.up()
    person.page.shortcut("inspector")
    person.page.inspector.prompt.setPlainText("Be brief.")
    row = person.page.inspector.presets
    row.save_as.click()
    QTest.keyClicks(row.name, "Terse")
    QTest.keyClick(row.name, Qt.Key.Key_Return)
    person.restart()
    row = person.page.inspector.presets
    row.combo.activated.emit(row.combo.findText("Terse"))
    assert person.page.inspector.prompt.toPlainText() == "Be brief."
    person.qtbot.waitUntil(lambda: person.client.model is not None, timeout=15_000)
    person.say("Hello")
    assert person.desktop.vm.chat.talk.chat.system_prompt == "Be brief."


def test_whole_evening_then_nothing_is_sent_to_anybody(person, monkeypatch):
    """No telemetry: start, model, chat, search, pages, end; neither Qt nor Python connects."""
    calls = []

    def connect(self, address):
        calls.append(address)
        raise OSError("no network in this test")

    def request(*given):
        calls.append(given)
        raise AssertionError("a request")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name in ("app.services.remote_client", "app.services.updates"):
        monkeypatch.setattr(f"{name}.QNetworkAccessManager", request)
    person.up()
    person.say("Hello")
    QTest.keyClicks(person.page.list.search, "hello")
    for name in person.desktop.pages:
        person.desktop.window.show_page(name)
    assert calls == []
