"""Logs: one list, three sources, levels by sign and word."""

from pathlib import Path

from PySide6.QtCore import QSize, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QStackedLayout, QWidget

from app.theme import SIZE, follow, px
from app.viewmodels.logs import LEVELS, SOURCES, LogModel, LogsViewModel
from app.views.diagnostics import DiagnosticsDialog
from app.widgets.buttons import Button, Segmented, Toggle
from app.widgets.cards import Card, EmptyState, page_head
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import fixed, hbox, holder, turn, vbox
from app.widgets.log_list import LogList
from app.wording import tr

NARROW_BELOW = 740  # px of page width


class LogsView(QWidget):
    """The page. Follow off holds the list still."""

    def __init__(self, vm: LogsViewModel) -> None:
        super().__init__()
        self._vm = vm
        self.list = LogList(vm.model, LogModel.LineRole)
        self.sources = Segmented([text for _, text in SOURCES], name=tr("Source"))
        self.levels = Segmented([text for _, text in LEVELS], name=tr("Least level"))
        self.search = LineField(tr("Search"), "search", name=tr("Search the log"))
        fixed(self.search, min_width=84, max_width=220)
        self.follow = Toggle(vm.follow, tr("Follow new lines"))
        self.copy = Button(tr("Copy"), "ghost", "copy", small=True)
        self.copy.set_tip(tr("Copy the selected lines, or all that are shown"))
        self.folder = Button(tr("Open folder"), "ghost", "folder", small=True)
        self.save = Button(tr("Save report"), "secondary", "save")
        self.diagnostics = Button(tr("Copy diagnostics…"), "secondary", "shield")
        self.diagnostics.setVisible(vm.diagnostics is not None)
        self.count = Label("", "meta", "text3")
        self.said = Elide("", "meta", "danger")
        self._build()
        self._connect()
        follow(self.retheme)

    def _build(self) -> None:
        self.all_lines = Button(tr("Show all lines"), "secondary", small=True)
        self._nothing = EmptyState(tr("No lines yet."), self.all_lines, icon="logs")
        self._faces = QStackedLayout()
        self._faces.addWidget(self.list)
        self._faces.addWidget(self._nothing)
        inside = vbox((holder(self._faces), 1), pad=(6, 6, 4, 6))
        choices = hbox(self.sources, self.levels, "flex", gap=8)
        rest = hbox((self.search, 1), "flex", gap=8)
        for part in (Label(tr("Follow"), "meta", "text2"), self.follow):
            rest.put(part)
        self._head = hbox(choices, (rest, 1), gap=8)
        note = tr("Keys, mail addresses and user names are removed from reports.")
        promise = hbox(Icon("shield", 14, "text3"), Label(note, "meta", "text3"), None, gap=6)
        self._foot = hbox((hbox(self.count, (self.said, 1), gap=6), 1), promise, gap=6)
        reports = hbox("flex", self.save, self.diagnostics, gap=8)
        self._title = hbox((page_head(tr("Logs"), self.copy, self.folder), 1), reports, gap=8)
        lines = (self._title, self._head, (Card(inside), 1), self._foot)
        self.setLayout(vbox(*lines, gap=10, pad=(20, 12, 20, 14)))

    def _connect(self) -> None:
        vm = self._vm
        self.sources.picked.connect(self._pick_source)
        self.levels.picked.connect(self._pick_level)
        self.search.textChanged.connect(vm.set_search)
        self.all_lines.clicked.connect(self._show_all)
        self.follow.toggled.connect(vm.set_follow)
        self.copy.clicked.connect(self._copy)
        self.folder.clicked.connect(self._open_folder)
        self.save.clicked.connect(self._save)
        self.diagnostics.clicked.connect(self.show_diagnostics)
        vm.changed.connect(self.retheme)
        bar = self.list.verticalScrollBar()
        bar.rangeChanged.connect(self._scroll)  # new lines, or another height
        bar.actionTriggered.connect(self._scrolled)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Two lines where one has no room."""
        super().resizeEvent(event)
        narrow = self.width() < px(NARROW_BELOW)
        turn(self._title, narrow)
        turn(self._head, narrow)
        turn(self._foot, narrow)

    def minimumSizeHint(self) -> QSize:
        """Narrow windows get two lines."""
        return QSize(px(400), px(240))

    def shortcut(self, name: str) -> bool:
        """Ctrl+F searches here; the report of trouble is shown here too."""
        if name == "diagnostics" and self._vm.diagnostics is not None:
            self.show_diagnostics()
            return True
        if name != "search":
            return False
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()
        return True

    def retheme(self) -> None:
        """Say counts in the present language."""
        shown = self._vm.model.rowCount()
        self._faces.setCurrentIndex(0 if shown else 1)
        is_filtered = self._vm.is_filtered
        words = tr("No line passes the filters.") if is_filtered else tr("No lines yet.")
        self._nothing.sentence.set_text(words)
        self.all_lines.setVisible(is_filtered)
        self.copy.setEnabled(shown > 0)
        self.save.setEnabled(shown > 0)
        self.count.set_text(self._vm.count_text)

    def show_diagnostics(self) -> DiagnosticsDialog | None:
        """Open the report; None = there is none."""
        if self._vm.diagnostics is None:
            return None
        dialog = DiagnosticsDialog(self._vm.diagnostics, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        return dialog

    def _pick_source(self, index: int) -> None:
        self._vm.set_source(SOURCES[index][0])

    def _pick_level(self, index: int) -> None:
        self._vm.set_level(LEVELS[index][0])

    def _show_all(self) -> None:
        self.sources.set_current(0)
        self.levels.set_current(0)
        self._vm.set_source("all")
        self._vm.set_level("info")
        self.search.clear()

    def _scroll(self) -> None:
        if self._vm.follow:
            self.list.scrollToBottom()

    def _scrolled(self) -> None:
        """Who scrolls up wants to read: new lines wait."""
        bar = self.list.verticalScrollBar()
        if bar.sliderPosition() < bar.maximum() - px(SIZE["logRow"]):
            self.follow.setChecked(False)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._vm.text(self.list.chosen()))

    def _open_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._vm.folder)))

    def _save(self) -> None:
        name = str(Path.home() / "freetoken-log.txt")
        path, _ = QFileDialog.getSaveFileName(self, tr("Save report"), name)
        if path:
            self.said.set_text(self._vm.save_report(Path(path)))
