"""The Logs page: filtered lines as a list model, copy, a report without personal data.

QtCore only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.services.files import replace_file
from app.services.log_ring import MAX_LINES, LogLine, LogRing, line_text
from app.services.redaction import redact
from app.viewmodels.diagnostics import DiagnosticsViewModel, own_names
from app.wording import tr

Index = QModelIndex | QPersistentModelIndex
SourceFilter = Literal["all", "app", "engine", "job"]
LevelFilter = Literal["info", "warning", "error"]

SOURCES: tuple[tuple[SourceFilter, str], ...] = (
    ("all", tr("All")),
    ("app", tr("App")),
    ("engine", tr("Engine")),
    ("job", tr("Jobs")),
)
LEVELS: tuple[tuple[LevelFilter, str], ...] = (
    ("info", tr("Info")),
    ("warning", tr("Warnings")),
    ("error", tr("Errors")),
)
LEVEL_WORDS = {"info": tr("info"), "warning": tr("warning"), "error": tr("error")}
SOURCE_WORDS = {"app": tr("app"), "engine": tr("engine"), "job": tr("job")}
_RANK = {"info": 0, "warning": 1, "error": 2}


class LogModel(QAbstractListModel):
    """Visible lines, oldest first. Roles: display = text, `LineRole` = the LogLine."""

    LineRole = Qt.ItemDataRole.UserRole + 1

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lines: list[LogLine] = []

    def rowCount(self, parent: Index | None = None) -> int:
        """Return the number of visible lines."""
        return 0 if parent is not None and parent.isValid() else len(self._lines)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return text, tool tip or the line itself."""
        if not index.isValid() or not 0 <= index.row() < len(self._lines):
            return None
        line = self._lines[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return line.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return line_text(line)
        return line if role == self.LineRole else None

    def line(self, row: int) -> LogLine:
        """Return a visible line."""
        return self._lines[row]

    def show(self, lines: Sequence[LogLine]) -> None:
        """Show other lines."""
        self.beginResetModel()
        self._lines = list(lines)
        self.endResetModel()

    def add(self, lines: Sequence[LogLine], oldest: int) -> None:
        """Append lines; those with a number below `oldest` go."""
        gone = 0
        while gone < len(self._lines) and self._lines[gone].number < oldest:
            gone += 1
        if gone:
            self.beginRemoveRows(QModelIndex(), 0, gone - 1)
            del self._lines[:gone]
            self.endRemoveRows()
        if lines:
            first = len(self._lines)
            self.beginInsertRows(QModelIndex(), first, first + len(lines) - 1)
            self._lines.extend(lines)
            self.endInsertRows()


class LogsViewModel(QObject):
    """Filters over the ring.

    Args:
        ring: all lines.
        folder: of the log files.
        diagnostics: a report of everything, to be copied; None = not offered.

    Signals:
        changed(): filters, counts or `follow` differ; rows are told by `model` itself.
    """

    changed = Signal()

    def __init__(
        self,
        ring: LogRing,
        folder: Path,
        diagnostics: DiagnosticsViewModel | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._ring = ring
        self.diagnostics = diagnostics
        self.folder = folder
        self.model = LogModel(self)
        self._source: SourceFilter = "all"
        self._level: LevelFilter = "info"
        self._search = ""
        self._follow = True
        self._seen = 0
        ring.changed.connect(self._on_lines)
        self._rebuild()

    @property
    def source(self) -> SourceFilter:
        """Whose lines are shown."""
        return self._source

    @property
    def level(self) -> LevelFilter:
        """The least level that is shown."""
        return self._level

    @property
    def search(self) -> str:
        """Text that shown lines contain, in any case."""
        return self._search

    @property
    def follow(self) -> bool:
        """Whether new lines are shown; off = the list stands still."""
        return self._follow

    @property
    def is_filtered(self) -> bool:
        """Whether source, level or search leave lines out."""
        return bool(self._search) or self._source != "all" or self._level != "info"

    @property
    def count_text(self) -> str:
        """How many lines are shown and kept, as a sentence."""
        kept = min(self._ring.count, MAX_LINES)
        return tr(
            "{shown} of {kept} lines shown, at most {most} are kept",
            shown=f"{self.model.rowCount():,}",
            kept=f"{kept:,}",
            most=f"{MAX_LINES:,}",
        )

    def set_source(self, source: SourceFilter) -> None:
        """Show lines of one source, or "all"."""
        self._source = source
        self._rebuild()

    def set_level(self, level: LevelFilter) -> None:
        """Show this level and those above."""
        self._level = level
        self._rebuild()

    def set_search(self, text: str) -> None:
        """Show lines that contain the text."""
        self._search = text.strip().lower()
        self._rebuild()

    def set_follow(self, follow: bool) -> None:
        """Let new lines in, or stand still."""
        self._follow = follow
        if follow:
            self._rebuild()
        self.changed.emit()

    def text(self, rows: Sequence[int] | None = None) -> str:
        """Return lines as text for the clipboard; None = all visible ones."""
        picked = range(self.model.rowCount()) if rows is None else sorted(rows)
        return "\n".join(line_text(self.model.line(row)) for row in picked)

    def report(self) -> str:
        """Return the visible lines with keys, logins, addresses and names removed."""
        return redact(self.text(), own_names()).text

    def save_report(self, path: Path) -> str:
        """Write the report. Returns "" or a sentence that says why it was not written."""
        try:
            replace_file(path, self.report().encode())
        except OSError as problem:
            return tr("The report could not be written: {reason}.", reason=problem.strerror or "")
        return ""

    def _matches(self, line: LogLine) -> bool:
        return (
            self._source in ("all", line.source)
            and _RANK[line.level] >= _RANK[self._level]
            and (not self._search or self._search in line.text.lower())
        )

    def _rebuild(self) -> None:
        lines = self._ring.lines()
        self._seen = lines[-1].number if lines else 0
        self.model.show([line for line in lines if self._matches(line)])
        self.changed.emit()

    def _on_lines(self) -> None:
        if not self._follow:
            self.changed.emit()
            return
        new = self._ring.lines(self._seen)
        if new:
            self._seen = new[-1].number
            oldest = self._seen - MAX_LINES + 1
            self.model.add([line for line in new if self._matches(line)], oldest)
            self.changed.emit()
