"""From a device's name to the device. CUDA is imported only if a name asks for it (case E-13)."""

from collections.abc import Sequence

from kernels.device import host
from kernels.device.base import Device, DeviceFacts, DeviceLostError
from kernels.device.cpu import CpuDevice

KINDS = ("cpu", "cuda", "fake")


def open_device(name: str, budget_bytes: int | None = None) -> Device:
    """Open "cpu", "cuda" (= "cuda:0"), "cuda:N" or "fake".

    `budget_bytes` is the emulated memory of devices that have none of their own; ignored by CUDA.

    Raises: DeviceLostError if there is no such device.
    """
    kind, _, index = name.partition(":")
    if name == "cpu":
        return CpuDevice(budget_bytes)
    if name == "fake":
        from kernels.device.fake import FakeDevice  # a test device: nobody else pays for it

        return FakeDevice(budget_bytes)
    if kind == "cuda" and (not index or index.isdigit()):
        from kernels.device.cuda import open_cuda  # E-13: a CPU run never reaches this

        return open_cuda(int(index or 0))
    raise DeviceLostError(f'There is no device "{name}"; known kinds: {", ".join(KINDS)}.')


def list_devices(kinds: Sequence[str] = ("cpu",)) -> tuple[DeviceFacts, ...]:
    """Return the devices of the kinds asked for; "cuda" must be named to be touched."""
    found: list[DeviceFacts] = []
    if "cpu" in kinds:
        cpu = CpuDevice()
        memory = host.memory()
        free = min(cpu.total_bytes(), memory.free_bytes)
        found.append(DeviceFacts("cpu", cpu.title, cpu.total_bytes(), free, emulated=True))
    if "cuda" in kinds:
        from kernels.device.cuda import list_cuda  # E-13

        found.extend(list_cuda())
    return tuple(found)
