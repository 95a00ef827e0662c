"""From a hub that does everything wrong to a reply, by the buttons of the window.

The engine is the real one; the hub is on loopback and serves the built-in model's source under
another name.
"""

import shutil
import time

import pytest
from PySide6.QtTest import QTest

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.widgets.dialogs import Question
from engine.protocol.places import data_root
from tests.app.conftest import looks
from tests.conftest import REPOSITORY
from tests.support.mock_hub import REPO, MockHub, serve

__all__ = ["looks"]
pytestmark = [pytest.mark.weights, pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_MS = 100_000
SMALL_DISK = REPOSITORY / "tests" / "support" / "small_disk.py"
SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


@pytest.fixture
def hub(builtin_model, tmp_path):
    folder = shutil.copytree(builtin_model, tmp_path / "hub")
    with serve(MockHub(folder)) as made:
        yield made


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """A file; while it exists, the disk is full."""
    path = tmp_path / "full"
    monkeypatch.setenv("FULL_DISK", str(path))
    return path


@pytest.fixture
def desktop(qtbot, looks, tmp_path, hub, full_disk):
    root = data_root(str(tmp_path / "home"))
    made = Desktop(Environment(root, str(SMALL_DISK), True, needs_x11=False), LogRing())
    made.services.settings.set(
        load_last_model=False, hub_endpoint=hub.url, hub_proxy="direct", first_run_told=True
    )
    made.show("models")
    yield made
    with qtbot.waitSignal(made.finished, timeout=10_000):
        made.quit()
    made.window.deleteLater()


class Person:
    """What is pressed and read on the Models page."""

    def __init__(self, qtbot, desktop):
        self.qtbot, self.desktop, self.page = qtbot, desktop, desktop.pages.models
        self.vm = desktop.vm.discover.flows

    def get(self, repo):
        """Paste a name, press Get."""
        self.page.show_tab(1)
        self.page.panel.search.setText(repo)
        self.page.panel._rows[repo].action.click()
        self.wait(lambda: repo in self.page.flows._cards)
        return self.page.flows._cards[repo]

    def wait(self, check):
        self.qtbot.waitUntil(check, timeout=WAIT_MS)

    def until(self, repo, state):
        """Wait for a state; a failure says what stands on the card."""
        self.wait(lambda: self.vm.flow_of(repo) and self.vm.flow_of(repo).state in (state, "fail"))
        flow = self.vm.flow_of(repo)
        assert flow.state == state, flow.job.error
        return self.page.flows._cards[repo]._error.words.text()


def test_get_from_a_hub_that_does_everything_wrong_then_converted_loaded_and_a_reply(
    qtbot, desktop, hub, full_disk, record_property
):
    """Cases D-02, D-04, D-08, D-10: each fault has its sentence and its button, the end is a reply.

    404 for a name that is none; 401, 403 and a token; a full disk; lost connections, 416, a
    truncated and a damaged file; then conversion, Load, chat.
    """
    begun = time.monotonic()
    person = Person(qtbot, desktop)
    card = person.get("maker/no-such-model")
    assert "maker/no-such-model" in person.until("maker/no-such-model", "fail")
    card.close_button.click()
    person.page.flows.findChild(Question).act.click()
    person.wait(lambda: not person.vm.flows)

    hub.need_token, hub.is_gated = "hf_right", True
    card = person.get(REPO)
    assert "token" in person.until(REPO, "fail")
    full_disk.touch()
    for token, words in (("hf_wrong", "licence"), ("hf_right", "full")):
        QTest.keyClicks(card.token, token)
        card.token_button.click()
        person.wait(lambda: person.vm.flow_of(REPO).state != "fail")
        assert words in person.until(REPO, "fail")
    full_disk.unlink()

    sizes = {name: (hub.folder / name).stat().st_size for name in SHARDS}
    first, second, third = (hub.fault(name) for name in SHARDS)
    first.cut_at, first.cuts = sizes[SHARDS[0]] // 3, 2  # the second time: nothing more comes
    second.damage, third.statuses, third.status = 1, 1, 416
    third.short_by, third.shorts = 1 << 20, 1
    hub.served.clear()
    card.again_button.click()
    person.until(REPO, "ready")
    served = {name: hub.served[name] for name in SHARDS}
    assert served == {**sizes, SHARDS[1]: 2 * sizes[SHARDS[1]]}  # only the damaged one twice
    assert (first.cuts, second.damage, third.statuses, third.shorts) == (0, 0, 0, 0)

    client = desktop.services.client
    with qtbot.waitSignal(client.loaded, timeout=WAIT_MS):
        card.load_button.click()
    desktop.window.show_page("chat")
    QTest.keyClicks(desktop.pages.chat.composer.edit, "Tell me about a fox.")
    with qtbot.waitSignal(client.finished, timeout=WAIT_MS):
        desktop.pages.chat.composer.button.click()
    assert len(desktop.vm.chat.talk.messages[-1].text) > 10
    with qtbot.waitSignal(person.vm.downloads.removed, timeout=WAIT_MS):
        card.free_button.click()
    assert not list(desktop.services.environment.root.models.rglob("*.safetensors"))
    secret = b"hf_right"
    home = desktop.services.environment.root.root
    assert not [p for p in home.rglob("*") if p.is_file() and secret in p.read_bytes()]
    record_property("from the first Get to the reply s", round(time.monotonic() - begun, 1))
