"""The engine ends or hangs during a reply as a person meets it: pill, card, ways out, the text."""

import pytest

from app.main import Desktop
from app.services.engine_process import ProcessLimits
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.widgets.chat.cards import CrashCard
from app.widgets.labels import Label
from engine.protocol.places import data_root
from tests.support.app_engine import FAKE_ENGINE

FAST = ProcessLimits(silence_s=1.0, eof_after_s=0.2, kill_after_s=0.5)


@pytest.fixture
def make_desktop(qtbot, looks, tmp_path, monkeypatch):
    made = []

    def make(arguments):
        monkeypatch.setenv("FAKE_ENGINE_ARGS", f"--rate 60 --heartbeat 0.2 {arguments}")
        root = data_root(str(tmp_path / "home"))
        desktop = Desktop(Environment(root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())
        made.append(desktop)
        desktop.services.client.process._limits = FAST
        with qtbot.waitSignal(desktop.services.client.loaded, timeout=15_000):
            desktop.show()
        return desktop

    yield make
    for desktop in made:
        with qtbot.waitSignal(desktop.finished, timeout=8_000):
            desktop.quit()
        desktop.window.deleteLater()


def begin(qtbot, desktop):
    """Send a message; returns what has come of the reply, growing."""
    got = []
    desktop.services.client.delta.connect(lambda delta: got.append(delta.text))
    with qtbot.waitSignal(desktop.services.client.started, timeout=10_000):
        desktop.vm.chat.send("hello")
    return got


def words_of(widget):
    return " ".join(label.text() for label in widget.findChildren(Label))


@pytest.mark.parametrize(
    ("accident", "pill", "cause"),
    [
        ("--crash-at 12", "Engine stopped", "The engine crashed"),
        ("--exit-at 12 --exit-error device", "GPU lost", "fell off the bus"),
        ("--exit-at 12 --exit-error budget", "Out of memory", "fell off the bus"),
        ("--exit-at 12 --exit-code 4 --exit-error internal", "Engine stopped", "fell off the bus"),
    ],
)
def test_end_mid_reply_then_pill_card_and_text_and_one_click_back(
    qtbot, make_desktop, accident, pill, cause
):
    """Cases G-18, E-05: what happened, that nothing is lost, and the buttons; nothing by itself."""
    desktop = make_desktop(accident)
    client, window = desktop.services.client, desktop.window
    with qtbot.waitSignal(client.stopped, timeout=10_000):
        got = begin(qtbot, desktop)
    assert window.strip.pill.text() == pill
    assert window.strip.pill.state == "error"
    card = desktop.pages.chat.findChild(CrashCard)
    assert cause in words_of(card)
    assert "stored" in words_of(card)
    assert not window.problem.isVisible()  # the card says it already
    chat = desktop.vm.chat.talk
    assert desktop.services.chats.path_of(chat.chat.id)[-1].text == "".join(got)
    window.show_page("models")
    assert window.problem.isVisible()
    assert cause in words_of(window.problem)
    assert not client.process.is_running
    window.problem.log.click()
    assert window.page == "logs"
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        window.problem.restart.click()
    assert window.strip.pill.state == "ready"
    assert not window.problem.isVisible()


def test_hang_mid_reply_then_said_and_the_button_ends_it(qtbot, make_desktop):
    """No heartbeat: a state with its reason and a way out; the text stays."""
    desktop = make_desktop("--hang-at 12")
    client, window = desktop.services.client, desktop.window
    got = begin(qtbot, desktop)
    qtbot.waitUntil(lambda: window.strip.pill.text() == "Not responding", timeout=10_000)
    assert window.problem.isVisible()
    assert "It was writing a reply." in words_of(window.problem)
    assert client.process.is_running
    with qtbot.waitSignal(client.loaded, timeout=15_000):
        window.problem.restart.click()
    assert window.strip.pill.state == "ready"
    chat = desktop.vm.chat.talk
    assert desktop.services.chats.path_of(chat.chat.id)[-1].text == "".join(got)


def test_idle_crash_when_automatic_then_back_and_said_in_a_note(qtbot, make_desktop):
    """Opt-in: the person sees what happened, and has lost nothing."""
    desktop = make_desktop("")
    desktop.services.settings.set(auto_restart=True)
    client, window = desktop.services.client, desktop.window
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        client.process._process.kill()
    assert window.strip.pill.state == "ready"
    assert "It was started again" in window.toasts.shown[-1].label.text()
