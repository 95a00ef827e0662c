"""Which devices there are, found without torch and without waking CUDA (case E-13).

Memory of NVIDIA cards is read through NVML, which starts no context. Called by the service.
"""

import pynvml

from engine.protocol.messages import DeviceInfo, DeviceStatus, Pool
from engine.system import cpu_title, host_memory


def find_devices() -> tuple[DeviceInfo, ...]:
    """Return the CPU and every NVIDIA card, cards first by bus id as CUDA will number them."""
    total, available = host_memory()
    cpu = DeviceInfo(
        name="cpu", title=cpu_title(), total_bytes=total, free_bytes=available, emulated=True
    )
    return (cpu, *_cards())


def bare_status(devices: tuple[DeviceInfo, ...]) -> tuple[DeviceStatus, ...]:
    """Return devices without a model of ours: what is free, and what others hold."""
    return tuple(
        DeviceStatus(
            device=device,
            total_bytes=device.total_bytes,
            pools=(
                Pool(name="other", used_bytes=device.total_bytes - device.free_bytes),
                Pool(name="free", used_bytes=device.free_bytes),
            ),
        )
        for device in devices
    )


def _cards() -> list[DeviceInfo]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver: an ordinary machine without such a card
        return []
    try:
        return [_card(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _card(index: int) -> DeviceInfo:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    title = pynvml.nvmlDeviceGetName(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceInfo(
        name=f"cuda:{index}",
        id=_id(handle),
        title=title.decode() if isinstance(title, bytes) else str(title),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
    )


def _id(handle: object) -> str:
    try:
        found = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError:
        return ""
    return found.decode() if isinstance(found, bytes) else str(found)
