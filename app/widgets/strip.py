"""The strip on top of every page: model, state, speed, context, Stop, search.

Knows no view model; the main window feeds it. Its figures are always measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAction, QPaintEvent
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from app.theme import (
    SIZE,
    area,
    color,
    draw_ring,
    draw_text,
    follow,
    painter,
    px,
    text_width,
)
from app.widgets import icons
from app.widgets.buttons import Button
from app.widgets.cards import Line
from app.widgets.chips import Chip, StatePill
from app.widgets.focus import FocusRing
from app.widgets.labels import Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import again, tr
from app.wording.figures import rate, tokens, weight_format


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model in the picker: its folder, name, and facts of one line."""

    path: str
    name: str
    facts: str = ""


class ContextMeter(FocusRing, QPushButton):
    """How full the context is: bar and figures; a click opens the breakdown."""

    def __init__(self) -> None:
        super().__init__()
        self._used, self._total = 0, 0
        follow(self.retheme)

    def set_context(self, used: int, total: int) -> None:
        """Show tokens in use and capacity."""
        self._used, self._total = used, total
        self.retheme()

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        self.setText(f"{tokens(self._used)} / {tokens(self._total)}")
        self.setAccessibleName(tr("Context {figures} tokens", figures=self.text()))
        self.setToolTip(
            tr(
                "{used} of {total} tokens of context are in use",
                used=f"{self._used:,}",
                total=f"{self._total:,}",
            )
        )
        self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        """Word, bar and figures."""
        width = text_width(tr("Context"), "meta") + text_width(self.text(), "meta", 500)
        return QSize(px(width + 76), px(24))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw word, bar and figures."""
        p, whole = painter(self), area(self)
        width = text_width(tr("Context"), "meta")
        draw_text(p, QRectF(0, 0, width + 4, 24), tr("Context"), "meta", "text3")
        p.setPen(Qt.PenStyle.NoPen)
        p.setBrush(color("track"))
        p.drawRoundedRect(QRectF(width + 8, 9.5, 56, 5), 2.5, 2.5)
        if self._used and self._total:
            filled = max(5.0, 56 * min(1.0, self._used / self._total))
            p.setBrush(color("kv"))
            p.drawRoundedRect(QRectF(width + 8, 9.5, filled, 5), 2.5, 2.5)
        ink = "text" if self.underMouse() else "text2"
        draw_text(p, whole.adjusted(width + 72, 0, 0, 0), self.text(), "meta", ink, 500)
        if self.ring:
            draw_ring(p, whole, 5)


class Strip(QWidget):
    """The strip.

    Signals:
        model_chosen: folder of the model picked.
        models_wanted: the person asked for the page of models.
        stop_clicked, search_clicked, state_clicked, context_clicked: a control was pressed.
    """

    model_chosen = Signal(str)
    models_wanted = Signal()
    stop_clicked = Signal()
    search_clicked = Signal()
    state_clicked = Signal()
    context_clicked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._choices: tuple[ModelChoice, ...] = ()
        self._model, self._quant = "", ""
        self._narrow = False
        self.picker = Button(tr("Choose a model"), "ghost", tail="down", name=tr("Choose a model"))
        self.menu = QMenu(self.picker)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.menu.triggered.connect(self._pick)
        self.picker.clicked.connect(self._open_menu)
        self.quant = Chip("")
        self.pill = StatePill()
        self._speed_value = Label("", "body", "text", 600)
        unit = Label(tr("tok/s"), "meta", "text3")
        self.speed = holder(hbox(self._speed_value, unit, 6, Line(True, 18), gap=4))
        self.context = ContextMeter()
        self.stop = Button(tr("Stop"), "secondary", "stop", small=True)
        self.search = Button(kind="ghost", icon="search", small=True, name=tr("Search"))
        self.pill.clicked.connect(self.state_clicked)
        self.context.clicked.connect(self.context_clicked)
        self.stop.clicked.connect(self.stop_clicked)
        self.search.clicked.connect(self.search_clicked)
        bar = hbox(
            self.picker,
            self.quant,
            4,
            self.pill,
            None,
            self.speed,
            self.context,
            self.stop,
            self.search,
            gap=10,
            pad=(10, 0, 16, 0),
        )
        self.setLayout(vbox(fixed(holder(bar), height=SIZE["strip"] - 1), Line(), gap=0))
        self.set_model("", "")
        self.set_speed(None)
        self.set_context(0, 0)
        self.stop.hide()

    def set_choices(self, choices: Sequence[ModelChoice]) -> None:
        """Offer these models in the picker."""
        self._choices = tuple(choices)

    def set_model(self, name: str, quant: str) -> None:
        """Show the model that is loaded, or "" for none."""
        self._model, self._quant = name, weight_format(quant)
        self.picker.set_text(name or tr("Choose a model"))
        self.picker.set_name(tr("Model: {name}", name=name) if name else tr("Choose a model"))
        self.picker.set_tip(self._quant if self._narrow else "")
        self.quant.set_text(self._quant)
        self.quant.setVisible(bool(quant) and not self._narrow)

    def set_speed(self, tokens_per_s: float | None) -> None:
        """Show the measured speed; None hides it."""
        self._speed_value.set_text("" if tokens_per_s is None else rate(tokens_per_s))
        self.speed.setVisible(tokens_per_s is not None)

    def set_context(self, used: int, total: int) -> None:
        """Show the context in tokens; a total of 0 hides it."""
        self.context.set_context(used, total)
        self.context.setVisible(total > 0)

    def set_can_stop(self, can_stop: bool) -> None:
        """Show Stop while there is something to stop."""
        self.stop.setVisible(can_stop)

    def set_narrow(self, narrow: bool) -> None:
        """Below 1000 px the format moves to a tool tip and search to its key."""
        self._narrow = narrow
        self.search.setVisible(not narrow)
        self.set_model(self._model, self._quant)

    def _open_menu(self) -> None:
        self.menu.popup(self.picker.mapToGlobal(self.picker.rect().bottomLeft()))

    def _fill_menu(self) -> None:
        self.menu.clear()
        for choice in self._choices:
            text = f"{choice.name}   {again(choice.facts)}".rstrip()
            action = QAction(text.replace("&", "&&"), self.menu)
            action.setData(choice.path)
            if choice.name == self._model:
                action.setIcon(icons.icon("check", "accentText"))
            self.menu.addAction(action)
        if not self._choices:
            nothing = QAction(tr("No model is installed yet"), self.menu)
            nothing.setEnabled(False)
            self.menu.addAction(nothing)
        self.menu.addSeparator()
        more = QAction(icons.icon("models"), tr("All models"), self.menu)
        more.setData("")
        self.menu.addAction(more)

    def _pick(self, action: QAction) -> None:
        path = str(action.data() or "")
        if path:
            self.model_chosen.emit(path)
        else:
            self.models_wanted.emit()
