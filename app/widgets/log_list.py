"""A long list of log lines: filters, a model over them, and the painted rows.

Holds what it was given, at most 20,000 lines; knows no file and no view model.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
)

from app.theme import SIZE, color, draw_ring, draw_text, follow, px, theme
from app.widgets import icons
from app.widgets.focus import FocusRing
from app.wording import Phrase, again, tr

MAX_LINES = 20_000
Index = QModelIndex | QPersistentModelIndex
# level: icon, ink of sign and word, ink of the text, word
_LEVELS: dict[str, tuple[str, str, str, Phrase]] = {
    "info": ("", "text3", "text2", tr("info")),
    "warning": ("warn", "warn", "text", tr("warning")),
    "error": ("error", "danger", "text", tr("error")),
}
_SOURCES = {"app": tr("app"), "engine": tr("engine"), "job": tr("job")}
_RANK = {"info": 0, "warning": 1, "error": 2}


class LogLine(Protocol):
    """One line: Unix time, source (app, engine, job), level (info, warning, error), text."""

    @property
    def time_s(self) -> float: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102


class LogFilter:
    """Which lines are wanted: source "" = all, least level, words in any case."""

    def __init__(self, source: str = "", level: str = "info", words: str = "") -> None:
        self.source, self.words = source, words.casefold()
        self._rank = _RANK[level]

    def wants(self, line: LogLine) -> bool:
        """Whether a line passes."""
        if self.source and line.source != self.source:
            return False
        if _RANK.get(line.level, 0) < self._rank:
            return False
        return self.words in line.text.casefold()


class LogModel(QAbstractListModel):
    """The lines that pass the filter, oldest first."""

    def __init__(self, parent: QObject | None = None, max_lines: int = MAX_LINES) -> None:
        super().__init__(parent)
        self._max = max_lines
        self._filter = LogFilter()
        self._lines: list[LogLine] = []

    def show(self, lines: Sequence[LogLine], wanted: LogFilter) -> None:
        """Start over with these lines and this filter."""
        self.beginResetModel()
        self._filter = wanted
        self._lines = [line for line in lines if wanted.wants(line)][-self._max :]
        self.endResetModel()

    def add(self, lines: Sequence[LogLine]) -> None:
        """Append those that pass; the oldest make room."""
        new = [line for line in lines if self._filter.wants(line)][-self._max :]
        if not new:
            return
        surplus = len(self._lines) + len(new) - self._max
        if surplus > 0:
            self.beginRemoveRows(QModelIndex(), 0, surplus - 1)
            del self._lines[:surplus]
            self.endRemoveRows()
        first = len(self._lines)
        self.beginInsertRows(QModelIndex(), first, first + len(new) - 1)
        self._lines += new
        self.endInsertRows()

    def line(self, row: int) -> LogLine:
        """Return the line of a row."""
        return self._lines[row]

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's signature
        """Return the number of lines shown."""
        return 0 if parent.isValid() else len(self._lines)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a line as text, for copying, tool tips and assistive tools."""
        if not index.isValid() or index.row() >= len(self._lines):
            return None
        line = self._lines[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return as_text(line)
        return line.text if role == Qt.ItemDataRole.ToolTipRole else None


def as_text(line: LogLine) -> str:
    """Return a line as it is copied."""
    return f"{clock(line.time_s)}  {line.source:<6}  {line.level:<7}  {line.text}"


def clock(time_s: float) -> str:
    """Return local time of day with milliseconds."""
    millis = int(time_s * 1000) % 1000
    return f"{time.strftime('%H:%M:%S', time.localtime(time_s))}.{millis:03d}"


class _LogRow(QStyledItemDelegate):
    """Paints time, source, sign and word of the level, and the text in mono."""

    def sizeHint(self, _option: QStyleOptionViewItem, _index: Index) -> QSize:
        """All rows are of one height."""
        return QSize(px(200), px(SIZE["logRow"]))

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw one row, in px at 100 %."""
        model = index.model()
        if not isinstance(model, LogModel):
            return
        line = model.line(index.row())
        icon, sign, ink, word = _LEVELS.get(line.level, _LEVELS["info"])
        zoom = theme().zoom
        p.save()
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = option.rect
        p.translate(box.topLeft())
        p.scale(zoom, zoom)
        row = QRectF(0, 0, box.width() / zoom, box.height() / zoom)
        state = option.state
        ground = row.adjusted(0, 0, -2, 0)
        if state & QStyle.StateFlag.State_Selected:
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("selected"))
            p.drawRoundedRect(ground, 5, 5)
        view = self.parent()
        if isinstance(view, LogList) and view.ring and index == view.currentIndex():
            draw_ring(p, ground, 5)
        draw_text(p, row.adjusted(10, 0, 0, 0), clock(line.time_s), "caption", "text3", mono=True)
        source = again(_SOURCES.get(line.source, Phrase(line.source)))
        draw_text(p, QRectF(110, 0, 56, row.height()), source, "caption", "text3", 500, elide=True)
        if icon:
            icons.draw(p, icon, QRectF(168, 7, 13, 13), sign, 1.8)
        level = QRectF(186, 0, 58, row.height())
        draw_text(p, level, again(word), "caption", sign, 500, elide=True)
        text = line.text.replace("\n", " ⏎ ")
        rest = row.adjusted(250, 0, -12, 0)
        draw_text(p, rest, text, "meta", ink, mono=True, elide=True)
        p.restore()


class LogList(FocusRing, QListView):
    """The list itself; rows can be selected and copied."""

    def __init__(self, model: LogModel) -> None:
        super().__init__()
        self.setModel(model)
        self.setItemDelegate(_LogRow(self))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setUniformItemSizes(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        follow(self.retheme)

    def retheme(self) -> None:
        """Take row height and name from the present zoom and language."""
        self.setAccessibleName(tr("Log lines"))
        self.scheduleDelayedItemsLayout()
        self.viewport().update()

    def chosen(self) -> list[LogLine]:
        """Return the selected lines in order, or all that are shown."""
        model = self.model()
        if not isinstance(model, LogModel):
            return []
        rows = sorted(index.row() for index in self.selectedIndexes())
        return [model.line(row) for row in rows or range(model.rowCount())]

    def is_at_end(self) -> bool:
        """Whether the newest line is in view."""
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - px(SIZE["logRow"])
