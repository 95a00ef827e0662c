"""What the app writes down about itself."""

import logging
import os
import signal
import sys
import threading

import pytest
from PySide6.QtCore import QTimer, qWarning

from app.services.diagnostics import Diagnostics
from app.services.display import display_problem
from app.services.interrupts import Interrupts
from app.services.log_ring import LogRing
from app.services.settings import Environment
from engine.protocol.places import data_root


@pytest.fixture
def diagnostics(qtbot, tmp_path):
    ring = LogRing()
    told = []
    made = Diagnostics(ring, tmp_path, told.append)
    made.ring, made.told = ring, told
    yield made
    made.close()


def lines(diagnostics):
    return [(line.level, line.text) for line in diagnostics.ring.lines()]


@pytest.mark.qt_no_exception_capture
def test_exception_in_a_slot_then_logged_and_told(diagnostics, tmp_path):
    """The app goes on; ring, file and window know."""
    try:
        raise KeyError("lost")
    except KeyError as problem:
        sys.excepthook(KeyError, problem, problem.__traceback__)
    assert diagnostics.num_errors == 1
    assert diagnostics.told == ["KeyError: 'lost'"]
    assert "test_exception_in_a_slot" in lines(diagnostics)[0][1]
    assert "KeyError" in (tmp_path / "app.log").read_text()


def test_exception_in_a_thread_then_logged(diagnostics):
    """Worker threads do not die unheard."""
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    assert diagnostics.num_errors == 1
    assert "ZeroDivisionError" in lines(diagnostics)[0][1]


@pytest.mark.qt_no_exception_capture
def test_qt_message_then_in_the_log(diagnostics):
    """Qt's own warnings land in the same place."""
    qWarning("something about a widget")
    qWarning("This plugin does not support propagateSizeHints()")
    assert lines(diagnostics) == [("warning", "Qt: something about a widget")]


def test_close_then_hooks_are_back(qtbot, tmp_path):
    """Nothing of it stays."""
    before = (sys.excepthook, threading.excepthook, len(logging.getLogger("app").handlers))
    Diagnostics(LogRing(), tmp_path).close()
    after = (sys.excepthook, threading.excepthook, len(logging.getLogger("app").handlers))
    assert after == before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interrupt_then_a_qt_signal(qtbot):
    """Ctrl+C ends the app in order, though Python sleeps inside Qt."""
    before = signal.getsignal(signal.SIGINT)  # ignored, where a shell runs this behind its back
    interrupts = Interrupts()
    with qtbot.waitSignal(interrupts.asked, timeout=2_000):
        QTimer.singleShot(0, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupts.close()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can lack a display")
def test_no_display_then_a_sentence_that_names_it(tmp_path):
    """Not a crash of Qt, but what is missing."""
    root = data_root(str(tmp_path))
    said = display_problem(Environment(root, "", has_display=False, needs_x11=False))
    assert "DISPLAY" in said
    assert display_problem(Environment(root, "", has_display=True, needs_x11=False)) == ""
