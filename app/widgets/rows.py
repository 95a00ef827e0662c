"""Lists of rows that come and go while what stays keeps its widget, and with it the focus.

Knows no page: the keys are the caller's, and so is making a row. Used by the models pages.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from PySide6.QtWidgets import QBoxLayout, QWidget

from app.widgets import Line

K = TypeVar("K")
W = TypeVar("W", bound=QWidget)


def arrange_rows(
    layout: QBoxLayout, shown: dict[K, W], wanted: Sequence[K], make: Callable[[K], W]
) -> dict[K, W]:
    """Put rows in the wanted order with lines between; returns what is shown now."""
    while (item := layout.takeAt(0)) is not None:
        widget = item.widget()
        if isinstance(widget, Line):
            widget.hide()
            widget.deleteLater()
    for key in [key for key in shown if key not in wanted]:
        row = shown.pop(key)
        row.hide()  # it lies in no layout any more
        row.deleteLater()
    rows: dict[K, W] = {}
    for key in wanted:
        if rows:
            layout.addWidget(Line())
        rows[key] = shown.get(key) or make(key)
        layout.addWidget(rows[key])
    return rows
