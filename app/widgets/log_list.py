"""A long list of log lines: painted rows over a model that gives a `LogLine` per row.

Filtering and keeping are the model's; this knows no file and no view model.
"""

import time

from PySide6.QtCore import (
    QAbstractItemModel,
    QModelIndex,
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

from app.services.log_ring import LogLine
from app.theme import SIZE, color, draw_ring, draw_text, follow, px, theme
from app.widgets import icons
from app.widgets.focus import FocusRing
from app.wording import Phrase, again, tr

Index = QModelIndex | QPersistentModelIndex
# level: icon, ink of sign and word, ink of the text, word
_LEVELS: dict[str, tuple[str, str, str, Phrase]] = {
    "info": ("", "text3", "text2", tr("info")),
    "warning": ("warn", "warn", "text", tr("warning")),
    "error": ("error", "danger", "text", tr("error")),
}
_SOURCES = {"app": tr("app"), "engine": tr("engine"), "job": tr("job")}


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
        view = self.parent()
        line = view.line(index) if isinstance(view, LogList) else None
        if line is None:
            return
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

    def __init__(self, model: QAbstractItemModel, line_role: int) -> None:
        super().__init__()
        self._line_role = line_role
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

    def line(self, index: Index) -> LogLine | None:
        """Return the line of a row."""
        found = index.data(self._line_role)
        return found if isinstance(found, LogLine) else None

    def chosen(self) -> list[int] | None:
        """Return the selected rows in order; None if there are none."""
        return sorted(index.row() for index in self.selectedIndexes()) or None

    def is_at_end(self) -> bool:
        """Whether the newest line is in view."""
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - px(SIZE["logRow"])
