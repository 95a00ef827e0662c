"""The history of measurements: a line a run with its rates and how they changed; a click shows it.

Shows plain data of the view model and holds none but what it draws.
"""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.predict import amounts
from app.predict.runs import RunLine
from app.theme import (
    RIGHT,
    area,
    color,
    draw_ring,
    draw_text,
    follow,
    painter,
    px,
    text_width,
)
from app.views.profiler_words import change_words, run_words
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.focus import FocusRing
from app.widgets.labels import Elide, Label
from app.widgets.layout import hbox, holder, vbox
from app.wording import tr

SHOWN = 8
_ROW, _RATE, _CHANGE = 28, 62.0, 58.0


class RunRow(FocusRing, QPushButton):
    """One run: when and format, B_P and B_H, each with its change.

    A change is written with its sign; the ink repeats it: a clear loss is a warning.
    """

    def __init__(self) -> None:
        super().__init__()
        self._line: RunLine | None = None
        self.setCheckable(True)
        self.setAutoExclusive(True)
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        follow(self.retheme)

    def show_line(self, line: RunLine, is_shown: bool) -> None:
        """Show a run; the one on the page is marked."""
        self._line = line
        self.setChecked(is_shown)
        self.retheme()

    def retheme(self) -> None:
        """Take words and height from the present language and zoom."""
        self.setFixedHeight(px(_ROW))
        if self._line is not None:
            profile = self._line.profile
            fill, cpu = amounts.number(profile.fill_gbps), amounts.number(profile.cpu_gbps)
            words = tr(
                "{run}: copies {fill} GB/s {fill_change}, CPU {cpu} GB/s {cpu_change}",
                run=run_words(profile),
                fill=fill,
                cpu=cpu,
                fill_change=change_words(self._line.fill_change),
                cpu_change=change_words(self._line.cpu_change),
            )
            self.setAccessibleName(words)
            self.setToolTip(f"{profile.device} · {profile.cpu}")
        self.update()

    def sizeHint(self) -> QSize:
        """Room for the four figures and some words."""
        return QSize(px(2 * (_RATE + _CHANGE) + 120), px(_ROW))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw ground, words and figures."""
        p, whole = painter(self), area(self)
        if self.isChecked() or self.underMouse():
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("selected" if self.isChecked() else "hover"))
            p.drawRoundedRect(whole.adjusted(0, 1, 0, -1), 5, 5)
        if self._line is not None:
            self._draw_line(p, self._line)
        if self.ring:
            draw_ring(p, whole, 5)

    def _draw_line(self, p: QPainter, line: RunLine) -> None:
        whole = area(self)
        ink, weight = ("text", 600) if self.isChecked() else ("text2", 400)
        x = whole.width() - 8 - 2 * (_RATE + _CHANGE)
        name = QRectF(10, 0, x - 14, whole.height())
        draw_text(p, name, run_words(line.profile), "meta", ink, weight, elide=True)
        rates = (line.profile.fill_gbps, line.profile.cpu_gbps)
        for rate, change in zip(rates, (line.fill_change, line.cpu_change), strict=True):
            cell = QRectF(x, 0, _RATE, whole.height())
            draw_text(p, cell, amounts.number(rate), "meta", ink, weight, RIGHT)
            tone = "warn" if change is not None and change < -0.05 else "text2"
            cell = QRectF(x + _RATE, 0, _CHANGE - 6, whole.height())
            draw_text(p, cell, change_words(change), "caption", tone, 500, RIGHT)
            x += _RATE + _CHANGE


class _Heads(QWidget):
    """The names of the columns, above their figures."""

    def __init__(self) -> None:
        super().__init__()
        follow(self._measure)

    def _measure(self) -> None:
        self.setFixedHeight(px(18))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw them with the keys of their series."""
        p, whole = painter(self), area(self)
        x = whole.width() - 8 - 2 * (_RATE + _CHANGE)
        for name, role in (("B\u209a", "fill"), ("B\u2095", "cpu")):
            cell = QRectF(x, 0, _RATE, whole.height())
            draw_text(p, cell, name, "caption", "text2", 500, RIGHT)
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color(role))
            left = x + _RATE - text_width(name, "caption", 500) - 13
            p.drawRoundedRect(QRectF(left, 5, 8, 8), 2, 2)
            x += _RATE + _CHANGE


class HistoryCard(Card):
    """The last runs, and the ways out of the app for the one that is shown.

    Signals:
        chosen(int): index of a run.
        save_wanted(), copy_wanted(): the shown run, as a file or to the clipboard.
    """

    chosen = Signal(int)
    save_wanted = Signal()
    copy_wanted = Signal()

    def __init__(self) -> None:
        self.copy = Button(tr("Copy"), "ghost", "copy", small=True, name=tr("Copy the measurement"))
        self.save = Button(tr("Export"), "ghost", "save", small=True, name=tr("Export as a file"))
        self.said = Elide("", "meta", "text2")
        title = Label(tr("History"), "body", "text", 600)
        sub = Label("GB/s", "meta", "text3")
        head = hbox(title, sub, (self.said, 1), self.copy, self.save, gap=8)
        self.rows: list[RunRow] = []  # made as they are needed
        self._shown: list[int] = []  # indices of the runs in the lines
        self._heads = _Heads()
        self._lines = vbox(self._heads, gap=0)
        lines = holder(self._lines)
        super().__init__(vbox(head, lines, None, gap=6, pad=(16, 10, 12, 12)))
        self.copy.clicked.connect(self.copy_wanted)
        self.save.clicked.connect(self.save_wanted)

    def show_lines(self, lines: Sequence[RunLine], selected: int) -> None:
        """Show the newest runs; a selected older one stands in the last line."""
        shown = list(enumerate(lines))[:SHOWN]
        if selected >= SHOWN:
            shown[-1] = (selected, lines[selected])
        self._shown = [index for index, _ in shown]
        self._heads.setVisible(bool(shown))
        self.copy.setEnabled(bool(shown))
        self.save.setEnabled(bool(shown))
        while len(self.rows) < len(shown):
            row = RunRow()
            row.clicked.connect(_Chosen(self, len(self.rows)))
            self.rows.append(row)
            self._lines.addWidget(row)
        for row, (index, line) in zip(self.rows, shown, strict=False):
            row.show_line(line, index == selected)
        for number, row in enumerate(self.rows):
            row.setVisible(number < len(shown))

    def pick(self, row: int) -> None:
        """Tell which run a line stands for."""
        self.chosen.emit(self._shown[row])


class _Chosen:
    """A click on one line; a plain object, so that nothing is captured by a closure."""

    def __init__(self, card: HistoryCard, row: int) -> None:
        self._card, self._row = card, row

    def __call__(self) -> None:
        """Tell it."""
        self._card.pick(self._row)
