"""The focus ring for keyboard use only, as a mixin for painted controls."""

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
