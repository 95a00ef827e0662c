"""What the composition root does with an opened file, an installed runtime and a release."""

import sys
from dataclasses import replace

import pytest

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from engine.protocol.places import data_root
from tests.support.app_engine import FAKE_ENGINE


@pytest.fixture
def desktop(qtbot, looks, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--stats 0.1")
    environment = Environment(
        data_root(str(tmp_path / "home")), str(FAKE_ENGINE), has_display=True, needs_x11=False
    )
    made = Desktop(environment, LogRing())
    yield made
    with qtbot.waitSignal(made.finished, timeout=6_000):
        made.quit()
    made.window.deleteLater()


def test_model_when_opened_then_it_is_loaded_and_a_foreign_file_is_named(qtbot, desktop, tmp_path):
    """A double click on `model.ftw`, at the start or while the app runs."""
    folder = tmp_path / "modèl 語"
    folder.mkdir()
    (folder / "model.ftw").write_text("{}")
    desktop.open_model(str(folder / "model.ftw"))
    assert desktop.vm.session.coming == folder
    said = []
    desktop.window.toast = lambda *words: said.append(words)
    desktop.open_model(str(tmp_path / "letter.txt"))
    assert "letter.txt is no model" in said[0][0]
    assert desktop.vm.session.coming == folder


def test_runtime_when_installed_then_the_engine_starts_with_it(qtbot, desktop):
    """No engine runs, because a shell had none: it comes up by itself."""
    client = desktop.services.client
    assert not client.process.is_running
    client.process.program = replace(client.process.program, origin="none")
    with qtbot.waitSignal(client.ready, timeout=15_000):
        desktop.vm.runtime.installed.emit()
    assert client.process.program.path == sys.executable


def test_runtime_when_installed_beside_a_running_engine_then_a_restart_is_offered(qtbot, desktop):
    """A reply may be under way."""
    client = desktop.services.client
    with qtbot.waitSignal(client.ready, timeout=15_000):
        client.start()
    pid, said = client.process.pid, []
    desktop.window.toast = lambda *words: said.append(words)
    desktop.vm.runtime.installed.emit()
    assert client.process.pid == pid
    assert "when the engine is restarted" in said[0][0]


def test_release_when_found_then_told_with_its_page(desktop):
    said = []
    desktop.window.toast = lambda *words: said.append(words)
    desktop.vm.about.told.emit("Version 9 is there.", "https://example.org")
    assert said[0][0] == "Version 9 is there."
    assert "page" in said[0][2]
