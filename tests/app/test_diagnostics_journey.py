"""Copy diagnostics: what is shown is what is copied and saved, and nothing private is in it."""

import getpass

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.views.diagnostics import DiagnosticsDialog
from app.widgets.look import use
from engine.protocol.places import data_root
from tests.app.walk import clipped, controls, settle, spoken_name
from tests.support.app_engine import FAKE_ENGINE

SECRETS = (
    "hf_abcdefgh12345678",
    "hunter2",
    "zoe@example.org",
    "192.168.178.20",
    "My secret prompt",
)


@pytest.fixture
def desktop(qtbot, looks, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--tokens 4")
    root = data_root(str(tmp_path / "home"))
    made = Desktop(Environment(root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())
    with qtbot.waitSignal(made.services.client.loaded, timeout=15_000):
        made.show()
    yield made
    with qtbot.waitSignal(made.finished, timeout=8_000):
        made.quit()
    made.window.deleteLater()


@pytest.fixture
def dialog(qtbot, desktop):
    """The report of a machine where a lot is private, opened by the key."""
    settings, ring = desktop.services.settings, desktop.services.ring
    settings.set(
        zoom=1.1,
        remote_url="https://engine.zoe.example/v1",
        hub_proxy="http://zoe:hunter2@proxy:8080",
        system_prompt="My secret prompt",
    )
    for text in ("token hf_abcdefgh12345678", "sent to zoe@example.org", "at 192.168.178.20"):
        ring.append("engine", "warning", text)
    with qtbot.waitSignal(desktop.services.machine.known, timeout=15_000):
        desktop.window.actions_by_id["diagnostics"].trigger()
    return desktop.pages.logs.findChild(DiagnosticsDialog)


def test_report_then_facts_for_whoever_helps_and_nothing_private(desktop, dialog):
    """the preview names every hidden place; texts of settings and chats are not told."""
    assert desktop.window.page == "logs"
    text = dialog.text.toPlainText()
    for words in ("Version: ", "RAM: ", "Model: tiny-moe-fp8", "zoom: 1.1", "hub_proxy: set"):
        assert words in text
    assert "engine warning: token <key>" in text
    assert not [secret for secret in SECRETS if secret in text]
    if getpass.getuser() != "root":
        assert getpass.getuser() not in text
    assert "places are hidden" in dialog.hidden.text()
    marked = [s.cursor.selectedText() for s in dialog.text.extraSelections()]
    assert {"<key>", "<mail>", "<address>"} <= set(marked)


def test_copy_and_save_then_exactly_what_is_shown(dialog, tmp_path, monkeypatch):
    """The clipboard and the file get the preview, byte for byte."""
    dialog.copy.click()
    assert QGuiApplication.clipboard().text() == dialog.text.toPlainText()
    assert dialog.said.text() == "Copied."
    target = tmp_path / "report.txt"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
    dialog.save.click()
    assert target.read_text("utf-8") == dialog.text.toPlainText()
    target = tmp_path / "no" / "folder" / "report.txt"
    (tmp_path / "no").write_text("")
    dialog.save.click()
    assert "could not be written" in dialog.said.text()


@pytest.mark.parametrize("language", ["en", "zh_CN", "pseudo"])
@pytest.mark.parametrize("zoom", [1.0, 1.6])
def test_dialog_in_any_look_then_named_and_whole(dialog, language, zoom):
    """Read by everybody."""
    use("light", zoom, language, True)
    settle()
    assert not [w for w in controls(dialog) if not spoken_name(w)]
    assert clipped(dialog) == []


def test_palette_then_it_is_found_there(qtbot, desktop):
    """Who does not know the key types a word."""
    desktop.palette.toggle()
    qtbot.keyClicks(desktop.palette.field, "diagnos")
    groups = desktop.palette._vm.groups
    assert any(entry.target == "diagnostics" for _, entries in groups for entry in entries)
