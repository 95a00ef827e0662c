"""A client that answers resizes when told, and a watch that tells scripted readings."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.services.presence import Presence
from engine.protocol import messages as m
from tests.app.performance.stubs import BIG, StubClient, big_status, tiny_status

GIB = 1 << 30


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Watch(QObject):
    """Readings by script, instead of the watching thread."""

    seen = Signal(object)

    def __init__(self):
        super().__init__()
        self.apps = ()

    def set_apps(self, apps):
        self.apps = apps


class Engine(StubClient):
    """One model on a device of 32 GiB, or an emulated one; other programs come and go."""

    def __init__(self, emulated=False, slots=1024):
        super().__init__()
        self.emulated, self.slots, self.kv = emulated, slots, 2048 if emulated else 512 * 1024
        self.open = self.open_ids = {}
        self.status_requests = 0

    def resize(self, kv_tokens=None, expert_slots=None, preview=False, loan=False):
        resize_id = super().resize(kv_tokens, expert_slots, preview, loan)
        self.open[resize_id] = (kv_tokens, expert_slots)
        return resize_id

    def request_status(self):
        self.status_requests += 1
        return "status-1"

    def say_status(self):
        make = tiny_status if self.emulated else big_status
        self.tell_status(make(self.kv, self.slots))

    def load(self):
        self.say_status()
        self.loaded.emit(m.Loaded(id="load-1", model=self.model))

    def answer(self):
        """Apply the oldest open resize."""
        resize_id, (kv, slots) = next(iter(self.open.items()))
        del self.open[resize_id]
        self.kv = self.kv if kv is None else kv
        self.slots = self.slots if slots is None else slots
        self.resize_applied.emit(
            m.ResizeApplied(
                id=resize_id,
                kv_tokens=self.kv,
                expert_slots=self.slots,
                kv_bytes=0,
                expert_bytes=0,
                pause_ms=1.0,
            )
        )
        self.say_status()

    def refuse(self, reason="The device refused the memory."):
        """Refuse the oldest open resize."""
        resize_id = next(iter(self.open))
        del self.open[resize_id]
        self.resize_refused.emit(
            m.ResizeRefused(id=resize_id, reason=reason, kv_tokens=self.kv, expert_slots=self.slots)
        )


class World:
    """Engine, watch, clock, and the other programs."""

    def __init__(self, emulated=False, slots=1024):
        self.engine, self.watch, self.clock = Engine(emulated, slots), Watch(), Clock()
        self.free_at = 0 if emulated else 3 * GIB + slots * BIG.record_bytes  # with no slots
        self.others = 0
        self.now = Presence(0.0)

    def tick(self, seconds=1.0, answer=True, **changes):
        """Pass some time and tell a reading; the engine answers at once unless told not to."""
        self.clock.now += seconds
        free = self.free_at - self.engine.slots * BIG.record_bytes - self.others
        self.now = replace(
            self.now,
            sampled_s=self.clock.now,
            free_bytes=None if self.engine.emulated else max(0, free),
            **changes,
        )
        self.watch.seen.emit(self.now)
        self.clock.now += 0.01
        while answer and self.engine.open:
            self.engine.answer()

    def run(self, ticks):
        for _ in range(ticks):
            self.tick()
