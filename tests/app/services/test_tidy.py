"""Cycles with Qt objects are collected on the window's thread only."""

import gc
import threading
import weakref

import pytest
from PySide6.QtCore import QObject

from app.services.tidy import Collector


class Ring(QObject):
    """A cycle, as signals and timers make them."""

    def __init__(self):
        super().__init__()
        self.me = self
        self.thread = []
        weakref.finalize(self, Ring.died.append, None)

    died = []


@pytest.fixture
def collector(qtbot):
    made = Collector(interval_ms=20)
    yield made
    made.close()
    gc.disable()  # as the session's fixture left it


def test_worker_allocates_then_nothing_is_collected_there(qtbot, collector):
    """A thread that makes a thousand cycles collects none of them; the timer does."""
    where = []

    def note(phase, _info):
        if phase == "start":
            where.append(threading.current_thread().name)

    gc.callbacks.append(note)
    try:
        thread = threading.Thread(target=lambda: [[].append([]) for _ in range(200_000)])
        thread.start()
        thread.join()
        assert where == []
        Ring.died.clear()
        for _ in range(2_000):
            Ring()
        qtbot.waitUntil(lambda: len(Ring.died) == 2_000, timeout=5_000)
    finally:
        gc.callbacks.remove(note)
    assert set(where) == {threading.main_thread().name}


def test_close_then_the_interpreter_collects_again(qtbot):
    """Outside of the app nothing is changed."""
    Collector().close()
    assert gc.isenabled()
    gc.disable()  # as the session's fixture left it
