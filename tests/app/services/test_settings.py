"""Settings: kept, checked, migrated, and never in the way of a start."""

import json
import os
import sys

import pytest

from app.services.settings import (
    ModelProfile,
    Settings,
    SettingsStore,
    fields,
    read_environment,
    stored_language,
)
from app.services.settings_schema import VERSION, checked, migrated
from engine.protocol.messages import MissPolicy, Sampling


def test_set_then_saved_and_told(qtbot, tmp_path):
    """A change is on disk at once and every listener hears it."""
    store = SettingsStore(tmp_path / "deep" / "settings.json")
    with qtbot.waitSignal(store.changed) as told:
        store.set(theme="dark", zoom=1.2)
    assert told.args[0].theme == "dark"
    again = SettingsStore(store.path)
    assert (again.value.theme, again.value.zoom) == ("dark", 1.2)
    assert again.notices == []


def test_set_when_same_then_nothing_happens(qtbot, tmp_path):
    """No write and no signal for nothing."""
    store = SettingsStore(tmp_path / "settings.json")
    with qtbot.assertNotEmitted(store.changed):
        store.set(theme="system")
    assert not store.path.exists()


@pytest.mark.parametrize("change", [{"zoom": 9.0}, {"theme": "pink"}, {"budget_mib": -1}])
def test_set_when_out_of_range_then_refused(qtbot, tmp_path, change):
    """A bad value changes nothing."""
    store = SettingsStore(tmp_path / "settings.json")
    with pytest.raises(ValueError, match=next(iter(change))):
        store.set(**change)
    assert store.value == Settings()


def test_profiles_then_per_model(qtbot, tmp_path):
    """FreeToken#255: presets belong to a model and survive."""
    store = SettingsStore(tmp_path / "settings.json")
    store.set_profile("a", expert_slots=10, policy=MissPolicy.CPU_ONLY)
    store.set_profile("a", kv_tokens=4_096, sampling=Sampling(temperature=0.3))
    again = SettingsStore(store.path)
    assert again.profile("a").expert_slots == 10
    assert again.profile("a").kv_tokens == 4_096
    assert again.profile("a").sampling.temperature == 0.3
    assert again.profile("b") == ModelProfile()


@pytest.mark.parametrize("data", [b"", b"{", b"\x00" * 40, b"[1,2]"])
def test_damaged_file_then_kept_aside_and_defaults(tmp_path, data):
    """Power loss: the app starts, says so, and the old bytes are still there."""
    path = tmp_path / "settings.json"
    path.write_bytes(data)
    store = SettingsStore(path)
    assert store.value == Settings()
    assert len(store.notices) == 1
    assert (tmp_path / "settings.json.damaged").read_bytes() == data


def test_one_bad_value_then_only_that_one_is_reset(tmp_path):
    """The rest of the person's choices survives."""
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"version": 1, "theme": "light", "zoom": 40, "new_thing": 1}))
    store = SettingsStore(path)
    assert (store.value.theme, store.value.zoom) == ("light", 1.0)
    assert "zoom" in store.notices[0]


def test_migration_from_every_version_then_nothing_lost(tmp_path):
    """Files of all older versions are read with their meaning; version 0 had zoom in per cent."""
    old = {0: {"theme": "dark", "zoom": 120, "last_model": "/m"}}
    assert set(old) == set(range(VERSION))
    for values in old.values():
        settings, bad = checked(migrated(values))
        assert bad == ()
        assert (settings.theme, settings.zoom, settings.last_model) == ("dark", 1.2, "/m")
        assert settings.version == VERSION


def test_newer_file_then_read_as_far_as_known_and_kept(qtbot, tmp_path):
    """Going back to an older app loses nothing: the newer file is copied first."""
    path = tmp_path / "settings.json"
    newer = json.dumps({"version": 99, "theme": "light", "novelty": True})
    path.write_text(newer)
    store = SettingsStore(path)
    store.set(zoom=1.1)
    assert store.value.theme == "light"
    assert (tmp_path / "settings.v99.json").read_text() == newer


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="needs a user who can be refused"
)
def test_unwritable_folder_then_told_and_value_holds(qtbot, tmp_path):
    """D-07: a full or read-only disk is a sentence."""
    tmp_path.chmod(0o500)
    store = SettingsStore(tmp_path / "settings.json")
    with qtbot.waitSignal(store.save_failed):
        store.set(zoom=1.3)
    tmp_path.chmod(0o700)
    assert store.value.zoom == 1.3


def test_disk_full_then_told_and_old_file_whole(qtbot, tmp_path, monkeypatch):
    """D-07: the file is replaced in one step or not at all."""
    store = SettingsStore(tmp_path / "settings.json")
    store.set(zoom=1.3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.services.files.os.replace", full)
    with qtbot.waitSignal(store.save_failed) as told:
        store.set(zoom=1.4)
    assert "No space left" in told.args[0]
    monkeypatch.undo()
    assert SettingsStore(store.path).value.zoom == 1.3
    assert [p.name for p in tmp_path.iterdir()] == ["settings.json"]


def test_fields_then_every_shown_value_is_described():
    """The page is built from the schema: label, help, section, and a default that passes."""
    rows = fields()
    assert {"theme", "language", "zoom", "models_folder"} <= {row.key for row in rows}
    for row in rows:
        assert row.label
        assert row.help
        assert row.section in ("general", "storage", "engine", "yield", "chat")
        assert getattr(Settings(), row.key) == row.default
        if row.kind == "number":
            assert row.minimum <= row.default <= row.maximum


def test_environment_then_home_from_the_command_line_wins(tmp_path, monkeypatch):
    """Argument, then variable, then the platform's place."""
    monkeypatch.setenv("FREETOKEN_HOME", str(tmp_path / "a"))
    assert read_environment().root.root == tmp_path / "a"
    assert read_environment(str(tmp_path / "b")).root.root == tmp_path / "b"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('{"version": 1, "language": "zh_CN"}', "zh_CN"),
        ('{"version": 999, "language": "zh_CN"}', "zh_CN"),
        ('{"version": 1, "language": 7}', ""),
        ("{damaged", ""),
        (None, ""),
    ],
)
def test_language_of_another_apps_settings_then_nothing_is_changed(tmp_path, text, language):
    """A start that is refused leaves the file of the app that runs as it is."""
    path = tmp_path / "settings.json"
    if text is not None:
        path.write_text(text)
    assert stored_language(path) == language
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == (
        [] if text is None else [("settings.json", text)]
    )
