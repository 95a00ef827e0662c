"""Logs: one list, three sources, levels by sign and word."""

from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import Qt, SignalInstance
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QStackedLayout, QWidget

from app.theme import follow
from app.widgets.buttons import Button, Segmented, Toggle
from app.widgets.cards import Card, EmptyState, page_head
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import hbox, holder, vbox
from app.widgets.log_list import MAX_LINES, LogFilter, LogLine, LogList, LogModel, as_text
from app.wording import tr, tr_count

_SOURCES = ("", "app", "engine", "job")
_LEVELS = ("info", "warning", "error")


class Logs(Protocol):
    """What the page needs: lines so far, new ones as they come, and the folder of the files."""

    @property
    def lines_added(self) -> SignalInstance: ...  # noqa: D102
    @property
    def lines(self) -> Sequence[LogLine]: ...  # noqa: D102

    def open_folder(self) -> None:
        """Show the folder of the log files in the desktop's file manager."""


class LogsView(QWidget):
    """The page. Follow off holds the list still; new lines wait and are counted below."""

    def __init__(self, vm: Logs) -> None:
        super().__init__()
        self._vm = vm
        self._kept: list[LogLine] = list(vm.lines)
        self._waiting: list[LogLine] = []
        self.model = LogModel(self)
        self.list = LogList(self.model)
        sources = (tr("All"), tr("App"), tr("Engine"), tr("Jobs"))
        levels = (tr("Info"), tr("Warnings"), tr("Errors"))
        self.sources = Segmented(sources, name=tr("Source"))
        self.levels = Segmented(levels, name=tr("Least level"))
        self.search = LineField(tr("Search"), "search", 180, name=tr("Search the log"))
        self.follow = Toggle(True, tr("Follow new lines"))
        self.copy = Button(tr("Copy"), "ghost", "copy", small=True)
        self.copy.set_tip(tr("Copy the selected lines, or all that are shown"))
        self.folder = Button(tr("Open folder"), "ghost", "folder", small=True)
        self.count = Label("", "meta", "text3")
        self._build()
        self.sources.picked.connect(self._refilter)
        self.levels.picked.connect(self._refilter)
        self.search.textChanged.connect(self._refilter)
        self.follow.toggled.connect(self._set_follow)
        self.copy.clicked.connect(self._copy)
        self.folder.clicked.connect(vm.open_folder)
        vm.lines_added.connect(self._add)
        follow(self.retheme)
        self._refilter()

    def _build(self) -> None:
        self._nothing = EmptyState(tr("No lines yet."), icon="logs")
        self._faces = QStackedLayout()
        self._faces.addWidget(self.list)
        self._faces.addWidget(self._nothing)
        inside = vbox((holder(self._faces), 1), pad=(6, 6, 4, 6))
        head = hbox(self.sources, self.levels, self.search, None, gap=8)
        follow_label = Label(tr("Follow"), "meta", "text2")
        for part in (follow_label, self.follow, self.copy, self.folder):
            head.put(part)
        note = tr("Kept in memory; the files hold more. Conversations are never logged.")
        foot = hbox(
            self.count, 16, None, Icon("shield", 14, "text3"), Elide(note, "meta", "text3"), gap=6
        )
        self.setLayout(
            vbox(page_head(tr("Logs")), head, (Card(inside), 1), foot, gap=10, pad=(20, 12, 20, 14))
        )

    def shortcut(self, name: str) -> bool:
        """Ctrl+K searches here."""
        if name != "search":
            return False
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()
        return True

    def retheme(self) -> None:
        """Say the count in the present language."""
        self._tell()

    def _add(self, lines: Sequence[LogLine]) -> None:
        """Take new lines; hold them back while the list stands still."""
        if not self.follow.isChecked():
            self._waiting = [*self._waiting, *lines][-MAX_LINES:]
            self._tell()
            return
        self._kept = [*self._kept, *lines][-MAX_LINES:]
        self.model.add(lines)
        self.list.scrollToBottom()
        self._tell()

    def _set_follow(self, on: bool) -> None:
        if on:
            waiting, self._waiting = self._waiting, []
            self._add(waiting)
            self.list.scrollToBottom()

    def _refilter(self) -> None:
        level, source = _LEVELS[self.levels.current], _SOURCES[self.sources.current]
        self.model.show(self._kept, LogFilter(source, level, self.search.text()))
        if self.follow.isChecked():
            self.list.scrollToBottom()
        self._tell()

    def _copy(self) -> None:
        text = "\n".join(as_text(line) for line in self.list.chosen())
        QGuiApplication.clipboard().setText(text)

    def _tell(self) -> None:
        shown, kept = self.model.rowCount(), len(self._kept)
        self._faces.setCurrentIndex(0 if shown else 1)
        filtered = tr("No line passes the filters.")
        self._nothing.sentence.set_text(filtered if kept else tr("No lines yet."))
        self.copy.setEnabled(shown > 0)
        if self._waiting:
            count = len(self._waiting)
            self.count.set_text(
                tr_count("{count} new line is waiting", "{count} new lines are waiting", count)
            )
            return
        figures = {"shown": f"{shown:,}", "kept": f"{kept:,}", "most": f"{MAX_LINES:,}"}
        self.count.set_text(tr("{shown} of {kept} lines, at most {most}", **figures))
