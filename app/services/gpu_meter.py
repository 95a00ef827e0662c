"""Memory and temperature of GPU and machine, twice a second, from the driver, not the engine.

So the meters go on after a crash. Reads on its own thread; without an NVIDIA driver only RAM.
"""

import threading
from dataclasses import dataclass
from types import ModuleType

import psutil
from PySide6.QtCore import QObject, Signal

from app.services.nvml_card import card_handle

INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class MeterReading:
    """One reading; bytes and degrees Celsius. None = no such device, or the driver does not say."""

    ram_used: int
    ram_total: int
    gpu_name: str | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    temperature: int | None = None


class GpuMeter(QObject):
    """The reader thread.

    Signals:
        reading(MeterReading): delivered on the thread of the receiver.
    """

    reading = Signal(object)

    def __init__(self, interval_s: float = INTERVAL_S, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._card = ""

    def follow(self, card: str) -> None:
        """Read this card from now on; the first one until then. See `card_handle`."""
        self._card = card

    def start(self) -> None:
        """Begin to read; does nothing if it does already."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="gpu-meter", daemon=True)
            self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """End the thread; a driver that hangs is left behind after `wait_s`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)
            self._thread = None

    def _run(self) -> None:
        driver = _Driver()
        try:
            while not self._stop.is_set():
                reading = driver.read(self._card)
                if self._stop.is_set():
                    return
                try:
                    self.reading.emit(reading)
                except RuntimeError:  # the app has ended meanwhile
                    return
                self._stop.wait(self._interval_s)
        finally:
            driver.close()


class _Driver:
    """The card that is read, if there is one."""

    def __init__(self) -> None:
        self._nvml: ModuleType | None = None
        self._gpu: object = None
        self._card: str | None = None
        self._name: str | None = None
        try:
            # Optional, and slow to load: only here, off the window's thread.
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml

    def read(self, card: str = "") -> MeterReading:
        """Return what can be read now of this card."""
        memory = psutil.virtual_memory()
        used, total = int(memory.total - memory.available), int(memory.total)
        if card != self._card:
            self._open(card)
        if self._nvml is None or self._gpu is None:
            return MeterReading(used, total)
        try:
            vram = self._nvml.nvmlDeviceGetMemoryInfo(self._gpu)
        except self._nvml.NVMLError:
            return MeterReading(used, total, self._name)
        try:
            heat: int | None = int(self._nvml.nvmlDeviceGetTemperature(self._gpu, 0))
        except self._nvml.NVMLError:
            heat = None
        return MeterReading(used, total, self._name, int(vram.used), int(vram.total), heat)

    def _open(self, card: str) -> None:
        self._card, self._gpu, self._name = card, None, None
        if self._nvml is None:
            return
        try:
            gpu = card_handle(self._nvml, card)
            name = self._nvml.nvmlDeviceGetName(gpu)
        except self._nvml.NVMLError:
            return
        self._gpu = gpu
        self._name = name.decode() if isinstance(name, bytes) else str(name)

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return
