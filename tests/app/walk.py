"""Walks over a window: what a person can use, what it is called, whether it can be seen."""

from collections.abc import Iterator

import numpy as np
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QImage, QPainter, QPalette, QRegion
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
    QScrollBar,
    QTextEdit,
    QWidget,
)

from app.theme import area, color, text_width
from app.widgets.chips import Chip
from app.widgets.labels import Elide
from app.wording import Phrase
from tests.app.theme.colour_math import contrast

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
LEAST = 4.5  # contrast of text


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
    leaves = [(w, _seen(w, window)) for w in _leaves(window)]
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


def picture(window: QWidget, ratio: int) -> QImage:
    """Draw a window with `ratio` device px per px, as on a screen at 100 or 200 %."""
    image = QImage(window.size() * ratio, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(color("canvas"))
    p = QPainter(image)
    flags = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground
    window.render(p, QPoint(), QRegion(), flags)
    p.end()
    return image


def pale(window: QWidget, image: QImage) -> list[str]:
    """Return labels whose ink is too close to what is drawn behind them."""
    faults = []
    ratio = round(image.devicePixelRatio())
    for label in window.findChildren(QLabel):
        if not label.isVisible() or not label.text() or not in_view(label, window):
            continue
        rect = label.rect()
        corners = (rect.topLeft(), rect.topRight(), rect.bottomLeft(), rect.bottomRight())
        seen = [image.pixelColor(label.mapTo(window, at) * ratio).name() for at in corners]
        ground = max(seen, key=seen.count)  # a letter may reach into one of them
        ink = label.palette().color(QPalette.ColorRole.WindowText)
        if isinstance(label, Elide):
            ink = color(label._role)
        if contrast(ink.name(), ground) < LEAST:
            faults.append(f"{ink.name()} on {ground}: {described(label)}")
    return faults


def faint(window: QWidget, image: QImage) -> list[str]:
    """Return controls and chips with words of which no pixel stands out from the ground.

    Their ink is painted, not told; so the picture is asked: the commonest colour is the ground,
    and the pixel farthest from it is the middle of a stroke.
    """
    faults = []
    ratio = round(image.devicePixelRatio())
    pixels = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.width())
    for widget in window.findChildren(QWidget):
        has_words = isinstance(widget, Chip) or (
            isinstance(widget, QAbstractButton) and bool(widget.text())
        )
        if not has_words or not widget.isVisible() or not in_view(widget, window):
            continue
        at = widget.mapTo(window, QPoint(0, 0)) * ratio
        size = widget.size() * ratio
        part = pixels[at.y() : at.y() + size.height(), at.x() : at.x() + size.width()]
        colours, counts = np.unique(part & 0xFFFFFF, return_counts=True)
        ground = f"#{int(colours[counts.argmax()]):06x}"
        best = max(contrast(f"#{int(colour):06x}", ground) for colour in colours)
        if best < LEAST:
            faults.append(f"faint, {best:.1f} on {ground}: {described(widget)}")
    return faults


def shortened(window: QWidget) -> list[str]:
    """Return lines of our own words that end in an ellipsis; names and paths may."""
    faults = []
    for label in window.findChildren(Elide):
        words = label._text
        if not isinstance(words, Phrase) or words.values or not label.isVisible():
            continue
        if text_width(label.text(), *label._face) > area(label).width():
            faults.append(f"shortened: {described(label)}")
    return faults


def in_view(widget: QWidget, window: QWidget) -> bool:
    """Whether the whole widget is on screen, not scrolled away."""
    return _seen(widget, window).size() == widget.size()


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


def _seen(widget: QWidget, window: QWidget) -> QRect:
    """The part of a widget that is on screen; what scrolls is cut by its viewport."""
    rect = _place(widget, window).intersected(window.rect())
    for area_ in _scrolled(widget, window):
        rect = rect.intersected(_place(area_.viewport(), window))
    return rect


def _in_sight(widget: QWidget, window: QWidget) -> bool:
    """Whether a widget lies in the window; inside a scroll area its width must fit."""
    for area_ in _scrolled(widget, window):
        view = area_.viewport()
        inside = QRect(widget.mapTo(view, widget.rect().topLeft()), widget.size())
        return inside.left() >= 0 and inside.right() <= view.width()
    return window.rect().contains(_place(widget, window))


def _scrolled(widget: QWidget, window: QWidget) -> Iterator[QAbstractScrollArea]:
    """Yield the scroll areas that a widget scrolls in, the inner ones first."""
    for parent in _parents(widget):
        if parent is window:
            return
        if isinstance(parent, QAbstractScrollArea) and parent.viewport().isAncestorOf(widget):
            yield parent


def _parents(widget: QWidget) -> Iterator[QWidget]:
    parent = widget.parentWidget()
    while parent is not None:
        yield parent
        parent = parent.parentWidget()
