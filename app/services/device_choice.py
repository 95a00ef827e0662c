"""Which device a model runs on: what the person chose, else a card, else the CPU.

Says in a sentence when a model goes elsewhere because a card cannot take it.
"""

from collections.abc import Sequence

from app.services.engine_client import EngineClient
from app.services.settings import SettingsStore
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

CPU = "cpu"
_GIVES_WAY = (ErrorCode.DEVICE, ErrorCode.BUDGET)  # a card that fails, or is too small or too full


def cards(devices: Sequence[m.DeviceInfo]) -> tuple[m.DeviceInfo, ...]:
    """Return the devices with memory of their own, in the driver's order."""
    return tuple(device for device in devices if not device.emulated)


def key_of(device: m.DeviceInfo) -> str:
    """Return what is remembered of a device: its own id, the name only where it has none."""
    return device.id or device.name


def card_index(names: Sequence[str]) -> int:
    """Return the driver's number of the first card in these names; 0 if there is none."""
    numbers = (name.removeprefix("cuda:") for name in names if name.startswith("cuda:"))
    return next((int(number) for number in numbers if number.isdigit()), 0)


def choose_device(devices: Sequence[m.DeviceInfo], wanted: str = "") -> str:
    """Return the name of the device to load on.

    `wanted` is `CPU`, the key of a card, or "" for the card with the most memory. Only cards that
    the engine's kernels are for are listed, so an integrated graphics unit never wins by the main
    memory that it shares (case M-20). A card that is not there any more counts as "".
    """
    if wanted == CPU:
        return CPU
    found = cards(devices)
    chosen = next((card for card in found if wanted and key_of(card) == wanted), None)
    largest = max(found, key=lambda card: card.total_bytes, default=None)
    device = chosen or largest
    return device.name if device is not None else CPU


class DevicePicker:
    """Picks the device of each load, and another one where a card cannot serve.

    A card that has served before is not given up: if it fails then, the person decides (M-18).
    """

    def __init__(self, client: EngineClient, settings: SettingsStore) -> None:
        self._client, self._settings = client, settings
        self._name = CPU
        self._served: set[str] = set()
        self._broken: set[str] = set()  # until the engine is another one
        self._tried: set[str] = set()  # for this load
        client.loaded.connect(self._on_loaded)
        client.stopped.connect(self._on_stopped)

    def pick(self) -> str:
        """Return the device of a new load."""
        self._tried.clear()
        return self._pick()

    def give_way(self, error: m.Error) -> tuple[str, str]:
        """Return another device for a load that was refused, and the sentence to show.

        Returns: two empty texts where the load shall stay refused.
        """
        name = self._name
        is_ours = not self._settings.value.device and name not in self._served
        if name == CPU or not is_ours or error.code not in _GIVES_WAY:
            return "", ""
        (self._broken if error.code is ErrorCode.DEVICE else self._tried).add(name)
        other = self._pick()
        return other, tr(
            "{device} cannot take the model, so it runs on {other}. {why}",
            device=self._title(name),
            other=self._title(other),
            why=error.message,
        )

    def _pick(self) -> str:
        out = self._broken | self._tried
        offered = [one for one in self._client.devices if one.name not in out]
        self._name = choose_device(offered, self._settings.value.device)
        return self._name

    def _title(self, name: str) -> str:
        if name == CPU:
            return tr("the CPU")
        return next((one.title for one in self._client.devices if one.name == name), name)

    def _on_loaded(self, event: m.Loaded) -> None:
        self._served.update(event.model.devices)

    def _on_stopped(self) -> None:
        self._broken.clear()
