"""The preset of the chat on screen: choose, compare, save, delete. QtCore only.

Choosing copies a preset's values into the chat; "changed" means that the chat has other values now.
"""

from PySide6.QtCore import QObject, Signal

from app.services.presets import Preset, PresetStore
from app.viewmodels.chat_conversation import Conversation


class ChatPresets(QObject):
    """Joins the presets and the conversation.

    Signals:
        changed(): other presets, another one is chosen, or the values of the chat differ.
        applied(): the chat has other values: prompt, sampling or reasoning.
    """

    changed = Signal()
    applied = Signal()

    def __init__(
        self, talk: Conversation, store: PresetStore, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._talk, self._store = talk, store
        store.changed.connect(self.changed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all presets."""
        return tuple(preset.name for preset in self._store.presets)

    @property
    def current(self) -> str:
        """Name of the preset of this chat, or "" (also once that preset is deleted)."""
        return self._talk.chat.preset if self._store.get(self._talk.chat.preset) else ""

    @property
    def is_changed(self) -> bool:
        """Whether the chat has other values than its preset."""
        preset = self._store.get(self.current)
        return preset is not None and preset != self._values(preset.name)

    def choose(self, name: str) -> None:
        """Give this chat the values of a preset; "" only lets go of the preset."""
        preset = self._store.get(name)
        if preset is None:
            self._talk.change(preset="")
        else:
            self._talk.change(
                preset=preset.name,
                system_prompt=preset.system_prompt,
                sampling=preset.sampling,
                reasoning=preset.reasoning,
            )
        self.applied.emit()
        self.changed.emit()

    def save_as(self, name: str) -> None:
        """Keep the values of this chat under a name; one of that name is replaced."""
        if name.strip():
            kept = self._store.save(self._values(name))
            self._talk.change(preset=kept.name)
            self.changed.emit()

    def save(self) -> None:
        """Give the preset of this chat the chat's values."""
        self.save_as(self.current)

    def delete(self) -> None:
        """Remove the preset of this chat; chats that have its values keep them."""
        name = self.current
        self._talk.change(preset="")
        self._store.delete(name)
        self.changed.emit()

    def _values(self, name: str) -> Preset:
        chat = self._talk.chat
        return Preset(name, chat.system_prompt, chat.sampling, chat.reasoning)
