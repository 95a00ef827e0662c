"""Divisions with a name: three by shares, and the person's own, remembered for each model."""

from dataclasses import replace
from pathlib import Path

from app.predict.split import Split
from app.services.settings import SettingsStore
from app.viewmodels.performance_state import PRESETS
from engine.protocol.messages import ModelInfo

CUSTOM = len(PRESETS)


class Presets:
    """Finds and names divisions.

    Args:
        settings: where each model's own division is kept; None = it is forgotten with the app.
    """

    def __init__(self, settings: SettingsStore | None = None) -> None:
        self._settings = settings
        self._own: dict[str, tuple[int, int]] = {}

    def index_of(self, split: Split | None) -> int:
        """Return the preset that a division is; `CUSTOM` = none of them."""
        if split is None:
            return CUSTOM
        named = (split.by_shares(kv, experts) for _, kv, experts in PRESETS)
        return next((i for i, one in enumerate(named) if split.same_as(one)), CUSTOM)

    def wanted(self, index: int, applied: Split, model: ModelInfo | None) -> Split | None:
        """Return the division that a preset asks for; None = the model has none of its own yet."""
        if 0 <= index < CUSTOM:
            _, kv, experts = PRESETS[index]
            return applied.by_shares(kv, experts)
        own = self._remembered(model)
        if own is None:
            return None
        return applied.like(replace(applied, kv_tokens=own[0], expert_slots=own[1]))

    def remember(self, split: Split, model: ModelInfo | None) -> None:
        """Keep a division that the person chose, unless it is one of the presets."""
        if model is None or self.index_of(split) != CUSTOM:
            return
        self._own[_key(model)] = (split.kv_tokens, split.expert_slots)
        if self._settings is not None:
            own = {"custom_kv_tokens": split.kv_tokens, "custom_slots": split.expert_slots}
            self._settings.set_profile(_key(model), **own)

    def _remembered(self, model: ModelInfo | None) -> tuple[int, int] | None:
        if model is None:
            return None
        if self._settings is not None:
            profile = self._settings.profile(_key(model))
            if profile.custom_kv_tokens and profile.custom_slots:
                return profile.custom_kv_tokens, profile.custom_slots
        return self._own.get(_key(model))


def _key(model: ModelInfo) -> str:
    """Profiles are kept under the folder's name, as those of the loader."""
    return Path(model.path).name
