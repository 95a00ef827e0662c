"""The Settings page: rows from the schema, values, checks, facts about this program.

QtCore only.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal, qVersion

from app.services.folder_check import folder_problem
from app.services.settings import SettingField, SettingsStore, fields
from app.services.settings_schema import Value
from app.wording import again, tr
from engine.protocol.messages import PROTOCOL_VERSION
from engine.protocol.places import DataRoot

APP_VERSION = "0.1.0"

# Sections in the order of the page: key, name, icon.
SECTIONS: tuple[tuple[str, str, str], ...] = (
    ("general", tr("General"), "settings"),
    ("storage", tr("Storage"), "disk"),
    ("chat", tr("Chat"), "chat"),
    ("engine", tr("Engine"), "cpu"),
    ("yield", tr("Auto-yield"), "game"),
    ("remote", tr("Remote engine"), "globe"),
    ("shortcuts", tr("Shortcuts"), "keyboard"),
    ("about", tr("About"), "info"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the About section; `path` is set where a folder can be opened."""

    name: str
    value: str
    path: Path | None = None


class SettingsViewModel(QObject):
    """Values of the page.

    Signals:
        changed(str): a value differs; its key.
        notice(str): a sentence: the file could not be read or saved.
        restart_needed(str): a changed value counts only after a restart of the engine; its label.
    """

    changed = Signal(str)
    notice = Signal(str)
    restart_needed = Signal(str)

    def __init__(
        self,
        store: SettingsStore,
        root: DataRoot,
        engine_facts: Callable[[], tuple[tuple[str, str], ...]] | None = None,
        kernel_facts: Callable[[], tuple[tuple[str, str], ...]] | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._root = root
        self._engine_facts, self._kernel_facts = engine_facts, kernel_facts
        self._last = store.value
        self._fields = {field.key: field for field in fields()}
        store.changed.connect(self._on_changed)
        store.save_failed.connect(self.notice)

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences about the settings file at the start."""
        return tuple(self._store.notices)

    def rows(self, section: str) -> tuple[SettingField, ...]:
        """Return the rows of a section."""
        return tuple(field for field in self._fields.values() if field.section == section)

    def field(self, key: str) -> SettingField:
        """Return one row."""
        return self._fields[key]

    def found(self, text: str) -> tuple[str, ...]:
        """Return the keys of rows whose name or help contains the text, in the language in use."""
        wanted = text.strip().lower()
        return tuple(
            key
            for key, field in self._fields.items()
            if wanted in again(field.label).lower() or wanted in again(field.help).lower()
        )

    def value(self, key: str) -> Value:
        """Return the stored value."""
        value: Value = getattr(self._store.value, key)
        return value

    def is_changed(self, key: str) -> bool:
        """Whether the value differs from its default, so that a reset button makes sense."""
        return self.value(key) != self._fields[key].default

    def set(self, key: str, value: Value) -> str:
        """Store a value. Returns "" or a sentence that says why the old one was kept."""
        field = self._fields[key]
        if field.kind == "folder" and isinstance(value, str) and value:
            problem = folder_problem(Path(value))
            if problem:
                return problem
        try:
            self._store.set(**{key: value})
        except ValueError:
            if field.maximum:
                return tr(
                    "Must lie between {low} and {high}.",
                    low=f"{field.minimum * field.scale:g}",
                    high=f"{field.maximum * field.scale:g}",
                )
            return tr("Not usable here.")
        return ""

    def reset(self, key: str) -> None:
        """Give a value its default."""
        self._store.reset(key)

    def facts(self) -> tuple[Fact, ...]:
        """Return what About says."""
        engine = self._engine_facts() if self._engine_facts else ()
        return (
            Fact(tr("Version"), APP_VERSION),
            *(Fact(name, value) for name, value in engine),
            Fact(tr("Protocol"), str(PROTOCOL_VERSION)),
            Fact(tr("Python, Qt"), f"{platform.python_version()}, {qVersion()}"),
            Fact(tr("Data folder"), str(self._root.root), self._root.root),
            Fact(tr("Models folder"), str(self._models()), self._models()),
            Fact(tr("Log folder"), str(self._root.logs), self._root.logs),
        )

    def kernels(self) -> tuple[Fact, ...]:
        """Return what About says at its end, for engineers: what computes."""
        found = self._kernel_facts() if self._kernel_facts else ()
        return tuple(Fact(name, value) for name, value in found)

    def _models(self) -> Path:
        chosen = self._store.value.models_folder
        return Path(chosen) if chosen else self._root.models

    def _on_changed(self, new: object) -> None:
        before, self._last = self._last, self._store.value
        for key, field in self._fields.items():
            if getattr(before, key) != getattr(self._last, key):
                self.changed.emit(key)
                if field.needs_restart:
                    self.restart_needed.emit(field.label)
