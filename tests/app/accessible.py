"""One walk for the memory pages: whatever can take the focus has a name."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractScrollArea, QWidget


def nameless(page: QWidget) -> list[str]:
    """Return the visible widgets that take the focus and have no accessible name."""
    return [
        type(widget).__name__
        for widget in page.findChildren(QWidget)
        if widget.isVisibleTo(page)
        and widget.focusPolicy() != Qt.FocusPolicy.NoFocus
        and not isinstance(widget, QAbstractScrollArea)
        and not widget.accessibleName()
        and not widget.parentWidget().accessibleName()
    ]
