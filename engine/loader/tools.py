"""What a device offers for captured steps, or what it lacks. Called by `engine.loader.open`."""

from collections.abc import Callable

from engine.settings import EngineSettings
from kernels.cuda import cuda_obstacle
from kernels.cuda.driver import compute_class
from kernels.cuda.tools import Tools
from kernels.device.base import LOST_ERRORS, Device

LEAST_CLASS = 8  # the kernels reduce over a warp in one instruction

OpenTools = Callable[[Device | None, EngineSettings], tuple[Tools | None, str]]
"""A device (None = it has no memory of its own) to its tools, or None and half a sentence."""


def card_tools(device: Device | None, settings: EngineSettings) -> tuple[Tools | None, str]:
    """Return what captured steps need of a device, or what it lacks for them."""
    if device is None:
        return None, "there is no card"
    if not device.keeps_addresses:
        return None, "the card's memory cannot grow in place"
    try:
        return _ask_card(device, settings)
    except LOST_ERRORS:
        raise
    except Exception as problem:  # noqa: BLE001  another way serves without these tools (E-06)
        return None, f"the card's tools failed: {problem}"


def _ask_card(device: Device, settings: EngineSettings) -> tuple[Tools | None, str]:
    if obstacle := cuda_obstacle():
        return None, obstacle
    major, minor = compute_class(device.torch_device.index or 0)
    if major < LEAST_CLASS:
        return None, f"the card's compute class {major}.{minor} is below {LEAST_CLASS}.0"
    from kernels.cuda.card_tools import CudaTools  # asks the driver; a CPU never gets here (E-13)

    return CudaTools(device.torch_device, settings.home.caches / "kernels"), ""
