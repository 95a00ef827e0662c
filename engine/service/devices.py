"""Which devices there are, found without torch and without waking CUDA (case E-13).

Memory of NVIDIA cards is read through NVML, which starts no context. Called by the service.
"""

from engine.protocol.messages import DeviceInfo, DeviceStatus, Pool
from engine.system import cpu_title, host_memory
from kernels.device.cards import list_cards


def find_devices() -> tuple[DeviceInfo, ...]:
    """Return the CPU and every NVIDIA card, cards as CUDA will number them."""
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
    return [
        DeviceInfo(
            name=f"cuda:{card.number}",
            id=card.identity.uuid,
            title=card.title,
            total_bytes=card.total_bytes,
            free_bytes=card.free_bytes,
        )
        for card in list_cards()
    ]
