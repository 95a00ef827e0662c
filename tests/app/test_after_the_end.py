"""What was put off for a moment, or is heard late, when the app has ended and its chats are closed.

Each test waits for the moment itself: the timer that was running at the end is awaited, so what it
would do is done within the test. The engine is the fake one.
"""

import pytest
from PySide6.QtTest import QTest

from app.main import Desktop
from app.services.chat_store import ChatStore
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.viewmodels.chat import Coming
from engine.protocol import messages as m
from engine.protocol.places import data_root
from tests.support.app_engine import FAKE_ENGINE


@pytest.fixture
def root(tmp_path):
    return data_root(str(tmp_path / "home"))


@pytest.fixture
def desktop(qtbot, looks, root, monkeypatch):
    """The app, not yet on screen."""
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--rate 40 --tokens 400")
    made = Desktop(Environment(root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())
    yield made
    if not made.closing.has_begun:  # the test failed before
        end(qtbot, made)
    made.window.deleteLater()


@pytest.fixture
def shown(qtbot, desktop):
    """Its window on screen, without an engine: the end comes at once."""
    desktop.window.show()
    qtbot.waitExposed(desktop.window)


@pytest.fixture
def replying(qtbot, desktop):
    """The app in the middle of a reply; what has come of it."""
    client, received = desktop.services.client, []
    with qtbot.waitSignal(client.loaded, timeout=15_000):
        desktop.show()
    client.delta.connect(lambda delta: received.append(delta.text))
    with qtbot.waitSignal(client.delta, check_params_cb=lambda _: len(received) >= 5):
        desktop.vm.chat.send("hello")
    return received


def end(qtbot, desktop):
    """Quit as a person does, and wait until all is over."""
    with qtbot.waitSignal(desktop.finished, timeout=5_000):
        desktop.quit()


def begin_chat(desktop, text):
    """Store a chat of one message; there is no model, so no reply comes."""
    desktop.vm.chat.send(text)
    desktop.vm.chat.talk.stop()


def stored(root):
    """The last chat and its messages, as the next start finds them."""
    store = ChatStore(root.chats)
    chat = store.chats()[0]
    path = store.path_of(chat.id)
    store.close()
    return chat, path


@pytest.mark.usefixtures("shown")
def test_end_during_a_search_of_the_list_then_the_closed_chats_are_left_alone(qtbot, desktop):
    """A letter in the search field, and quit before the search begins."""
    timer = desktop.vm.chat.chats._search
    QTest.keyClicks(desktop.pages.chat.list.search, "h")
    with qtbot.captureExceptions() as problems:
        end(qtbot, desktop)
        qtbot.waitUntil(lambda: not timer.isActive())
    assert problems == []


@pytest.mark.usefixtures("shown")
def test_end_during_a_search_of_the_palette_then_the_closed_chats_are_left_alone(qtbot, desktop):
    """The palette is open with words in it when the tray or a signal says quit."""
    desktop.palette.toggle()
    timer = desktop.palette._vm._later
    QTest.keyClicks(desktop.palette.field, "h")
    assert timer.isActive()
    with qtbot.captureExceptions() as problems:
        end(qtbot, desktop)
        qtbot.waitUntil(lambda: not timer.isActive())
    assert problems == []


def test_end_with_a_queued_message_then_it_is_the_draft_and_stored_once(
    qtbot, desktop, replying, root
):
    """The cancelled reply gives it back to the composer, whose draft would be stored soon."""
    chat = desktop.vm.chat
    chat.send("and then?")
    with qtbot.captureExceptions() as problems:
        end(qtbot, desktop)
        qtbot.waitUntil(lambda: not chat._draft_timer.isActive())
    assert problems == []
    assert stored(root)[0].draft == "and then?"


@pytest.mark.usefixtures("shown")
def test_end_while_a_system_prompt_is_typed_then_it_is_stored(qtbot, desktop, root):
    """What is typed in the inspector is handed on a moment later; the end does not wait for it."""
    page = desktop.pages.chat
    begin_chat(desktop, "hello")
    page.shortcut("inspector")
    QTest.keyClicks(page.inspector.prompt, "Be brief.")
    with qtbot.captureExceptions() as problems:
        end(qtbot, desktop)
        qtbot.waitUntil(lambda: not page.inspector._typed.isActive())
    assert problems == []
    assert stored(root)[0].system_prompt == "Be brief."


def test_end_before_the_engine_is_gone_then_the_text_is_stored_and_its_end_is_not_heard(
    qtbot, desktop, replying, root
):
    """At the limit the app ends without the engine, whose death is told after the last step."""
    client = desktop.services.client
    desktop.quit()
    client.delta.emit(m.TokenDelta(id=client.open_replies[0], text="last words"))
    received = "".join(replying)
    with qtbot.captureExceptions() as problems:
        with qtbot.waitSignals([desktop.finished, client.stopped]):
            desktop.closing._limit.timeout.emit()
            assert client.process.is_running
        for timer in (desktop.vm.chat.runner._show, desktop.vm.chat.runner._save):
            qtbot.waitUntil(lambda timer=timer: not timer.isActive())
    assert problems == []
    assert received.endswith("last words")
    assert stored(root)[1][-1].text == received


@pytest.mark.usefixtures("shown")
def test_end_before_others_have_told_all_then_the_chat_does_not_show_it(qtbot, desktop):
    """A keyring answers late, so a remote engine is set up; a load that hung is over at last."""
    begin_chat(desktop, "hello")
    remote, talk = desktop.vm.remote._client, desktop.vm.remote._talk
    talk.use_remote(True)
    desktop.vm.chat.set_coming(Coming("tiny", "Loading"))
    with qtbot.captureExceptions() as problems:
        end(qtbot, desktop)
        remote.changed.emit()
        desktop.vm.chat.set_coming(None)
    assert problems == []
