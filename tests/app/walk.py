"""Walks over a window: what a person can use, what it is called, whether it can be seen."""

from collections.abc import Iterator

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QScrollBar,
    QTextEdit,
    QWidget,
)

from app.widgets.labels import Elide

CONTROLS = (
    QAbstractButton,
    QAbstractSpinBox,
    QAbstractSlider,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QAbstractItemView,
)


def settle() -> None:
    """Let layouts come to rest."""
    for _ in range(5):
        QApplication.processEvents()


def controls(root: QWidget) -> Iterator[QWidget]:
    """Yield what a person can use, without the inner parts of other controls."""
    for widget in root.findChildren(QWidget):
        if not isinstance(widget, CONTROLS) or isinstance(widget, QScrollBar):
            continue
        parent = widget.parentWidget()
        inner = isinstance(parent, QAbstractSpinBox | QComboBox | QAbstractItemView)
        popup = any(isinstance(p, QComboBox) for p in _parents(widget))
        if not inner and not popup:
            yield widget


def spoken_name(widget: QWidget) -> str:
    """Return the name that assistive tools hear."""
    face = QAccessible.queryAccessibleInterface(widget)
    return face.text(QAccessible.Text.Name) if face else ""


def described(widget: QWidget) -> str:
    """Return a widget in words, for messages of tests."""
    text = widget.text() if isinstance(widget, QLabel | QAbstractButton) else ""
    path = "/".join(type(p).__name__ for p in reversed([widget, *_parents(widget)][:4]))
    return f"{path} {text or widget.accessibleName()!r}"


def clipped(window: QWidget) -> list[str]:
    """Return labels and controls whose words are cut, or that lie outside what can be seen."""
    faults = []
    for widget in _leaves(window):
        if isinstance(widget, QLabel) and not isinstance(widget, Elide) and widget.text():
            if widget.wordWrap():
                short = widget.height() < widget.heightForWidth(widget.width())
            else:
                short = widget.width() < widget.sizeHint().width()
            if short:
                faults.append(f"cut: {described(widget)} {widget.size().toTuple()}")
        elif isinstance(widget, QAbstractButton) and widget.width() < widget.sizeHint().width():
            faults.append(f"cut: {described(widget)}")
        if not _in_sight(widget, window):
            faults.append(f"outside: {described(widget)} {_place(widget, window).getRect()}")
    return faults


def overlaps(window: QWidget) -> list[str]:
    """Return pairs of labels and controls that lie on each other."""
    leaves = [(w, _place(w, window)) for w in _leaves(window)]
    return [
        f"{described(a)} on {described(b)}"
        for index, (a, first) in enumerate(leaves)
        for b, second in leaves[index + 1 :]
        if first.intersects(second) and not a.isAncestorOf(b) and not b.isAncestorOf(a)
    ]


def unreachable(root: QWidget) -> list[str]:
    """Return enabled controls that Tab does not reach (radio groups count as one)."""
    seen: set[int] = set()
    widget = root.nextInFocusChain()
    while widget is not None and widget is not root:
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            seen.add(id(widget))
        widget = widget.nextInFocusChain()
    groups = [w.group() for w in controls(root) if isinstance(w, QAbstractButton) and w.group()]
    for group in groups:  # of an exclusive group Tab reaches one, the arrow keys the others
        if group.exclusive() and any(id(button) in seen for button in group.buttons()):
            seen |= {id(button) for button in group.buttons()}
    return [described(w) for w in controls(root) if w.isEnabled() and id(w) not in seen]


def _leaves(window: QWidget) -> Iterator[QWidget]:
    for widget in window.findChildren(QWidget):
        if isinstance(widget, QAbstractScrollArea | QScrollBar) or not widget.isVisible():
            continue
        if isinstance(widget, QLabel) and not widget.text():
            continue
        if isinstance(widget, (*CONTROLS, QLabel)):
            parent = widget.parentWidget()
            if not isinstance(parent, QAbstractSpinBox | QComboBox):
                yield widget


def _place(widget: QWidget, window: QWidget) -> QRect:
    return QRect(widget.mapTo(window, widget.rect().topLeft()), widget.size())


def _in_sight(widget: QWidget, window: QWidget) -> bool:
    """Whether a widget lies in the window; inside a scroll area its width must fit."""
    for parent in _parents(widget):
        if isinstance(parent, QScrollArea):
            inside = QRect(widget.mapTo(parent, widget.rect().topLeft()), widget.size())
            return inside.left() >= 0 and inside.right() <= parent.viewport().width()
    return window.rect().contains(_place(widget, window))


def _parents(widget: QWidget) -> Iterator[QWidget]:
    parent = widget.parentWidget()
    while parent is not None:
        yield parent
        parent = parent.parentWidget()
