"""Layout helpers: rows, columns, holders, fixed sizes and scroll areas that follow the zoom.

Items of `hbox` and `vbox`: a widget, a layout, `None` = stretch, a number = space, "flex" = room
only once the neighbour is at its maximum, a tuple = (widget or layout, stretch and/or alignment).
"""

from collections.abc import Iterable
from typing import Literal, TypeVar

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QBoxLayout, QFrame, QLayout, QScrollArea, QSpacerItem, QWidget

from app.theme import follow, px

Part = QWidget | QLayout
Item = Part | int | None | Literal["flex"] | tuple[Part | int | Qt.AlignmentFlag, ...]
Pad = tuple[int, int, int, int]


class Box(QBoxLayout):
    """A row or column whose gap, margins and spaces are px at 100 % and follow the zoom."""

    def __init__(
        self, direction: QBoxLayout.Direction, items: Iterable[Item], gap: int, pad: Pad
    ) -> None:
        super().__init__(direction)
        self._gap, self._pad = gap, pad
        self._spaces: list[tuple[QSpacerItem, int]] = []
        for item in items:
            self.put(item)
        follow(self.rezoom)

    def put(self, item: Item) -> None:
        """Append one item."""
        if item is None:
            self.addStretch(1)
        elif item == "flex":
            self.addStretch(0)
        elif isinstance(item, int):
            spacer = QSpacerItem(0, 0)
            self._spaces.append((spacer, item))
            self.addSpacerItem(spacer)
            self._size_space(spacer, item)
        elif isinstance(item, tuple):
            self._put_tuple(item)
        elif isinstance(item, QLayout):
            self.addLayout(item)
        elif isinstance(item, QWidget):
            self.addWidget(item)

    def _put_tuple(self, item: tuple[Part | int | Qt.AlignmentFlag, ...]) -> None:
        part, *rest = item
        flag = Qt.AlignmentFlag  # its values are ints, too
        stretch = next((r for r in rest if isinstance(r, int) and not isinstance(r, flag)), 0)
        align = next((r for r in rest if isinstance(r, flag)), flag(0))
        if isinstance(part, QLayout):
            self.addLayout(part, stretch)
        elif isinstance(part, QWidget):
            self.addWidget(part, stretch, align)

    def set_pad(self, pad: Pad) -> None:
        """Change the margins (left, top, right, bottom), px at 100 %."""
        self._pad = pad
        self.rezoom()

    def rezoom(self) -> None:
        """Scale gap, margins and spaces to the present zoom."""
        self.setSpacing(px(self._gap))
        self.setContentsMargins(*(px(side) for side in self._pad))
        for spacer, size in self._spaces:
            self._size_space(spacer, size)
        self.invalidate()

    def _size_space(self, spacer: QSpacerItem, size: int) -> None:
        across = self.direction() == QBoxLayout.Direction.LeftToRight
        spacer.changeSize(px(size) if across else 0, 0 if across else px(size))


def vbox(*items: Item, gap: int = 8, pad: Pad = (0, 0, 0, 0)) -> Box:
    """Return a column of `items`."""
    return Box(QBoxLayout.Direction.TopToBottom, items, gap, pad)


def hbox(*items: Item, gap: int = 8, pad: Pad = (0, 0, 0, 0)) -> Box:
    """Return a row of `items`."""
    return Box(QBoxLayout.Direction.LeftToRight, items, gap, pad)


def turn(box: Box, upright: bool) -> None:
    """Make a row of a column or the other way round, where the room asks for it."""
    way = QBoxLayout.Direction
    wanted = way.TopToBottom if upright else way.LeftToRight
    if box.direction() != wanted:
        box.setDirection(wanted)
        box.rezoom()


def holder(layout: QLayout, name: str = "") -> QWidget:
    """Return a widget around a layout; `name` gives it a ground from the style sheet."""
    widget = QWidget()
    if name:
        widget.setObjectName(name)
        widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    widget.setLayout(layout)
    return widget


class _Fixer(QObject):
    """Keeps the fixed sizes of one widget in step with the zoom."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.setObjectName("fixer")
        self._widget = widget
        self.sizes: dict[str, int] = {}
        follow(self.rezoom)

    def rezoom(self) -> None:
        """Set what has been asked for, at the present zoom."""
        widget = self._widget
        setters = {
            "width": widget.setFixedWidth,
            "height": widget.setFixedHeight,
            "min_width": widget.setMinimumWidth,
            "min_height": widget.setMinimumHeight,
            "max_width": widget.setMaximumWidth,
            "max_height": widget.setMaximumHeight,
        }
        for name, size in self.sizes.items():
            setters[name](px(size))


W = TypeVar("W", bound=QWidget)


def fixed(widget: W, width: int | None = None, height: int | None = None, **bounds: int) -> W:
    """Fix sizes of a widget in px at 100 %, kept in step with the zoom; returns the widget.

    `bounds` may hold min_width, min_height, max_width, max_height.
    """
    fixer = widget.findChild(_Fixer, "fixer", Qt.FindChildOption.FindDirectChildrenOnly)
    if fixer is None:
        fixer = _Fixer(widget)
    asked = {"width": width, "height": height, **bounds}
    fixer.sizes |= {name: size for name, size in asked.items() if size is not None}
    fixer.rezoom()
    return widget


class Scroll(QScrollArea):
    """A page that scrolls up and down when it does not fit; never sideways."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        content.setObjectName(content.objectName() or "scrolled")
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.viewport().setAutoFillBackground(False)
