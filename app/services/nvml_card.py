"""A card in the driver's own library, by what the engine told of it. Knows no thread."""

from types import ModuleType


def card_handle(nvml: ModuleType, key: str = "") -> object:
    """Return the driver's handle of a card; raises NVMLError if it is not there.

    `key` is its own id, or the engine's name for it where it has none, or "" for the first card.
    The engine's numbers are CUDA's, which hides and reorders cards where the driver does not.
    """
    if key and not key.startswith("cuda"):
        return nvml.nvmlDeviceGetHandleByUUID(key)
    number = key.removeprefix("cuda:")
    return nvml.nvmlDeviceGetHandleByIndex(int(number) if number.isdigit() else 0)
