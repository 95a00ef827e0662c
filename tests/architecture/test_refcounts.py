"""Guards the pin of PySide6: ordinary Qt calls must not give references to None and True away.

PySide6 6.12.0 on CPython 3.11 does, and aborts after some seconds. CPython 3.12 made both immortal.
"""

import sys

import pytest
from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

CALLS = 400
SLACK = 200  # a faulty build loses one or more per call; the rest of the process a few

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="None and True are immortal from CPython 3.12 on"
)


class _Sender(QObject):
    told = Signal(bool)


class _Painted(QWidget):
    """A widget painted by Python code."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Returns None to Qt."""


def counts() -> tuple[int, int]:
    """References to None and True."""
    return sys.getrefcount(None), sys.getrefcount(True)


def test_calls_that_return_none_then_no_reference_is_given_away(qtbot: QtBot) -> None:
    """setText, setEnabled, emit."""
    label, sender = QLabel(), _Sender()
    qtbot.addWidget(label)
    sender.told.connect(label.setEnabled)
    before = counts()
    for number in range(CALLS):
        label.setText(str(number))
        label.setEnabled(True)
        sender.told.emit(True)
    after = counts()
    assert after[0] > before[0] - SLACK
    assert after[1] > before[1] - SLACK


def test_calls_from_qt_into_python_then_no_reference_is_given_away(qtbot: QtBot) -> None:
    """Paint events and timers call our methods, which return None."""
    widget, ticks = _Painted(), []
    qtbot.addWidget(widget)
    widget.show()
    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(None))
    before = counts()
    for _ in range(CALLS):
        widget.repaint()
    timer.start(0)
    qtbot.waitUntil(lambda: len(ticks) >= CALLS)
    timer.stop()
    ticks.clear()
    after = counts()
    assert after[0] > before[0] - SLACK
    assert after[1] > before[1] - SLACK
