"""Where Tab stops."""

import gc
from weakref import ref

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.widgets.focus import tab_stops

pytestmark = pytest.mark.usefixtures("looks")


def test_tab_stops_then_controls_of_all_depths_in_the_order_of_their_making(qtbot: QtBot) -> None:
    """Labels and bars are left out."""
    root = QWidget()
    qtbot.addWidget(root)
    inner, text, last = QWidget(root), QPlainTextEdit(root), QPushButton("b", root)
    first = QPushButton("a", inner)
    QLabel("word", inner)
    assert list(tab_stops(root)) == [first, text, last]


def test_tab_stops_when_a_part_goes_then_nothing_of_it_is_kept(qtbot: QtBot) -> None:
    """A message is used again with other blocks: what Qt made inside the old ones is let go."""
    root = QWidget()
    qtbot.addWidget(root)
    column = QVBoxLayout(root)
    text = QPlainTextEdit()
    column.addWidget(text)
    stops = list(tab_stops(root))
    assert stops == [text]
    inside = [ref(child) for child in text.children() if isinstance(child, QWidget)]
    assert inside
    text.deleteLater()
    del text, stops
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()
    assert [child() for child in inside if child() is not None] == []
