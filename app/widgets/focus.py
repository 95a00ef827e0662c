"""Focus by keyboard: the ring, as a mixin for painted controls, and where Tab stops."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QWidget

_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)
if TYPE_CHECKING:
    _Base = QWidget
else:
    _Base = object


class FocusRing(_Base):
    """Remembers whether focus came by keyboard; put it before the Qt class."""

    ring = False

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the ring if the keyboard brought the focus."""
        self.ring = event.reason() in _KEYBOARD
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Hide the ring."""
        self.ring = False
        super().focusOutEvent(event)
        self.update()


def tab_stops(widget: QWidget) -> Iterator[QWidget]:
    """Yield the parts of a widget that Tab goes to, from the first made to the last.

    Looks at each part's own children: `findChildren` would keep every part's wrapper until
    `widget` itself goes, and the widgets of messages are used again and again [M].
    """
    for child in widget.children():
        if isinstance(child, QWidget):
            if child.focusPolicy() & Qt.FocusPolicy.TabFocus:
                yield child
            yield from tab_stops(child)
