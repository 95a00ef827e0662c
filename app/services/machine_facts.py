"""What this machine is: graphics card, driver, link, memory, disk, power. Read once when asked.

Reads on its own thread, so that a driver that hangs stops nobody, and judges nothing.
"""

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import psutil
from PySide6.QtCore import QObject, Signal

from app.services.memory_modules import MemoryModules, read_modules
from app.services.nvml_card import card_handle
from app.services.power import on_battery


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU. Link generations and widths are of now and of the best both ends can do.

    A card that rests lowers its generation; the width stays. 0 and None = the driver does not say.
    """

    name: str
    driver: str
    vram_total: int = 0
    link_generation: int = 0
    link_width: int = 0
    best_generation: int = 0
    best_width: int = 0
    temperature: int | None = None
    is_throttled: bool | None = None
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One reading; sizes in bytes. `disk_free` -1 and None = not known; no `gpu` = no driver."""

    gpu: GpuFacts | None = None
    ram_total: int = 0
    ram_free: int = 0
    modules: MemoryModules = field(default_factory=MemoryModules)
    disk_free: int = -1
    on_battery: bool | None = None


class MachineReader(QObject):
    """Reads when asked.

    Signals:
        known(MachineFacts): delivered on the thread of the receiver.
    """

    known = Signal(object)

    def __init__(
        self,
        read: "Callable[[Path, str], MachineFacts] | None" = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._read = read or read_machine
        self._thread: threading.Thread | None = None
        self._card = ""

    def follow(self, card: str) -> None:
        """Read this card from the next reading on; the first one until then."""
        self._card = card

    def ask(self, folder: Path) -> None:
        """Read, unless a reading is under way; `folder` is on the disk that is meant."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(folder, self._card), name="machine-facts", daemon=True
            )
            self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """Wait for a reading under way; one that hangs is left behind."""
        if self._thread is not None:
            self._thread.join(wait_s)
            self._thread = None

    def _run(self, folder: Path, card: str) -> None:
        facts = self._read(folder, card)
        try:
            self.known.emit(facts)
        except RuntimeError:  # the app has ended meanwhile
            return


def read_machine(folder: Path, card: str = "") -> MachineFacts:
    """Return what this machine is now, with this card; see `card_handle`."""
    memory = psutil.virtual_memory()
    return MachineFacts(
        gpu=_read_gpu(card),
        ram_total=int(memory.total),
        ram_free=int(memory.available),
        modules=read_modules(),
        disk_free=_free_at(folder),
        on_battery=on_battery(),
    )


def _free_at(folder: Path) -> int:
    """Return the free bytes of the disk that a folder is, or will be, on."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return -1


def _read_gpu(card: str) -> GpuFacts | None:
    try:
        # Optional, and slow to load: only here, off the window's thread.
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return _facts(pynvml, card_handle(pynvml, card))
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _facts(nvml: ModuleType, gpu: object) -> GpuFacts:
    """Ask for each fact by itself: drivers of notebooks and virtual machines know only some."""

    def ask(name: str, *more: object) -> object:
        try:
            return getattr(nvml, name)(gpu, *more)
        except nvml.NVMLError:
            return None

    def number(name: str, *more: object) -> int:
        value = ask(name, *more)
        return value if isinstance(value, int) else 0

    memory, usage = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    hot = nvml.nvmlClocksThrottleReasonSwThermalSlowdown
    hot |= nvml.nvmlClocksThrottleReasonHwThermalSlowdown
    return GpuFacts(
        name=_text(ask("nvmlDeviceGetName")),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        vram_total=int(getattr(memory, "total", 0)),
        link_generation=number("nvmlDeviceGetCurrPcieLinkGeneration"),
        link_width=number("nvmlDeviceGetCurrPcieLinkWidth"),
        best_generation=number("nvmlDeviceGetMaxPcieLinkGeneration"),
        best_width=number("nvmlDeviceGetMaxPcieLinkWidth"),
        temperature=number("nvmlDeviceGetTemperature", 0) or None,
        is_throttled=bool(reasons & hot) if isinstance(reasons, int) else None,
        busy_share=usage.gpu / 100 if usage is not None else None,  # type: ignore[attr-defined]
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
