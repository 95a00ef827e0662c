"""The models folder in Settings: what it holds, the room beside it, and its move with progress."""

from pathlib import Path

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFileDialog

from app.predict import amounts
from app.services.job_state import JobState
from app.theme import follow
from app.viewmodels.models_move import MoveViewModel
from app.views.jobs_parts import job_line
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.labels import Elide
from app.widgets.layout import hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.setting_rows import Row
from app.wording import tr, tr_count


class StorageRow(Row):
    """A row of the Storage section."""

    def __init__(self, vm: MoveViewModel) -> None:
        self._vm = vm
        self._facts = Elide("", "meta", "text2")
        self.move_button = Button(tr("Move…"), small=True, name=tr("Move the models"))
        super().__init__(
            tr("Space of the models"),
            tr("Move them with their downloads; the old folder serves until all is there"),
            self.move_button,
        )
        self._line, self._bar = Elide("", "meta", "text2"), Bar((), 4)
        self._problem = Sentence()
        self.stop = Button(tr("Cancel"), "secondary", small=True)
        self.resume = Button(tr("Resume"), "secondary", "play", small=True)
        self.give_up = Button(tr("Discard the copy"), "secondary", "trash", small=True)
        buttons = hbox((self._line, 1), self.give_up, self.resume, self.stop, gap=8)
        self._progress = holder(vbox(buttons, self._bar, gap=6))
        self._state = holder(vbox(self._problem, self._progress, gap=8, pad=(16, 0, 12, 12)))
        column = self.layout()
        if column is not None:
            column.addWidget(holder(hbox((self._facts, 1), pad=(16, 0, 12, 10))))
            column.addWidget(self._state)
        self.move_button.clicked.connect(self._choose)
        self.stop.clicked.connect(vm.stop)
        self.resume.clicked.connect(vm.resume)
        self.give_up.clicked.connect(vm.give_up)
        vm.changed.connect(self._show)
        follow(self._show)

    def showEvent(self, event: QShowEvent) -> None:
        """Measure when the person looks, not before."""
        super().showEvent(event)
        self._vm.look()

    def _choose(self) -> None:
        title = tr("Choose the new folder of the models")
        chosen = QFileDialog.getExistingDirectory(self, title)
        if chosen:
            self._vm.move(Path(chosen))

    def _show(self) -> None:
        vm, job = self._vm, self._vm.job
        self._facts.set_text(self._fact_words())
        self._facts.set_tip(str(vm.folder))
        self.move_button.setEnabled(job is None)
        self._problem.show_text("refused", vm.problem)
        self._problem.setVisible(bool(vm.problem))
        self._progress.setVisible(job is not None)
        self._state.setVisible(bool(vm.problem) or job is not None)
        if job is not None:
            self._show_job(job)

    def _show_job(self, job: JobState) -> None:
        target = str(self._vm.target or "")
        words = job_line(job)
        if job.phase in ("cancelled", "interrupted"):
            words = tr("Stopped. The old folder serves; what was copied is kept.")
            if job.spec.get("act") == "clean":
                words = tr("Stopped. Some models are still in the old folder too.")
        self._line.set_text(tr("To {path}: {state}", path=target, state=words))
        share = job.share or 0.0
        self._bar.set_parts([("accent" if job.is_open else "warn", share)])
        self._bar.set_name(tr("{share} done", share=amounts.share(share)))
        self.stop.setVisible(job.is_open)
        self.stop.setEnabled(not job.is_cancelling)
        self.resume.setVisible(not job.is_open)
        self.give_up.setVisible(not job.is_open)

    def _fact_words(self) -> str:
        facts = self._vm.facts
        if facts.num_bytes < 0:
            return tr("Not known")
        models = tr_count("{count} model", "{count} models", facts.num_models)
        size = amounts.disk(facts.num_bytes)
        if facts.free_bytes < 0:
            return f"{models} · {size}"
        free = tr("{size} free", size=amounts.disk(facts.free_bytes))
        return f"{models} · {size} · {free}"
