"""Measured curves over sizes, zoomable: a card-ready widget around a pyqtgraph plot.

pyqtgraph (and numpy with it) costs some 0.3 s to import, so the plot itself, in `plot.py`, is made
when the widget is first shown.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.predict import amounts
from app.theme import CENTER, area, draw_ring, draw_text, follow, painter
from app.widgets.charts.series import Curve, Table
from app.widgets.charts.table import ValuesDialog
from app.widgets.focus import FocusRing
from app.wording import again, tr

if TYPE_CHECKING:
    from app.widgets.charts.plot import Plot


class CurveChart(FocusRing, QWidget):
    """Curves of GB/s over bytes on a log axis, with the working point of the model in use.

    Drag and wheel zoom, a double click shows everything again, Ctrl+Shift+T shows a table.
    """

    def __init__(self, title: str, empty: str) -> None:
        super().__init__()
        self.title, self.empty = title, empty
        self.curves: tuple[Curve, ...] = ()
        self.point: tuple[float, str] | None = None
        self._plot: Plot | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(120)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(0, 0, 0, 0)
        follow(self._retell)

    def set_curves(self, curves: Sequence[Curve], point: tuple[float, str] | None = None) -> None:
        """Show these curves; `point` = (bytes, word) marks where the model in use works."""
        self.curves, self.point = tuple(curves), point
        self._retell()

    def set_empty(self, sentence: str) -> None:
        """Say something else while there is no curve."""
        self.empty = sentence
        self.update()

    def is_empty(self) -> bool:
        """Whether no curve has a point."""
        return not any(curve.points for curve in self.curves)

    def table(self) -> Table:
        """One row per size, one column per curve."""
        sizes = sorted({x for curve in self.curves for x, _ in curve.points})
        by_curve = [dict(curve.points) for curve in self.curves]
        rows: list[tuple[str, ...]] = []
        for size in sizes:
            values = (known.get(size) for known in by_curve)
            figures = (amounts.number(v) if v is not None else "–" for v in values)
            rows.append((amounts.memory(size), *figures))
        heads = (tr("Size"), *(f"{again(curve.name)} (GB/s)" for curve in self.curves))
        return Table(again(self.title), tuple(str(head) for head in heads), rows)

    def show_table(self) -> ValuesDialog:
        """Open the values as a table and return the dialog."""
        dialog = ValuesDialog(self.table(), self)
        dialog.open()
        return dialog

    def showEvent(self, event: QShowEvent) -> None:
        """Make the plot when somebody looks for the first time."""
        super().showEvent(event)
        self._retell()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+Shift+T opens the values."""
        keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if event.key() == Qt.Key.Key_T and event.modifiers() == keys:
            self.show_table()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, _event: object) -> None:
        """Without a curve: the sentence. With one, the plot covers this, all but the ring."""
        p = painter(self)
        if self.is_empty():
            draw_text(p, area(self), again(self.empty), "meta", "text2", align=CENTER, elide=True)
        if self.ring:
            draw_ring(p, area(self))
        p.end()

    def _retell(self) -> None:
        self.setAccessibleName(f"{again(self.title)}, GB/s")
        best = [
            f"{again(c.name)} {amounts.number(max(y for _, y in c.points))} GB/s"
            for c in self.curves
            if c.points
        ]
        self.setAccessibleDescription(", ".join(best))
        if self.isVisible() and self._plot is None and not self.is_empty():
            # Imported here for start-up time: pyqtgraph brings numpy.
            from app.widgets.charts.plot import Plot

            self._plot = Plot(self)
            self._box.addWidget(self._plot)
        if self._plot is not None:
            self._plot.setVisible(not self.is_empty())
            if self.isVisible():
                self._plot.draw(self.curves, self.point)
        self.update()
