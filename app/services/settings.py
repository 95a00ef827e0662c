"""Settings on disk: read, checked, saved in one step. Alone in the app reads the environment.

`SettingsStore.value` is the truth; everybody listens to `changed`. Knows no widgets.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from app.services.files import keep_aside, replace_file
from app.services.settings_schema import (
    VERSION,
    ModelProfile,
    SettingField,
    Settings,
    checked,
    fields,
    migrated,
)
from app.wording import tr
from engine.protocol.places import HOME_VARIABLE, DataRoot, data_root

__all__ = [
    "Environment",
    "ModelProfile",
    "SettingField",
    "Settings",
    "SettingsStore",
    "chosen_folder",
    "fields",
    "read_environment",
]

ENGINE_VARIABLE = "FREETOKEN_ENGINE"


@dataclass(frozen=True, slots=True)
class Environment:
    """What the surroundings say.

    Attributes:
        root: the data root.
        engine_program: an engine to use instead of ours, "" = none.
        has_display: whether a window can be shown, as far as the environment tells.
        needs_x11: whether Qt will talk to an X server.
    """

    root: DataRoot
    engine_program: str
    has_display: bool
    needs_x11: bool


def read_environment(home: str = "") -> Environment:
    """Read the environment; `home` from the command line beats it."""
    platform = os.environ.get("QT_QPA_PLATFORM", "")
    x11, wayland = os.environ.get("DISPLAY", ""), os.environ.get("WAYLAND_DISPLAY", "")
    return Environment(
        root=data_root(home or os.environ.get(HOME_VARIABLE)),
        engine_program=os.environ.get(ENGINE_VARIABLE, ""),
        has_display=bool(platform or x11 or wayland),
        needs_x11=platform == "xcb" or bool(x11 and not platform and not wayland),
    )


def chosen_folder(settings: Settings) -> Path | None:
    """Return the models folder that the person chose, None = only the app's own."""
    return Path(settings.models_folder) if settings.models_folder else None


class SettingsStore(QObject):
    """The settings of this data root.

    Args:
        path: the JSON file; made at the first change.

    Attributes:
        notices: sentences about a file that could not be used, for the log and the window.

    Signals:
        changed(Settings): after each change, with the new values.
        save_failed(str): a sentence; the values hold until the app ends.
    """

    changed = Signal(object)
    save_failed = Signal(str)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self.notices: list[str] = []
        self._value = self._read()

    @property
    def value(self) -> Settings:
        """The settings now."""
        return self._value

    def set(self, **changes: object) -> None:
        """Change values, save, tell.

        Raises:
            ValueError: a value is outside its range or of the wrong type; nothing changed.
        """
        for key, value in changes.items():
            _, bad = checked({key: msgspec.to_builtins(value)})
            if bad:
                raise ValueError(f"{value!r} is no value for {key}.")
        new = msgspec.structs.replace(self._value, **changes)
        if new == self._value:
            return
        self._value = new
        self._save()
        self.changed.emit(new)

    def reset(self, key: str) -> None:
        """Give one value its default."""
        self.set(**{key: getattr(Settings(), key)})

    def profile(self, model: str) -> ModelProfile:
        """Return what is remembered for a model (its name)."""
        return self._value.profiles.get(model, ModelProfile())

    def set_profile(self, model: str, **changes: object) -> None:
        """Remember something for a model."""
        profile = msgspec.structs.replace(self.profile(model), **changes)
        self.set(profiles={**self._value.profiles, model: profile})

    def _read(self) -> Settings:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Settings()
        except OSError as problem:
            self.notices.append(
                tr("The settings could not be read: {reason}", reason=problem.strerror or "")
            )
            return Settings()
        try:
            raw = msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError:
            self._aside()
            return Settings()
        if isinstance(raw.get("version"), int) and raw["version"] > VERSION:
            self._keep_newer(data, raw["version"])
        settings, bad = checked(migrated(raw))
        if bad:
            self.notices.append(
                tr("Settings with unusable values were reset: {names}", names=", ".join(bad))
            )
        return settings

    def _aside(self) -> None:
        aside = keep_aside(self.path)
        self.notices.append(
            tr(
                "The settings file was damaged. Defaults are used; the old file is {path}.",
                path=aside or self.path,
            )
        )

    def _keep_newer(self, data: bytes, version: int) -> None:
        """A newer app wrote this: keep its file, so that going back loses nothing."""
        copy = self.path.with_name(f"{self.path.stem}.v{version}{self.path.suffix}")
        try:
            replace_file(copy, data)
        except OSError as problem:
            self.notices.append(
                tr("The settings could not be saved: {reason}", reason=problem.strerror or "")
            )

    def _save(self) -> None:
        raw = msgspec.to_builtins(self._value) | {"version": VERSION}
        data = msgspec.json.format(msgspec.json.encode(raw), indent=2)
        try:
            replace_file(self.path, data)
        except OSError as problem:
            self.save_failed.emit(
                tr("The settings could not be saved: {reason}", reason=problem.strerror or "")
            )


def stored_language(path: Path) -> str:
    """Return the language of a settings file that is another app's: it is only read."""
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return ""
    return checked(migrated(raw))[0].language
