"""Models: what is under way on top, then the tabs: what is installed, what can be fetched, jobs.

Places widgets and binds them to the view model; decides nothing.
"""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QWidget

from app.predict import amounts
from app.theme import follow, px
from app.viewmodels.discover import DiscoverViewModel
from app.viewmodels.jobs import JobsViewModel
from app.viewmodels.models import ModelsViewModel
from app.views.discover import DiscoverPanel
from app.views.discover_flows import FlowsBox
from app.views.jobs import JobsPanel
from app.views.jobs_parts import JobRowView
from app.views.models_parts import (
    ACTION_W,
    FIT_W,
    NARROW_FIT_W,
    SIZE_W,
    STATE_W,
    DeleteDialog,
    ModelRowView,
    dropped_paths,
)
from app.widgets.buttons import Button, Segmented
from app.widgets.cards import Card, EmptyState, page_head
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import Item, Scroll, fixed, hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.rows import arrange_rows
from app.wording import tr, tr_count

NARROW_BELOW, SLIM_BELOW = 900, 600  # px of page width
_MOST_NOTES = 5
INSTALLED, DISCOVER, JOBS = range(3)


class ModelsView(QWidget):
    """The page. Folders can be dropped anywhere on it (case G-04).

    Args:
        vm: what is installed.
        discover: what can be fetched; without it there are no tabs.
        jobs: what runs, waits or is over; a tab of its own.
    """

    def __init__(
        self,
        vm: ModelsViewModel,
        discover: DiscoverViewModel | None = None,
        jobs: JobsViewModel | None = None,
    ) -> None:
        super().__init__()
        self._vm, self._discover, self._job_list = vm, discover, jobs
        self._rows: dict[Path, ModelRowView] = {}
        self._jobs: dict[str, JobRowView] = {}
        self.setAcceptDrops(True)
        self.refresh = Button("", "ghost", "retry", name=tr("Look again"))
        self.import_button = Button(tr("Import folder…"), "secondary", "folder")
        self._make_bands()
        self._list = vbox(gap=0)
        self._list_card = Card(self._list)
        self._head_row = self._header()
        self._empty = Card(vbox(self._make_empty()))
        self._notes = Label("", "meta", "text3", wrap=True)
        self._job_box = vbox(gap=10)
        self._imports = holder(self._job_box)
        self._installed = holder(
            vbox(
                self._place_card,
                vbox(self._head_row, self._list_card, self._empty, gap=6),
                self._drop_card,
                self._notes,
                gap=12,
            )
        )
        body = vbox(
            page_head(tr("Models"), self.refresh, self.import_button),
            self._problem_band,
            self._missing_band,
            self._imports,
            *self._make_tabs(discover, jobs),
            self._installed,
            None,
            gap=12,
            pad=(20, 12, 20, 14),
        )
        self.setLayout(vbox(Scroll(holder(body)), gap=0))
        self._connect()
        self._is_narrow = self._is_slim = False
        follow(self._show_rows)
        follow(self._show_jobs)
        follow(self._show_problem)

    def _make_tabs(
        self, discover: DiscoverViewModel | None, jobs: JobsViewModel | None
    ) -> tuple[Item, ...]:
        self.panel: DiscoverPanel | None = None
        self.flows: FlowsBox | None = None
        self.job_panel: JobsPanel | None = None
        if discover is None:
            return ()
        self.panel = DiscoverPanel(discover)
        self.flows = FlowsBox(discover.flows)
        self.flows.load_asked.connect(self._vm.load)
        self._panels: list[QWidget] = [self._installed, self.panel]
        words = [tr("Installed"), tr("Discover")]
        if jobs is not None:
            self.job_panel = JobsPanel(jobs)
            self.job_panel.load_asked.connect(self._vm.load)
            self.job_panel.discover_asked.connect(self._help_out)
            self._panels.append(self.job_panel)
            words.append(tr("Jobs"))
            jobs.changed.connect(self._count_jobs)
        self.tabs = Segmented(words, name=tr("Models"))
        self.tabs.picked.connect(self.show_tab)
        for panel in self._panels[1:]:
            panel.hide()
        self._count_jobs()
        return (self.flows, hbox(self.tabs, None), *self._panels[1:])

    def show_tab(self, index: int) -> None:
        """Show what is installed, what can be fetched, or the jobs."""
        if self._discover is None or self.flows is None:
            return
        self.tabs.set_current(index)
        for number, panel in enumerate(self._panels):
            panel.setVisible(number == index)
        self.flows.set_wanted(index != JOBS)  # the jobs have them all
        self._show_imports()
        if index == DISCOVER:
            self._discover.look()

    def _count_jobs(self) -> None:
        if self._job_list is None:
            return
        count = self._job_list.num_open
        self.tabs.set_words(JOBS, tr("Jobs {count}", count=count) if count else tr("Jobs"))

    def _make_bands(self) -> None:
        self._problem = Sentence()
        self._close = Button("", "ghost", "x", small=True, name=tr("Dismiss"))
        self._problem_band = Card(
            hbox((self._problem, 1), self._close, gap=8, pad=(16, 9, 10, 9)), edge="danger"
        )
        self._missing = Sentence()
        again = Button(tr("Look again"), "secondary", small=True)
        again.clicked.connect(self._vm.refresh)
        self._missing_band = Card(hbox((self._missing, 1), again, gap=8, pad=(16, 9, 10, 9)))
        self._where = Elide("", "body", "text", 500)
        self._sum = Label("", "meta", "text3")
        self._place_card = Card(
            hbox(Icon("disk", 16), (self._where, 1), self._sum, gap=8, pad=(16, 10, 16, 10))
        )
        words = tr("Drop a model's folder or model.ftw here to import it. The original stays.")
        self._drop_words = Label(words, "meta", "text3")
        self._drop_card = Card(
            hbox(
                None,
                Icon("download", 16, "text3"),
                self._drop_words,
                None,
                gap=8,
                pad=(12, 16, 12, 16),
            ),
            fill="canvas",
        )

    def _make_empty(self) -> QWidget:
        words = tr("Import the folder of a published checkpoint; it is converted once.")
        self._empty_button = Button(tr("Import folder…"), "secondary", "folder")
        if self._discover is not None:
            words = tr("Choose one that fits this PC, or import the folder of a checkpoint.")
            self._empty_button = Button(tr("Discover models"), "primary", "search")
        self._empty_state = EmptyState(tr("No models yet."), self._empty_button, "models", words)
        return self._empty_state

    def _header(self) -> QWidget:
        def head(text: str, width: int, right: bool = False) -> Label:
            label = Label(text, "caption", "text3", 500)
            if right:
                label.setAlignment(Qt.AlignmentFlag.AlignRight)
            return fixed(label, width)

        self._fit_head = head(tr("Fit on this PC"), FIT_W)
        self._state_head = head(tr("State"), STATE_W)
        self._size_head = head(tr("Size"), SIZE_W, right=True)
        return holder(
            hbox(
                (Label(tr("Model"), "caption", "text3", 500), 1),
                self._state_head,
                self._fit_head,
                self._size_head,
                head("", ACTION_W),
                gap=12,
                pad=(16, 0, 10, 0),
            )
        )

    def _connect(self) -> None:
        vm = self._vm
        vm.rows_changed.connect(self._show_rows)
        vm.jobs_changed.connect(self._show_jobs)
        vm.problem_changed.connect(self._show_problem)
        self._close.clicked.connect(vm.dismiss_problem)
        self.refresh.clicked.connect(vm.refresh)
        self.import_button.clicked.connect(self._choose_folder)
        self._empty_button.clicked.connect(self._help_out)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out what does not fit."""
        super().resizeEvent(event)
        narrow, slim = self.width() < px(NARROW_BELOW), self.width() < px(SLIM_BELOW)
        if (narrow, slim) != (self._is_narrow, self._is_slim):
            self._is_narrow, self._is_slim = narrow, slim
            self._state_head.setVisible(not slim)
            self._size_head.setVisible(not slim)
            self._drop_words.setWordWrap(slim)
            fixed(self._fit_head, NARROW_FIT_W if narrow else FIT_W)
            self._fit_head.set_text(tr("Fit") if narrow else tr("Fit on this PC"))
            for row in self._rows.values():
                row.set_narrow(narrow, slim)
            for job in self._jobs.values():
                job.set_narrow(narrow, slim)
            if self.panel is not None and self.flows is not None:
                self.panel.set_narrow(narrow, slim)
                self.flows.set_narrow(narrow, slim)
            if self.job_panel is not None:
                self.job_panel.set_narrow(narrow, slim)

    # --- intents ----------------------------------------------------------------------------

    def _help_out(self) -> None:
        """There is no model: show those that can be fetched, else ask for a folder."""
        if self._discover is None:
            self._choose_folder()
        else:
            self.show_tab(DISCOVER)

    def _choose_folder(self) -> None:
        title = tr("Choose the folder of a published checkpoint")
        chosen = QFileDialog.getExistingDirectory(self, title)
        if chosen:
            self._vm.import_folders((Path(chosen),))

    def _ask_delete(self, path: Path) -> None:
        row = next((r for r in self._vm.rows if r.entry.path == path), None)
        if row is None:
            return
        dialog = DeleteDialog(row.entry.name, row.entry.total_bytes, self)
        dialog.accepted.connect(_Delete(self._vm, path))
        dialog.open()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Show where it goes; what cannot be imported is named after the drop."""
        if dropped_paths(event):
            self._drop_card.set_look(fill="selected", border="accent")
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        """It went away again."""
        self._drop_card.set_look(fill="canvas", border="line")
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        """Import each folder that was dropped."""
        self._drop_card.set_look(fill="canvas", border="line")
        urls = event.mimeData().urls()
        paths = tuple(Path(url.toLocalFile()) for url in urls if url.isLocalFile())
        event.acceptProposedAction()
        self._vm.import_folders(paths)

    # --- binding ----------------------------------------------------------------------------

    def _show_rows(self) -> None:
        vm = self._vm
        wanted = [row.entry.path for row in vm.rows]
        if wanted != list(self._rows):
            self._rows = arrange_rows(self._list, self._rows, wanted, self._make_row)
        for row in vm.rows:
            self._rows[row.entry.path].show_row(row)
        self._list_card.setVisible(bool(vm.rows))
        self._head_row.setVisible(bool(vm.rows))
        self._empty.setVisible(not vm.rows and vm.is_scanned)
        self._where.set_text(str(vm.folder))
        count = sum(row.entry.kind == "ftw" for row in vm.rows)
        models = tr_count("{count} model", "{count} models", count)
        self._sum.set_text(f"{models} · {amounts.disk(vm.total_bytes)}" if count else "")
        if not vm.is_scanned:
            self._sum.set_text(tr("Looking for models"))
        self._missing_band.setVisible(bool(vm.missing))
        missing = ", ".join(str(path) for path in vm.missing)
        words = tr(
            "The models folder {path} is not there. Its models come back with it.", path=missing
        )
        self._missing.show_text("warn", words if vm.missing else "")
        self._show_notes()

    def _make_row(self, path: Path) -> ModelRowView:
        row = ModelRowView(path)
        row.set_narrow(self._is_narrow, self._is_slim)
        row.load_asked.connect(self._vm.load)
        row.unload_asked.connect(self._vm.unload)
        row.delete_asked.connect(self._ask_delete)
        row.verify_asked.connect(self._vm.verify)
        return row

    def _show_notes(self) -> None:
        notes = self._vm.notes
        lines = [f"{note.path.name}: {note.reason}" for note in notes[:_MOST_NOTES]]
        head = tr_count("{count} entry was left out:", "{count} entries were left out:", len(notes))
        self._notes.set_text("\n".join([str(head), *lines]) if notes else "")
        self._notes.setVisible(bool(notes))

    def _show_jobs(self) -> None:
        wanted = {row.job.id: row for row in self._vm.jobs}
        for job_id in [job_id for job_id in self._jobs if job_id not in wanted]:
            card = self._jobs.pop(job_id)
            self._job_box.removeWidget(card)
            card.deleteLater()
        for job_id, row in wanted.items():
            if job_id not in self._jobs:
                card = JobRowView(row.job)
                card.set_narrow(self._is_narrow, self._is_slim)
                card.cancel_asked.connect(self._vm.cancel)
                card.retry_asked.connect(self._vm.retry)
                card.dismiss_asked.connect(self._vm.dismiss)
                self._jobs[job_id] = card
                self._job_box.addWidget(card)
            self._jobs[job_id].show_row(row)

        self._show_imports()

    def _show_imports(self) -> None:
        is_elsewhere = self._discover is not None and self.tabs.current == JOBS
        self._imports.setVisible(bool(self._jobs) and not is_elsewhere)

    def _show_problem(self) -> None:
        self._problem.show_text("refused", self._vm.problem)
        self._problem_band.setVisible(bool(self._vm.problem))


class _Delete:
    """Deletes one model when called; a plain object, so that no closure keeps the page alive."""

    def __init__(self, vm: ModelsViewModel, path: Path) -> None:
        self._vm, self._path = vm, path

    def __call__(self) -> None:
        self._vm.delete(self._path)
