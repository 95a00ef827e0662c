"""What runs beside us, once a second: free device memory, a full-screen app, a listed program.

Reads on its own thread and decides nothing. Memory comes from the driver as one figure for the
whole device: Windows does not tell it by program (WDDM). Without an NVIDIA driver it is unknown.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import psutil
from PySide6.QtCore import QObject, Signal

from app.services.full_screen import FullScreen, open_full_screen
from app.services.nvml_card import card_handle

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Presence:
    """One reading.

    Attributes:
        sampled_s: `time.monotonic` before anything was read.
        free_bytes: of the card in use; None = the driver does not say, or there is none.
        full_screen: an app fills the screen; None = the desktop does not say.
        app: name of the first listed program that runs, "" = none.
    """

    sampled_s: float
    free_bytes: int | None = None
    full_screen: bool | None = None
    app: str = ""


class Probe(Protocol):
    """Reads; made, used and closed on the watching thread."""

    def read(self, apps: tuple[str, ...]) -> Presence:
        """Return what is so now; `apps` are the listed names."""

    def close(self) -> None:
        """Let go of driver and desktop."""


class PresenceWatch(QObject):
    """The watching thread.

    Signals:
        seen(Presence): each second, delivered on the thread of the receiver.
    """

    seen = Signal(object)

    def __init__(
        self,
        make_probe: "Callable[[], Probe] | None" = None,
        interval_s: float = INTERVAL_S,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._make_probe: Callable[[], Probe] = make_probe or self._system_probe
        self._card = ""
        self._interval_s = interval_s
        self._apps: tuple[str, ...] = ()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, card: str) -> None:
        """Watch the memory of this card from the next reading on; of the first one until then."""
        self._card = card

    def _system_probe(self) -> "SystemProbe":
        return SystemProbe(lambda: self._card)

    def set_apps(self, apps: tuple[str, ...]) -> None:
        """Look for these programs from the next reading on."""
        self._apps = apps

    def start(self) -> None:
        """Begin to watch; does nothing if it does already."""
        if self._thread is None:
            self._stop = threading.Event()  # a thread left behind keeps its own
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="presence", daemon=True
            )
            self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """End the thread; a driver that hangs is left behind after `wait_s`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)
            self._thread = None

    def _run(self, stop: threading.Event) -> None:
        probe = self._make_probe()
        try:
            while not stop.is_set():
                presence = probe.read(self._apps)
                if stop.is_set():
                    return
                try:
                    self.seen.emit(presence)
                except RuntimeError:  # the app has ended meanwhile
                    return
                stop.wait(self._interval_s)
        finally:
            probe.close()


class SystemProbe:
    """This machine; `card` tells whose memory counts."""

    def __init__(self, card: Callable[[], str] = str) -> None:
        self._card = card
        self._memory = _DeviceMemory()
        self._screen: FullScreen = open_full_screen()

    def read(self, apps: tuple[str, ...]) -> Presence:
        """Return what is so now."""
        sampled_s = time.monotonic()
        return Presence(
            sampled_s, self._memory.free_bytes(self._card()), self._screen.read(), running_app(apps)
        )

    def close(self) -> None:
        """Let go of driver and desktop."""
        self._memory.close()
        self._screen.close()


def program_key(name: str) -> str:
    """Return a program's name as it is compared: without case and ".exe"."""
    return name.strip().casefold().removesuffix(".exe")


def running_app(apps: tuple[str, ...]) -> str:
    """Return the first of these programs that runs, as the person wrote it; "" = none does."""
    if not any(map(program_key, apps)):
        return ""
    names = (process.info["name"] or "" for process in psutil.process_iter(["name"]))
    running = {program_key(name) for name in names} - {""}
    return next((app for app in apps if _spellings(program_key(app)) & running), "")


def _spellings(key: str) -> set[str]:
    """Return how a name may be listed: Linux cuts all after 15 bytes, also in ".exe" of Wine."""
    cut = {name.encode()[:15].decode(errors="ignore") for name in (key, f"{key}.exe")}
    return {key, *(program_key(name) for name in cut)} if key else set()


class _DeviceMemory:
    """Free memory of a card."""

    def __init__(self) -> None:
        self._nvml: ModuleType | None = None
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

    def free_bytes(self, card: str) -> int | None:
        """Return it, None = not known now."""
        if self._nvml is None:
            return None
        try:
            gpu = card_handle(self._nvml, card)
            return int(self._nvml.nvmlDeviceGetMemoryInfo(gpu).free)
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return
