"""NVIDIA cards as CUDA numbers them, read from the driver's own library without waking CUDA.

NVML lists every card by its place on the bus; CUDA hides and reorders them by CUDA_VISIBLE_DEVICES.
A number means a card only together with its identity. Knows no torch. Source: NVML API; CUDA
programming guide, environment variables.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pynvml

ORDER_VARIABLE, BUS_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_CARD, _INSTANCE = "GPU-", "MIG-"


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a card from all others; "" = not known.

    Attributes:
        uuid: as NVML writes it, e.g. "GPU-8f6c...".
        bus: domain, bus and device in lower-case hex, e.g. "0000:01:00".
    """

    uuid: str = ""
    bus: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """A card that CUDA will offer as number `number`."""

    number: int
    identity: Identity
    title: str
    total_bytes: int
    free_bytes: int


def bus_of(domain: int, bus: int, device: int) -> str:
    """Return a place on the bus as `Identity.bus` has it."""
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def list_cards() -> tuple[Card, ...]:
    """Return the cards in CUDA's order; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # an ordinary machine without such a card
        return ()
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        visible = _visible([_uuid(handle) for handle in handles])
        return tuple(_card(number, one) for number, one in enumerate(_handles(visible, handles)))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def choose_visible(uuids: Sequence[str], wish: str | None) -> tuple[int | str, ...]:
    """Return the cards that CUDA shows, in its order: places in `uuids`, or names of MIG instances.

    `wish` is CUDA_VISIBLE_DEVICES: numbers in the order of the bus, ids or beginnings of them. The
    first part that names no card ends the list; one that is named twice makes it empty.
    """
    if wish is None:
        return tuple(range(len(uuids)))
    chosen: list[int | str] = []
    for part in wish.split(","):
        one = _meant(part.strip(), uuids)
        if one is None:
            break
        if one in chosen:
            return ()
        chosen.append(one)
    return tuple(chosen)


def _meant(part: str, uuids: Sequence[str]) -> int | str | None:
    if part.startswith(_INSTANCE):
        return part
    if part.isascii() and part.isdigit():
        return int(part) if int(part) < len(uuids) else None
    matches = [place for place, uuid in enumerate(uuids) if uuid.startswith(part)]
    return matches[0] if part.startswith(_CARD) and len(matches) == 1 else None


def find_number(wanted: int, listed: Sequence[Identity], present: Sequence[Identity]) -> int | None:
    """Return the number under which CUDA has the card that is listed as `wanted`; None if it hides.

    `present` are CUDA's cards. The id counts before the bus, which instances of a card share, so
    that another instance is never taken for one. A card that cannot be told from the others keeps
    its number.
    """
    if wanted >= len(listed):
        return wanted
    card = listed[wanted]
    same_id = [n for n, one in enumerate(present) if card.uuid and _bare(one) == _bare(card)]
    is_instance = card.uuid.startswith(_INSTANCE)
    same_bus = [
        n
        for n, one in enumerate(present)
        if card.bus and one.bus == card.bus and not (is_instance and one.uuid)
    ]
    matches = same_id or same_bus
    if matches:
        return wanted if wanted in matches else matches[0]
    can_tell = bool(card.bus) and all(one.bus for one in present)
    return None if can_tell else wanted


def _visible(uuids: Sequence[str]) -> tuple[int | str, ...]:
    """Apply the environment; numbers in another order than the bus's cannot be told from here."""
    wish = os.environ.get(VISIBLE_VARIABLE)
    in_order = os.environ.get(ORDER_VARIABLE) == BUS_ORDER
    has_numbers = wish is not None and wish.strip()[:1].isdigit()
    return choose_visible(uuids, None if has_numbers and not in_order else wish)


def _handles(visible: Sequence[int | str], handles: Sequence[object]) -> Iterator[object]:
    """Give a handle for each card; an instance that is not there ends the list."""
    for one in visible:
        if isinstance(one, int):
            yield handles[one]
            continue
        try:
            yield pynvml.nvmlDeviceGetHandleByUUID(one)
        except pynvml.NVMLError:
            return


def _card(number: int, handle: object) -> Card:
    title = pynvml.nvmlDeviceGetName(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    identity = Identity(_uuid(handle), _bus(handle))
    return Card(number, identity, _text(title), int(memory.total), int(memory.free))


def _uuid(handle: object) -> str:
    try:
        return _text(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return ""


def _bus(handle: object) -> str:
    try:
        place = pynvml.nvmlDeviceGetPciInfo(handle)
    except pynvml.NVMLError:
        return ""
    return bus_of(place.domain, place.bus, place.device)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bare(card: Identity) -> str:
    """Return its id without the kind before it, which CUDA leaves out."""
    return card.uuid.removeprefix(_CARD).removeprefix(_INSTANCE).lower()
