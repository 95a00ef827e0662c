"""The composition root in one process: who hears whom. The engine is the fake one."""

import logging
import time

import msgspec
import pytest
from PySide6.QtWidgets import QApplication

from app.main import Desktop
from app.predict.yielding import YieldState
from app.services.log_ring import LogRing
from app.services.runtime_build import fitting_locks
from app.services.settings import Environment
from app.services.tray import Tray
from app.theme import theme
from app.widgets.buttons import Button
from engine.protocol import messages as m
from engine.protocol.places import data_root
from engine.protocol.runtime_lock import MANIFEST
from tests.support.app_engine import FAKE_ENGINE


@pytest.fixture
def desktop(qtbot, looks, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--rate 40 --tokens 60 --stats 0.1")
    root = data_root(str(tmp_path / "home"))
    made = Desktop(
        Environment(root, str(FAKE_ENGINE), has_display=True, needs_x11=False), LogRing()
    )
    over = []
    made.finished.connect(lambda: over.append(True))
    yield made
    if not over:
        with qtbot.waitSignal(made.finished, timeout=6_000):
            made.quit()
    made.window.deleteLater()


def up(qtbot, desktop):
    with qtbot.waitSignal(desktop.services.client.loaded, timeout=15_000):
        desktop.show()


def test_first_start_then_window_before_engine_and_model_by_itself(qtbot, desktop):
    """The window is there at once; the built-in model is prepared and loaded behind it."""
    client = desktop.services.client
    with qtbot.waitSignal(client.loaded, timeout=15_000):
        desktop.show()
        assert desktop.window.isVisible()
        assert not client.process.is_running
    assert client.model.name == "tiny-moe-fp8"


def test_start_when_the_engine_libraries_are_of_an_older_version_then_about_is_one_click(
    qtbot, desktop
):
    """They go on working; the sizes are seen before anything is fetched."""
    (listed, *_) = (entry.lock for entry in fitting_locks())
    older = msgspec.structs.replace(listed, wheels=listed.wheels[:1])
    folder = desktop.services.environment.root.runtime / older.key
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(older))
    up(qtbot, desktop)
    toast = desktop.window.toasts.shown[-1]
    assert "other engine libraries" in toast.label.text()
    assert desktop.services.settings.value.runtime_told == desktop.vm.runtime.offer.key
    desktop._tell_outdated_runtime()
    assert desktop.window.toasts.shown[-1] is toast, "once"
    (show, *_) = toast.findChildren(Button)
    show.click()
    assert desktop.window.page == "settings"
    assert desktop.pages.settings._section == "about"
    assert [job.job for job in desktop.services.jobs.jobs() if job.job == "runtime"] == []


def test_settings_then_look_and_library_follow(qtbot, desktop, tmp_path):
    """Tone, zoom, language and models folder count at once; zoom by key is remembered."""
    settings = desktop.services.settings
    settings.set(theme="light", zoom=1.2, language="pseudo")
    assert (theme().tone, theme().zoom, theme().language) == ("light", 1.2, "pseudo")
    settings.set(language="en", models_folder=str(tmp_path))
    assert desktop.services.library.target_folder == tmp_path
    desktop.window.zoomed.emit(0.9)
    assert settings.value.zoom == 0.9


def test_first_start_then_the_empty_chat_says_what_is_done(qtbot, desktop):
    """Preparing, then loading, with its share; nobody is asked to load what comes by itself."""
    model = desktop.pages.chat.empty.model
    seen = []
    desktop.vm.session.changed.connect(lambda: seen.append(desktop.vm.chat.coming))
    up(qtbot, desktop)
    assert any(c and c.name == "tiny-moe-fp8" and c.doing.startswith("Preparing") for c in seen)
    assert desktop.vm.chat.coming is None
    assert not model.load.isVisible()


def test_context_meter_then_it_shows_the_conversation_and_opens_the_breakdown(qtbot, desktop):
    """The count of what is on screen; a second click does not close the inspector."""
    up(qtbot, desktop)
    chat, window = desktop.vm.chat, desktop.window
    with qtbot.waitSignal(desktop.services.client.finished, timeout=15_000):
        chat.send("hello")
    qtbot.waitUntil(lambda: chat.context.used_tokens > 0, timeout=5_000)
    qtbot.waitUntil(lambda: window.strip.context.text().split(" ")[0] not in ("", "0"))
    for _ in range(2):
        window.strip.context.click()
        assert desktop.pages.chat.inspector.isVisible()


def test_threads_when_set_then_the_next_engine_and_a_restart_is_offered(qtbot, desktop):
    """Counts for the next process; the note has the button for it."""
    up(qtbot, desktop)
    desktop.services.settings.set(engine_threads=2)
    assert desktop.services.client.process.program.variables["FREETOKEN_THREADS"] == "2"
    assert "CPU threads" in desktop.window.toasts.shown[-1].label.text()


def test_chat_page_then_its_wishes_reach_session_and_window(qtbot, desktop):
    """A page asks by signal: another page, a model, the engine back."""
    up(qtbot, desktop)
    chat, client = desktop.vm.chat, desktop.services.client
    chat.page_requested.emit("performance")
    assert desktop.window.page == "performance"
    with qtbot.waitSignal(client.stopped):
        client.process._process.kill()
    assert desktop.vm.session.problem
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        chat.restart_requested.emit(True)
    assert desktop.vm.session.problem == ""
    with qtbot.waitSignal(client.unloaded):
        desktop.vm.session.unload()
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        chat.load_requested.emit()


def test_engine_killed_mid_reply_then_window_and_text_stay(qtbot, desktop):
    """Kill -9 of the engine during a reply: what had come is on screen and on disk."""
    up(qtbot, desktop)
    client, chat = desktop.services.client, desktop.vm.chat
    received = []
    client.delta.connect(lambda delta: received.append(delta.text))
    with qtbot.waitSignal(client.delta, check_params_cb=lambda _: len(received) >= 10):
        chat.send("hello")
    with qtbot.waitSignal(client.stopped):
        client.process._process.kill()
    assert desktop.window.isVisible()
    last = chat.talk.messages[-1]
    text = "".join(received)
    assert chat.talk.message(last.id).text == text
    assert desktop.services.chats.path_of(chat.talk.chat.id)[-1].text == text


def test_quit_during_a_reply_then_everything_is_over(qtbot, desktop):
    """Place of the window remembered, reply ended as cancelled, threads and child gone."""
    up(qtbot, desktop)
    client = desktop.services.client
    with qtbot.waitSignal(client.delta):
        desktop.vm.chat.send("hello")
    ends = []
    client.finished.connect(ends.append)
    with qtbot.waitSignal(desktop.finished, timeout=5_000):
        desktop.quit()
    assert [end.reason for end in ends] == [m.FinishReason.CANCELLED]
    assert desktop.services.settings.value.geometry
    assert not client.process.is_running
    assert desktop.services.meter._thread is None
    assert desktop.services.presence._thread is None


def test_close_button_then_the_app_ends(qtbot, desktop):
    """G-01: X ends the app, unless the person chose the tray and there is one."""
    up(qtbot, desktop)
    with qtbot.waitSignal(desktop.finished, timeout=5_000):
        desktop.window.close()


def test_quit_at_once_then_no_engine_is_started(qtbot, desktop):
    """Quit before the first picture: nothing begins that would have to be ended."""
    started = []
    desktop.services.client.process.started.connect(lambda: started.append(True))
    with qtbot.waitSignal(desktop.finished, timeout=1_000):
        desktop.show()
        desktop.quit()
    QApplication.processEvents()
    assert started == []


def test_quit_when_closing_means_the_tray_then_nobody_is_told_of_going_on(
    qtbot, desktop, monkeypatch
):
    """G-01: Quit is no close button; the word about the tray is kept for the first real one."""
    told = []
    monkeypatch.setattr(Tray, "is_available", True)
    monkeypatch.setattr(desktop.tray, "say", told.append)
    desktop.services.settings.set(close_to_tray=True)
    desktop.show()
    with qtbot.waitSignal(desktop.finished, timeout=5_000):
        desktop.quit()
    assert told == []
    assert not desktop.services.settings.value.tray_told


def test_tray_entries_then_the_model_goes_and_comes_back(qtbot, desktop, monkeypatch):
    """From the tray alone: free the model, load it again; the rate of a reply stands there too."""
    shown = []
    monkeypatch.setattr(desktop.tray, "set_state", shown.append)
    up(qtbot, desktop)
    client = desktop.services.client
    with qtbot.waitSignal(client.unloaded, timeout=5_000):
        desktop.tray.unload_wanted.emit()
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        desktop.tray.load_wanted.emit()
    with qtbot.waitSignal(client.finished, timeout=10_000):
        desktop.vm.chat.send("hello")
    assert any(sentence.endswith(" tok/s") for sentence in shown)


def test_close_to_tray_when_there_is_none_then_said_once(qtbot, desktop):
    """G-01: GNOME without the extension; the choice is kept for another desktop."""
    desktop.show()
    settings, toasts = desktop.services.settings, desktop.window.toasts
    settings.set(close_to_tray=True)
    assert "has no tray" in toasts.shown[-1].label.text()
    count = len(toasts.shown)
    settings.set(zoom=1.1)
    assert len(toasts.shown) == count
    assert settings.value.close_to_tray


def test_yield_by_key_then_pill_tray_and_a_note_follow(qtbot, desktop):
    """Ctrl+Shift+Y from any page: slots go, the pill says so, the second press brings them back."""
    up(qtbot, desktop)
    window, client, yielding = desktop.window, desktop.services.client, desktop.vm.yielding
    window.show_page("chat")
    qtbot.waitUntil(lambda: yielding.now.is_known)
    for state, pill in ((YieldState.YIELDED, "yielded"), (YieldState.FULL, "ready")):
        with qtbot.waitSignal(client.resize_applied):
            window.actions_by_id["yield_now"].trigger()
        qtbot.waitUntil(lambda state=state: yielding.now.state is state)
        assert window.strip.pill.state == pill
        assert window.toasts.shown[-1].label.text().startswith("Last: ")
    assert window.page == "chat"
    assert [e.kind for _, e in desktop.vm.performance.history.events(60, time.monotonic())] == [
        "yielded",
        "restored",
    ]
    desktop.pages.performance.yielding.more.click()
    assert window.page == "settings"


def test_second_start_then_window_is_raised_on_its_page(qtbot, desktop):
    """What the second start asked for is shown."""
    desktop.show()
    desktop.window.showMinimized()
    desktop.raise_window("logs")
    assert not desktop.window.isMinimized()
    assert desktop.window.page == "logs"
    QApplication.processEvents()


def test_events_then_readable_lines_in_the_apps_log(qtbot, desktop, caplog):
    """Ready, loaded, resized, ended: one line each."""
    caplog.set_level(logging.INFO, logger="app")
    up(qtbot, desktop)
    client = desktop.services.client
    with qtbot.waitSignal(client.resize_applied):
        client.resize(expert_slots=100)
    with qtbot.waitSignal(client.finished, timeout=10_000):
        client.generate(
            (m.ChatMessage(role="user", parts=(m.Part(text="x"),)),), m.Sampling(max_tokens=4)
        )
    text = caplog.text
    for words in ("engine fake ready", "loaded tiny-moe-fp8", "100 expert slots", "4 tokens"):
        assert words in text


def test_greet_when_first_then_shown_once_and_again_from_settings(qtbot, desktop):
    """The first run blocks nothing: the model comes meanwhile, and it leads to the chat."""
    up(qtbot, desktop)
    window, page = desktop.window, desktop.pages.first_run
    desktop.greet()
    assert window.page == "first_run"
    assert not any(item.isChecked() for item in window.rail.items.values())
    qtbot.waitUntil(lambda: desktop.vm.first_run.facts is not None, timeout=5_000)
    page.go.click()
    assert window.page == "chat"
    assert window.rail.items["chat"].isChecked()
    desktop.greet()
    assert window.page == "chat"
    window.show_page("settings")
    desktop.pages.settings._extra["general"][0].wanted.emit()
    assert window.page == "first_run"
