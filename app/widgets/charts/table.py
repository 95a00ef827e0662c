"""The values of a chart as a table: the way to read it without seeing it."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.theme import follow, font, px
from app.widgets.charts.series import Table
from app.wording import tr


class ValuesDialog(QDialog):
    """A read-only table; Esc closes it."""

    def __init__(self, table: Table, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(table.title)
        self.grid = QTableWidget(len(table.rows), len(table.heads), self)
        self.grid.setHorizontalHeaderLabels(list(table.heads))
        self.grid.verticalHeader().setVisible(False)
        self.grid.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.grid.setAccessibleName(tr("Values of {chart}", chart=table.title))
        self.grid.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        for row, values in enumerate(table.rows):
            for col, value in enumerate(values):
                item = QTableWidgetItem(value)
                if col:
                    item.setTextAlignment(
                        Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                    )
                self.grid.setItem(row, col, item)
        if table.rows:
            self.grid.setCurrentCell(len(table.rows) - 1, 0)  # newest last
        box = QVBoxLayout(self)
        box.addWidget(self.grid)
        follow(self._measure)

    def _measure(self) -> None:
        self.setFont(font("meta"))
        self.resize(px(520), px(420))
