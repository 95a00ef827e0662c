"""The choice of the device that models run on. QtCore only."""

from PySide6.QtCore import QObject, Signal

from app.services.device_choice import CPU, cards, key_of
from app.services.engine_client import EngineClient
from app.services.settings import SettingsStore
from app.wording import tr
from engine.protocol import messages as m


class DeviceViewModel(QObject):
    """What can be chosen, and what is.

    Signals:
        changed(): choices or choice differ.
    """

    changed = Signal()

    def __init__(self, client: EngineClient, settings: SettingsStore) -> None:
        super().__init__()
        self._client, self._settings = client, settings
        client.ready.connect(self.changed)
        client.loaded.connect(self.changed)
        client.stopped.connect(self.changed)
        settings.changed.connect(self.changed)

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """Keys and words; what is chosen is among them, also while that card is not there."""
        found = [(key_of(card), _words(card)) for card in cards(self._client.devices)]
        chosen = self._settings.value.device
        if chosen not in ("", CPU, *(key for key, _ in found)):
            found.append((chosen, tr("A card that is not there")))
        return (("", tr("Automatic")), *found, (CPU, tr("CPU only")))

    @property
    def chosen(self) -> int:
        """Place of the choice among the choices."""
        keys = [key for key, _ in self.choices]
        return keys.index(self._settings.value.device)

    @property
    def sentence(self) -> str:
        """Where the loaded model runs, or ""."""
        model = self._client.model
        name = next(iter(model.devices), "") if model is not None else ""
        device = next((one for one in self._client.devices if one.name == name), None)
        return tr("The loaded model runs on {device}.", device=device.title) if device else ""

    def choose(self, place: int) -> None:
        """Take one of the choices, from the next load on."""
        self._settings.set(device=self.choices[place][0])


def _words(card: m.DeviceInfo) -> str:
    return f"{card.title} · {card.total_bytes / 2**30:.0f} GiB · {card.name}"
