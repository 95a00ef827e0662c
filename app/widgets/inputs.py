"""Inputs: number fields, text fields, combo boxes, sliders."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QLocale, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDoubleSpinBox,
    QLineEdit,
    QSizePolicy,
    QSlider,
    QStyle,
    QStyleOptionSpinBox,
    QWidget,
)

from app.theme import (
    RIGHT,
    SIZE,
    area,
    color,
    draw_ring,
    draw_text,
    follow,
    font,
    is_dark,
    painter,
    pen,
    px,
    text_width,
    theme,
)
from app.widgets import icons
from app.widgets.focus import FocusRing
from app.widgets.layout import fixed
from app.wording import again

CROSS = 26  # px at the end of a search field


def draw_frame(p: QPainter, widget: QWidget, ring: bool, error: bool = False) -> None:
    """Draw the ground and outline of an input."""
    whole = area(widget)
    p.setBrush(color("raised"))
    live = "control" if widget.isEnabled() else "line"
    p.setPen(pen("danger", 1.2) if error else pen(live))
    p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
    if ring:
        draw_ring(p, whole, 6)


class Field(FocusRing, QDoubleSpinBox):
    """An exact number with a unit at its right end; `valueChanged` after each accepted value.

    `least` is said instead of the least number where that number means something else, as "Off".
    The wheel turns it only while it has the focus, so that a page can be scrolled past it.
    """

    def __init__(  # noqa: PLR0913 - a number has all of these
        self,
        value: float = 0,
        unit: str = "",
        width: int = 120,
        low: float = 0,
        high: float = 1e9,
        step: float = 1,
        decimals: int = 0,
        name: str = "",
        least: str = "",
    ) -> None:
        super().__init__()
        self._unit, self._name, self._error = unit, name, False
        self._least = least
        self.setLocale(QLocale(QLocale.Language.English, QLocale.Country.UnitedStates))
        self.setGroupSeparatorShown(True)
        self.setDecimals(decimals)
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setValue(value)
        self.setKeyboardTracking(False)
        self.setFrame(False)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        clear = self.lineEdit().palette()
        clear.setColor(QPalette.ColorRole.Base, Qt.GlobalColor.transparent)
        self.lineEdit().setPalette(clear)
        fixed(self, width, SIZE["control"])
        follow(self.retheme)

    def show_value(self, value: float) -> None:
        """Set the value without a signal, unless the person is typing."""
        if self.lineEdit().isModified() and self.hasFocus():
            return
        self.blockSignals(True)
        self.setValue(value)
        self.blockSignals(False)

    def set_unit(self, unit: str) -> None:
        """Show another unit."""
        self._unit = unit
        self.retheme()

    def set_error(self, error: bool) -> None:
        """Mark the value as one that cannot be; say why beside the field."""
        self._error = error
        self.update()

    def retheme(self) -> None:
        """Take words and sizes from the present language and zoom."""
        self.setFont(font("body", 500))
        self.lineEdit().setFont(font("body", 500))
        unit = again(self._unit)
        self.setSpecialValueText(again(self._least))
        self.setAccessibleName(again(self._name) or unit)
        self.setAccessibleDescription(unit)
        room = round(text_width(unit, "caption")) + 6 if unit else 0
        self.lineEdit().setTextMargins(px(7), 0, px(room), 0)
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page unless the field is being used."""
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw frame, unit and steppers; the line edit draws the number."""
        p, whole = painter(self), area(self)
        draw_frame(p, self, self.ring or self.hasFocus(), self._error)
        right = self._steppers_left() / theme().zoom
        rect = QRectF(0, 0, right - 2, whole.height())
        if not self._least or self.value() > self.minimum():
            draw_text(p, rect, again(self._unit), "caption", "text3", align=RIGHT)
        flags = self.stepEnabled()
        flag = QAbstractSpinBox.StepEnabledFlag
        middle = whole.height() / 2
        for name, y, able in (
            ("up", middle - 10.5, flags & flag.StepUpEnabled),
            ("down", middle - 0.5, flags & flag.StepDownEnabled),
        ):
            ink = "text2" if able and self.isEnabled() else "control"
            icons.draw(p, name, QRectF(whole.width() - 17, y, 11, 11), ink)

    def _steppers_left(self) -> int:
        option = QStyleOptionSpinBox()
        self.initStyleOption(option)
        control, part = QStyle.ComplexControl.CC_SpinBox, QStyle.SubControl.SC_SpinBoxUp
        return self.style().subControlRect(control, option, part, self).left()


class LineField(FocusRing, QLineEdit):
    """A line of text with an icon and a placeholder; Esc clears it first.

    One for a search has a cross at its end while there is a text; a click on it clears as well.
    """

    def __init__(
        self, placeholder: str = "", icon: str = "", width: int | None = None, name: str = ""
    ) -> None:
        super().__init__()
        self._placeholder, self._icon, self._name = placeholder, icon, name
        self._has_cross = icon == "search"
        self.setMouseTracking(self._has_cross)
        self.setFrame(False)
        fixed(self, width, SIZE["control"])
        follow(self.retheme)

    def retheme(self) -> None:
        """Take words and sizes from the present language and zoom."""
        self.setFont(font("body"))
        self.setPlaceholderText(again(self._placeholder))
        self.setAccessibleName(again(self._name or self._placeholder))
        right = CROSS if self._has_cross else 6
        self.setTextMargins(px(26 if self._icon else 7), 0, px(right), 0)
        self.update()

    def event(self, event: QEvent) -> bool:
        """Leave Ctrl+K to the window: some platforms would delete to the end of the line."""
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.matches(QKeySequence.StandardKey.DeleteEndOfLine)
        ):
            event.ignore()
            return False
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc clears a text; on an empty field it goes on to the page."""
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
            return
        super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """The cross clears; the cursor stays here."""
        if self._on_cross(event):
            self.clear()
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """The cross is no text."""
        shape = Qt.CursorShape.ArrowCursor if self._on_cross(event) else Qt.CursorShape.IBeamCursor
        self.setCursor(shape)
        super().mouseMoveEvent(event)

    def _on_cross(self, event: QMouseEvent) -> bool:
        is_there = self._has_cross and bool(self.text())
        return is_there and event.position().x() >= self.width() - px(CROSS)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw frame and icons, then the text as Qt does."""
        p = painter(self)
        draw_frame(p, self, self.hasFocus())
        if self._icon:
            icons.draw(p, self._icon, QRectF(8, (area(self).height() - 14) / 2, 14, 14), "text3")
        if self._has_cross and self.text():
            whole = area(self)
            cross = QRectF(whole.width() - 20, (whole.height() - 12) / 2, 12, 12)
            icons.draw(p, "x", cross, "text2", 1.8)
        p.end()
        super().paintEvent(event)


class Combo(FocusRing, QComboBox):
    """One choice of a list. Items are phrases or data; `activated(int)` on a person's choice."""

    def __init__(
        self, items: Sequence[str] = (), current: int = 0, width: int | None = 160, name: str = ""
    ) -> None:
        super().__init__()
        self._items, self._name = list(items), name
        if width is None:  # as wide as there is room, whatever the items want
            self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.addItems([again(item) for item in items])
        self.setCurrentIndex(current)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        fixed(self, width, SIZE["control"])
        follow(self.retheme)

    def set_items(self, items: Sequence[str], current: int = 0) -> None:
        """Offer another list without a signal."""
        self.blockSignals(True)
        self.clear()
        self._items = list(items)
        self.addItems([again(item) for item in items])
        self.setCurrentIndex(current)
        self.blockSignals(False)
        self.update()

    def retheme(self) -> None:
        """Say name and items in the present language."""
        self.setFont(font("body"))
        self.setAccessibleName(again(self._name))
        for index, item in enumerate(self._items):
            self.setItemText(index, again(item))
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel belongs to the page."""
        event.ignore()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw frame, chosen item and arrow."""
        p, whole = painter(self), area(self)
        draw_frame(p, self, self.ring)
        ink = "text" if self.isEnabled() else "text3"
        rect = QRectF(10, 0, whole.width() - 34, whole.height())
        draw_text(p, rect, self.currentText(), "body", ink, elide=True)
        box = QRectF(whole.width() - 21, (whole.height() - 14) / 2, 14, 14)
        icons.draw(p, "down", box, "text2" if self.isEnabled() else "text3")


class Slider(FocusRing, QSlider):
    """A number between `low` and `high` in steps.

    Signals:
        moved: the number, when it changes by the person.
    """

    moved = Signal(float)

    def __init__(
        self,
        number: float = 0.5,
        name: str = "",
        low: float = 0.0,
        high: float = 1.0,
        step: float = 0.01,
    ) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._name, self._low, self._step = name, low, step
        self.setRange(0, round((high - low) / step))
        self.setPageStep(max(1, self.maximum() // 10))
        self.set_number(number)
        self.valueChanged.connect(self._tell)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        fixed(self, height=18, min_width=64)
        follow(self.retheme)

    @property
    def number(self) -> float:
        """The number shown."""
        return self._low + self.value() * self._step

    def set_number(self, number: float) -> None:
        """Show a number without a signal."""
        self.blockSignals(True)
        self.setValue(round((number - self._low) / self._step))
        self.blockSignals(False)
        self.update()

    def _tell(self) -> None:
        self.moved.emit(self.number)
        self.update()

    def retheme(self) -> None:
        """Say the name in the present language."""
        self.setAccessibleName(again(self._name))
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel belongs to the page."""
        event.ignore()

    def sizeHint(self) -> QSize:
        """Wide enough to be moved exactly."""
        return QSize(px(140), px(18))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Repaint at the new length."""
        super().resizeEvent(event)
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw track, filled part and knob."""
        p, whole = painter(self), area(self)
        width, middle = whole.width() - 14, whole.height() / 2
        share = self.value() / self.maximum() if self.maximum() else 0.0
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(color("track"))
        p.drawRoundedRect(QRectF(7, middle - 2, width, 4), 2, 2)
        p.setBrush(color("accent" if self.isEnabled() else "control"))
        p.drawRoundedRect(QRectF(7, middle - 2, width * share, 4), 2, 2)
        p.setBrush(color("text") if is_dark() else color("surface"))
        p.setPen(pen("control", 1.2))
        knob = QPointF(7 + width * share, middle)
        p.drawEllipse(knob, 6, 6)
        if self.ring:
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.setPen(pen("focus", 2))
            p.drawEllipse(knob, 8, 8)
