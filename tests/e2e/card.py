"""The real engine's emulated device as a card of some GiB, and the driver that reports on it.

Slots and replies are the engine's own; only the bytes of its status are multiplied, so that the
driver's figures and auto-yield's rules can be those of a real card.
"""

import threading
from types import SimpleNamespace

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from tests.app.services.test_gpu_meter import fake_nvml

GIB = 1 << 30


class CardClient(QObject):
    """An engine client whose device is no emulation and `scale` times as large."""

    status = Signal(object)

    def __init__(self, client, scale):
        super().__init__()
        self._client, self._scale = client, scale
        client.status.connect(self._on_status)

    def __getattr__(self, name):
        return getattr(self._client, name)

    @property
    def last_status(self):
        last = self._client.last_status
        return last if last is None else self._as_card(last)

    def _on_status(self, event):
        self.status.emit(self._as_card(event))

    def _as_card(self, event):
        return replace(event, devices=tuple(map(self._enlarge, event.devices)))

    def _enlarge(self, status):
        times = self._scale
        pools = tuple(
            replace(p, used_bytes=p.used_bytes * times, unit_bytes=p.unit_bytes * times)
            for p in status.pools
        )
        info = replace(status.device, emulated=False)
        return replace(status, device=info, total_bytes=status.total_bytes * times, pools=pools)


class Driver:
    """A driver library whose free memory is what the engine and the others leave of the card.

    Read on the watching thread, changed on the test's.
    """

    def __init__(self, free_bytes):
        self._lock = threading.Lock()
        self._free = free_bytes  # with no slots
        self._ours = self._others = 0
        self.library = fake_nvml(nvmlDeviceGetMemoryInfo=self._memory)

    def hold(self, ours):
        """The engine holds so many bytes for experts."""
        with self._lock:
            self._ours = ours

    def take(self, others):
        """Other programs hold so many bytes."""
        with self._lock:
            self._others = others

    @property
    def free(self):
        with self._lock:
            return max(0, self._free - self._ours - self._others)

    def _memory(self, _gpu):
        return SimpleNamespace(free=self.free)
