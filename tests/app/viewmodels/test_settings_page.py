"""The Settings and Server pages' view models."""

import pytest

from app.services.settings import SettingsStore
from app.viewmodels.server import CLIENTS, ServerViewModel
from app.viewmodels.settings import SECTIONS, SettingsViewModel
from engine.protocol.places import data_root


@pytest.fixture
def vm(qtbot, tmp_path):
    store = SettingsStore(tmp_path / "settings.json")
    return SettingsViewModel(store, data_root(str(tmp_path)), lambda: (("Engine", "0.1.0"),))


def test_set_then_told_by_key_and_resettable(qtbot, vm):
    """A row knows whether it differs from its default."""
    with qtbot.waitSignal(vm.changed) as told:
        assert vm.set("theme", "light") == ""
    assert told.args == ["theme"]
    assert vm.is_changed("theme")
    vm.reset("theme")
    assert not vm.is_changed("theme")


def test_set_when_out_of_range_then_sentence_with_limits(vm):
    """The limits are told as they are shown: per cent."""
    assert vm.set("zoom", 3.0) == "Must lie between 80 and 160."
    assert vm.value("zoom") == 1.0


def test_models_folder_when_unusable_then_old_one_kept(vm, tmp_path):
    """D-21: checked before it is taken; nothing inside is looked at."""
    assert "not there" in vm.set("models_folder", str(tmp_path / "none"))
    assert "full path" in vm.set("models_folder", "relative")
    assert vm.value("models_folder") == ""
    (tmp_path / "Modelle ä 空").mkdir()
    assert vm.set("models_folder", str(tmp_path / "Modelle ä 空")) == ""
    assert any(str(tmp_path / "Modelle ä 空") == fact.value for fact in vm.facts())


def test_engine_program_then_restart_is_said(qtbot, vm):
    """What counts only later says so."""
    with qtbot.waitSignal(vm.restart_needed):
        vm.set("engine_program", "/opt/engine")


def test_sections_and_search(vm):
    """Every row is in a known section; search looks into names and helps."""
    known = {key for key, _, _ in SECTIONS}
    rows = [row for section in known for row in vm.rows(section)]
    assert {row.key for row in rows} == set(vm.found(""))
    assert "zoom" in vm.found("SIZE of text")
    assert vm.found("no such thing") == ()


def test_facts_then_versions_and_folders(vm, tmp_path):
    """About names versions and the one data folder."""
    facts = {fact.name: fact for fact in vm.facts()}
    assert facts["Engine"].value == "0.1.0"
    assert facts["Data folder"].path == tmp_path


def test_server_then_off_and_says_why():
    """Nothing pretends to work before the API exists (cases A-17, A-18, A-19)."""
    server = ServerViewModel()
    assert not server.is_available
    assert not server.is_on
    assert "later version" in server.sentence
    for client in CLIENTS:
        assert "127.0.0.1" in "".join(server.snippet(client))


@pytest.mark.parametrize(
    ("is_windows", "lines"),
    [
        (False, ("export OPENAI_BASE_URL=http://127.0.0.1:1919/v1", "codex")),
        (True, ('$env:OPENAI_BASE_URL = "http://127.0.0.1:1919/v1"', "codex")),
    ],
)
def test_snippet_then_in_the_words_of_the_shell_that_is_there(monkeypatch, is_windows, lines):
    """PowerShell knows no export, and its curl is another program."""
    monkeypatch.setattr("app.viewmodels.server.IS_WINDOWS", is_windows)
    assert ServerViewModel().snippet("Codex") == lines
    assert ServerViewModel().snippet("curl")[0].startswith("curl.exe ") == is_windows
