"""Which device a model runs on: what the person chose, else a card, else the CPU.

Says in a sentence when a model goes elsewhere because a card cannot take it.
"""

from collections.abc import Sequence

from app.services.engine_client import EngineClient
from app.services.outcome import ProcessOutcome
from app.services.settings import SettingsStore
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

CPU = "cpu"
# A card that fails, that its libraries fail on, or that is too small or too full.
_GIVES_WAY = (ErrorCode.DEVICE, ErrorCode.INTERNAL, ErrorCode.BUDGET)


def cards(devices: Sequence[m.DeviceInfo]) -> tuple[m.DeviceInfo, ...]:
    """Return the devices with memory of their own, in the driver's order."""
    return tuple(device for device in devices if not device.emulated)


def key_of(device: m.DeviceInfo) -> str:
    """Return what is remembered of a device: its own id, the name only where it has none."""
    return device.id or device.name


def card_key(names: Sequence[str], devices: Sequence[m.DeviceInfo]) -> str:
    """Return the key of the first card in these names; "" if there is none."""
    keys = {card.name: key_of(card) for card in cards(devices)}
    return next((keys.get(name, name) for name in names if name.startswith("cuda")), "")


def choose_device(devices: Sequence[m.DeviceInfo], wanted: str = "") -> str:
    """Return the name of the device to load on.

    `wanted` is `CPU`, the key of a card, or "" for the card with the most memory. The engine lists
    cards of one maker with memory of their own, so an integrated graphics unit never wins by the
    main memory that it shares (case M-20). A card that is not there any more counts as "".
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

    A card that has served before is not given up: if it fails then, the person decides (M-18); for
    a model that is too large for it, the CPU still serves. One that takes the engine down with its
    first model is passed over, until an engine has ended in order.

    Attributes:
        name: the device of the last load.
    """

    def __init__(self, client: EngineClient, settings: SettingsStore) -> None:
        self._client, self._settings = client, settings
        self.name = CPU
        self._is_opening, self._notice = False, ""
        self._served: set[str] = set()
        self._broken: set[str] = set()  # until the engine is another one
        self._tried: set[str] = set()  # for this load
        client.loaded.connect(self._on_loaded)
        client.stopped.connect(self._on_stopped)

    def pick(self) -> str:
        """Return the device of a new load."""
        self._tried.clear()
        return self._pick()

    def take_notice(self) -> str:
        """Return, once, what is to be said of a card that is passed over; "" if nothing."""
        notice, self._notice = self._notice, ""
        return notice

    def give_way(self, error: m.Error) -> tuple[str, str]:
        """Return another device for a load that was refused, and the sentence to show.

        Returns: two empty texts where the load shall stay refused.
        """
        name, self._is_opening = self.name, False
        is_full = error.code is ErrorCode.BUDGET
        if not self._is_ours(name, is_full) or error.code not in _GIVES_WAY:
            return "", ""
        (self._tried if is_full else self._broken).add(name)
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
        self.name = choose_device(offered, self._settings.value.device)
        self._is_opening = True
        return self.name

    def _is_ours(self, name: str, is_full: bool) -> bool:
        """Whether another device may be taken without asking."""
        is_free = name != CPU and not self._settings.value.device
        return is_free and (is_full or name not in self._served)

    def _title(self, name: str) -> str:
        if name == CPU:
            return tr("the CPU")
        return next((one.title for one in self._client.devices if one.name == name), name)

    def _on_loaded(self, event: m.Loaded) -> None:
        self._is_opening = False
        self._served.update(event.model.devices)

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        took_it_down = outcome.unexpected and self._is_opening
        self._is_opening = False
        if took_it_down and self._is_ours(self.name, is_full=False):
            self._broken.add(self.name)
            self._notice = tr(
                "The engine stopped while {device} took the model, so another device takes it.",
                device=self._title(self.name),
            )
        elif not outcome.unexpected:
            self._broken.clear()
