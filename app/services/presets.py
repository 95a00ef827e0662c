"""Presets: a system prompt, sampling and reasoning under a name, in one small file.

A chat takes a preset's values when it is chosen; changing or deleting the preset later leaves the
chat as it is. The file is read at once and replaced as a whole; a damaged one is set aside.
"""

from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from app.services.chat_records import Reasoning
from app.services.files import keep_aside, replace_file
from app.wording import tr
from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import Sampling

VERSION = 1
NAME_LENGTH = 60


class Preset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to answer, under a name. `sampling` None = what the model's own files say."""

    name: str
    system_prompt: str = ""
    sampling: Sampling | None = None
    reasoning: Reasoning = ""


class PresetStore(QObject):
    """All presets of this person, by name.

    Args:
        path: the file; None keeps them for this session only.

    Signals:
        changed(): others, or another content.
        failed(str): a sentence: the file could not be read or written.
    """

    changed = Signal()
    failed = Signal(str)

    def __init__(self, path: Path | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self.notices: list[str] = []
        self._presets = {preset.name: preset for preset in self._read()}

    @property
    def presets(self) -> tuple[Preset, ...]:
        """All of them, by name in alphabetical order."""
        return tuple(sorted(self._presets.values(), key=lambda preset: preset.name.casefold()))

    def get(self, name: str) -> Preset | None:
        """Return a preset, or None if there is none of that name."""
        return self._presets.get(name)

    def save(self, preset: Preset) -> Preset:
        """Add a preset, or replace the one of that name. Returns it as it is kept.

        Raises:
            ValueError: the name is empty.
        """
        name = " ".join(preset.name.split())[:NAME_LENGTH]
        if not name:
            raise ValueError("A preset needs a name.")
        kept = msgspec.structs.replace(preset, name=name)
        self._presets[name] = kept
        self._write()
        return kept

    def delete(self, name: str) -> None:
        """Remove a preset; an unknown name is ignored."""
        if self._presets.pop(name, None) is not None:
            self._write()

    def _read(self) -> list[Preset]:
        """Return what the file holds; a preset that cannot be used costs itself only."""
        path = self._path
        if path is None:
            return []
        try:
            raw = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            entries = list(raw.get("presets", []))
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, TypeError):
            aside = keep_aside(path)
            words = tr("The presets could not be read. The old file is {path}.", path=aside or "")
            self.notices.append(words)
            return []
        return [preset for entry in entries if (preset := _preset_from(entry)) is not None]

    def _write(self) -> None:
        raw = {"version": VERSION, "presets": msgspec.to_builtins(self.presets)}
        data = msgspec.json.format(msgspec.json.encode(raw), indent=2)
        try:
            if self._path is not None:
                replace_file(self._path, data + b"\n")
        except OSError as problem:
            reason = problem.strerror or str(problem)
            self.failed.emit(tr("The presets could not be saved: {reason}", reason=reason))
        self.changed.emit()


def _preset_from(entry: object) -> Preset | None:
    try:
        preset = msgspec.convert(entry, Preset)
        if preset.sampling is not None:
            preset.sampling.check()
    except (msgspec.ValidationError, InvalidRequest):
        return None
    return preset if preset.name.strip() else None
