"""The values of a chart as a table: the way to read it without seeing it."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.theme import follow, font, px
from app.widgets.buttons import Button
from app.widgets.charts.series import Table
from app.widgets.labels import Label
from app.widgets.layout import hbox, vbox
from app.wording import tr

_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


class ValuesDialog(QDialog):
    """A read-only table; Esc closes it."""

    def __init__(self, table: Table, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dialog")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(table.title)
        self.grid = QTableWidget(len(table.rows), len(table.heads), self)
        self.grid.verticalHeader().setVisible(False)
        self.grid.setShowGrid(False)  # a hairline below each row instead
        self.grid.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.grid.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.grid.setAccessibleName(tr("Values of {chart}", chart=table.title))
        self._name_columns(table.heads)
        for row, values in enumerate(table.rows):
            for col, value in enumerate(values):
                item = QTableWidgetItem(value)
                if col:
                    item.setTextAlignment(_RIGHT)
                self.grid.setItem(row, col, item)
        if table.rows:
            self.grid.setCurrentCell(len(table.rows) - 1, 0)  # newest last
        close = Button(tr("Close"))
        close.clicked.connect(self.accept)
        head = Label(table.title, "section", "text", 600)
        self.setLayout(vbox(head, (self.grid, 1), hbox(None, close), gap=12, pad=(20, 16, 20, 16)))
        follow(self._measure)

    def _name_columns(self, heads: tuple[str, ...]) -> None:
        header = self.grid.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        header.setHighlightSections(False)
        for column, words in enumerate(heads):
            item = QTableWidgetItem(words)
            item.setTextAlignment(_RIGHT if column else _LEFT)
            self.grid.setHorizontalHeaderItem(column, item)

    def _measure(self) -> None:
        self.setFont(font("meta"))
        rows = min(self.grid.rowCount(), 10)
        self.resize(px(520), px(150 + 30 * rows))
