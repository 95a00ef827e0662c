"""The models folder in Settings: what it holds, and its move to another place.

A move is two jobs: a verified copy, then, once the app uses the new folder, the removal of the old
one. Both are on the queue's disk file, so a move goes on after a restart. QtCore only.
"""

from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.engine_client import EngineClient
from app.services.folder_check import folder_problem
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.model_library import ModelLibrary
from app.services.model_store import ModelStore, StoreFacts
from app.services.settings import SettingsStore
from app.wording import figures, tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

JOB = "move"
_HOLDERS = ("download", "convert")  # write into the folder


class MoveViewModel(QObject):
    """See the module.

    Attributes:
        facts: what the newest look found.
        problem: why a move did not begin, or failed; "" = nothing.

    Signals:
        changed(): `facts`, `job` or `problem` differ.
        said(str): a move has ended.
    """

    changed = Signal()
    said = Signal(str)

    def __init__(
        self,
        jobs: JobRunner,
        library: ModelLibrary,
        settings: SettingsStore,
        client: EngineClient,
        store: ModelStore,
    ) -> None:
        super().__init__()
        self._jobs, self._library, self._settings = jobs, library, settings
        self._client, self._store = client, store
        self.facts = StoreFacts(library.target_folder)
        self.problem = ""
        store.measured.connect(self._on_measured)
        jobs.changed.connect(self.changed)
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)
        QTimer.singleShot(0, self, self._go_on)

    # --- facts ------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Where models are kept now."""
        return self._library.target_folder

    @property
    def job(self) -> JobState | None:
        """The move that runs, waits, rests or failed; None = there is none."""
        found = [j for j in self._jobs.jobs() if _act(j) in ("copy", "clean") and not _is_import(j)]
        return next((j for j in found if j.phase != "done"), None)

    @property
    def target(self) -> Path | None:
        """Where the move goes."""
        return Path(str(self.job.spec["target"])) if self.job is not None else None

    # --- intents ----------------------------------------------------------------------------

    def look(self) -> None:
        """The section is shown: measure anew."""
        self._store.measure(self.folder)

    def move(self, target: Path) -> None:
        """Begin, unless something stands against it."""
        problem = self._refuse(target)
        self._say(problem)
        if not problem:
            spec: dict[str, object] = {
                "act": "copy",
                "source": str(self.folder),
                "target": str(target),
                "id": JOB,
            }
            self._jobs.start(JOB, spec, tr("Moving the models to {path}", path=target))

    def stop(self) -> None:
        """Stop for now; the old folder works, and what was copied is kept for `resume`."""
        if self.job is not None:
            self._jobs.cancel(self.job.id)

    def resume(self) -> None:
        """Go on, or try again."""
        self._say("")
        if self.job is not None:
            self._jobs.resume(self.job.id)

    def give_up(self) -> None:
        """Remove what was copied; everything stays where it is."""
        job = self.job
        if job is None or job.is_open:
            return
        self._say("")
        self._jobs.dismiss(job.id)
        if _act(job) == "copy":
            self._jobs.start(JOB, job.spec | {"act": "drop"}, tr("Removing the unfinished copy"))

    # --- events -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """The app may have ended between the copy and the removal."""
        for job in self._jobs.jobs():
            if job.phase == "done" and _act(job) == "copy" and not _is_import(job):
                self._use(job)

    def _on_done(self, job_id: str, event: m.JobDone) -> None:
        job = self._jobs.job(job_id)
        if job is None or event.job != JOB or _is_import(job):
            return
        if _act(job) == "copy":
            self._use(job)
            return
        self._jobs.dismiss(job_id)
        if _act(job) == "clean":
            self._tell_end(job)

    def _on_failed(self, job_id: str, event: m.Error) -> None:
        if self.job is not None and self.job.id == job_id and event.code is not ErrorCode.CANCELLED:
            self._say(f"{event.message} {event.hint}".strip())

    def _on_measured(self, facts: StoreFacts) -> None:
        if facts.folder == self.folder and facts != self.facts:
            self.facts = facts
            self.changed.emit()

    # --- parts ------------------------------------------------------------------------------

    def _refuse(self, target: Path) -> str:
        """Say why the models cannot go to a folder; "" if it can be tried."""
        source, model = self.folder, self._client.model
        if target == source:
            return tr("The models are in {path} already.", path=target)
        if source in target.parents or target in source.parents:
            return tr("{path} and the present folder lie in each other.", path=target)
        problem = folder_problem(target)
        if problem:
            return problem
        if model is not None and Path(model.path).is_relative_to(source):
            return tr("{name} is loaded from there. Unload it first.", name=model.name)
        if any(job.is_open and job.job in (*_HOLDERS, JOB) for job in self._jobs.jobs()):
            return tr("A download, conversion or move is under way. Pause or cancel it first.")
        return ""

    def _use(self, job: JobState) -> None:
        """All is copied and verified: look there from now on, then remove the old ones."""
        old, new = Path(str(job.spec["source"])), Path(str(job.spec["target"]))
        last = self._settings.value.last_model
        if last and Path(last).is_relative_to(old):
            last = str(new / Path(last).relative_to(old))
        self._settings.set(models_folder=str(new), last_model=last)
        self._jobs.relocate(old, new)
        self._jobs.dismiss(job.id)
        title = tr("Removing the models from {path}", path=old)
        self._jobs.start(JOB, {**job.spec, "act": "clean"}, title)
        self._library.refresh()

    def _tell_end(self, job: JobState) -> None:
        kept = job.result.get("kept")
        if isinstance(kept, list) and kept:
            names = ", ".join(str(name) for name in kept)
            self._say(tr("Moved, but these are still in the old folder too: {names}", names=names))
        else:
            self.said.emit(_end_words(job))
        self._library.refresh()
        self.look()

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            self.problem = sentence
            self.changed.emit()


def _end_words(job: JobState) -> str:
    size, path = job.result.get("num_bytes", 0), job.spec["target"]
    if not isinstance(size, int) or not size:  # renamed on the same disk
        return tr("The models are in {path} now.", path=path)
    freed = figures.file_size(size)
    return tr("The models are in {path} now, {size} freed.", path=path, size=freed)


def _act(job: JobState) -> str:
    return str(job.spec.get("act", "")) if job.job == JOB else ""


def _is_import(job: JobState) -> bool:
    """Whether one model is copied in; that is the Models page's."""
    return job.spec.get("keep") is True
