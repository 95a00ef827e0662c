"""The Models page's state: what is installed, what is being converted, what went wrong.

Lists the library, starts conversions as jobs, hands loading to the session. QtCore only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.predict.fit import FitAdvice, judge_fit
from app.services.engine_client import EngineClient
from app.services.gpu_meter import GpuMeter, MeterReading
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.model_library import ModelEntry, ModelLibrary, SkipNote, targets_of
from app.services.model_scan import INDEX_NAME, read_ftw
from app.viewmodels.flows import is_flow
from app.viewmodels.jobs import JobRow, Speeds, stage_of
from app.viewmodels.session import SessionViewModel
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

SHOWN_JOBS = ("convert", "verify")
_GRAIN = 256 << 20  # free memory is judged in steps, so that a chip does not flicker

RowState = Literal["loaded", "loading", "ready", "source"]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One installed model, its state, and how it fits this machine."""

    entry: ModelEntry
    state: RowState
    fit: FitAdvice


class ModelsViewModel(QObject):
    """See the module.

    Signals:
        rows_changed(): `rows`, `notes` or `missing` differ.
        jobs_changed(): `jobs` differ.
        problem_changed(): `problem` differs.
        freed(str, int): a model was deleted: its name and the bytes.
    """

    rows_changed = Signal()
    jobs_changed = Signal()
    problem_changed = Signal()
    freed = Signal(str, object)  # int is 32 bits wide

    def __init__(
        self,
        library: ModelLibrary,
        jobs: JobRunner,
        client: EngineClient,
        session: SessionViewModel,
        meter: GpuMeter | None = None,
    ) -> None:
        super().__init__()
        self._library, self._jobs, self._client, self._session = library, jobs, client, session
        self._ram = (0, 0)  # total, free
        self._loading: Path | None = None  # asked for here
        self._coming = ""  # name of what the session loads
        self._speeds = Speeds(jobs)
        self.rows: tuple[ModelRow, ...] = ()
        self.jobs: tuple[JobRow, ...] = ()
        self.problem = ""
        library.changed.connect(self._renew_rows)
        library.deleted.connect(self._on_deleted)
        library.not_deleted.connect(self._on_not_deleted)
        for signal in (client.loaded, client.unloaded, client.stopped, client.failed):
            signal.connect(self._on_engine)
        session.changed.connect(self._on_session)
        jobs.changed.connect(self._renew_jobs)
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)
        if meter is not None:
            meter.reading.connect(self._on_reading)
        self._renew_rows()
        self._renew_jobs()

    # --- facts ------------------------------------------------------------------------------

    @property
    def is_scanned(self) -> bool:
        """Whether the folders were looked at."""
        return self._library.is_scanned

    @property
    def folder(self) -> Path:
        """Where imported models go."""
        return self._library.target_folder

    @property
    def missing(self) -> tuple[Path, ...]:
        """Models folders that are not there now."""
        return self._library.missing

    @property
    def notes(self) -> tuple[SkipNote, ...]:
        """What the list leaves out, and why."""
        return self._library.notes

    @property
    def total_bytes(self) -> int:
        """Bytes of all converted models."""
        return sum(row.entry.total_bytes for row in self.rows if row.entry.kind == "ftw")

    # --- intents ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look into the folders again (case C-07)."""
        self._library.refresh()

    def load(self, path: Path) -> None:
        """Load a model; one that came with the app is prepared first."""
        self._say("")
        self._loading = path
        self._session.load(str(path))
        self._renew_rows()

    def unload(self) -> None:
        """Free the loaded model."""
        self._session.unload()

    def import_folders(self, paths: tuple[Path, ...]) -> None:
        """Take in what was chosen or dropped: a checkpoint is converted, a converted model copied.

        What is neither is named (case G-04). Originals stay.
        """
        self._say("")
        for given in paths:
            path = given.parent if given.name == INDEX_NAME and given.is_file() else given
            reason = self._refuse(path)
            if reason:
                self._say(reason)
            elif (path / INDEX_NAME).is_file():
                self._copy(path)
            else:
                self._convert(path)

    def verify(self, path: Path) -> None:
        """Read a converted model and hold every byte against its checksum, as a job."""
        row = next((r for r in self.rows if r.entry.path == path), None)
        checked = any(j.is_open and j.spec.get("model") == str(path) for j in self._jobs.jobs())
        if row is not None and row.entry.kind == "ftw" and not checked:
            name = row.entry.name
            self._jobs.start("verify", {"model": str(path), "id": name}, name)

    def delete(self, path: Path) -> None:
        """Delete a converted model for good; a loaded one is kept."""
        row = next((r for r in self.rows if r.entry.path == path), None)
        if row is not None and row.state not in ("loaded", "loading"):
            self._library.delete(path)

    def cancel(self, job_id: str) -> None:
        """End a conversion; nothing half-written stays."""
        self._jobs.cancel(job_id)

    def retry(self, job_id: str) -> None:
        """Begin a failed or interrupted conversion again."""
        self._jobs.resume(job_id)

    def dismiss(self, job_id: str) -> None:
        """Take a conversion that is over from the page."""
        self._jobs.dismiss(job_id)

    def dismiss_problem(self) -> None:
        """Take the sentence from the page."""
        self._say("")

    # --- events -----------------------------------------------------------------------------

    def _on_deleted(self, entry: ModelEntry, num_bytes: int) -> None:
        self.freed.emit(entry.name, num_bytes)

    def _on_not_deleted(self, path: Path, why: str) -> None:
        names = (row.entry.name for row in self.rows if row.entry.path == path)
        name = next(names, path.name)
        self._say(tr("{name} could not be deleted: {why}", name=name, why=why))

    def _on_engine(self, *_: object) -> None:
        self._loading = None
        self._renew_rows()

    def _on_session(self) -> None:
        """The session may load a model by itself, at the start or after a restart."""
        busy = self._session.state is m.EngineState.LOADING
        coming = self._session.model_name if busy else ""
        if coming != self._coming:
            self._coming = coming
            self._renew_rows()

    def _on_done(self, _job_id: str, event: m.JobDone) -> None:
        if event.job in ("convert", "move"):
            self._library.refresh()

    def _on_failed(self, job_id: str, event: m.Error) -> None:
        job = self._jobs.job(job_id)
        if event.code is ErrorCode.CANCELLED and job is not None and _is_shown(job):
            self._jobs.dismiss(job_id)

    def _on_reading(self, reading: MeterReading) -> None:
        free = (reading.ram_total - reading.ram_used) // _GRAIN * _GRAIN
        if (reading.ram_total, free) != self._ram:
            self._ram = (reading.ram_total, free)
            self._renew_rows()

    # --- parts ------------------------------------------------------------------------------

    def _refuse(self, path: Path) -> str:
        """Say why a path cannot be imported; "" if it can be tried."""
        if not path.exists():
            return tr("{path} is not there.", path=path)
        if not path.is_dir():
            return tr("{name} is a file. Drop the folder that holds the model.", name=path.name)
        if (path / INDEX_NAME).is_file():
            return self._refuse_copy(path)
        if not (path / "config.json").is_file():
            return tr(
                "{name} has no config.json: it is not the folder of a published model.",
                name=path.name,
            )
        for job in self._jobs.jobs():
            if job.job == "convert" and job.is_open and job.spec.get("source") == str(path):
                return tr("{name} is being converted already.", name=path.name)
        return ""

    def _refuse_copy(self, path: Path) -> str:
        """Say why a converted model cannot be copied in."""
        if path.parent in self._library.folders:
            self._library.refresh()
            return tr("{name} is in the models folder already.", name=path.name)
        try:
            read_ftw(path)
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            return tr("{name} cannot be imported: {why}", name=path.name, why=why or "")
        if self._library.is_taken(path.name):
            return tr(
                "There is another {name} in the models folder. Rename one of the two folders.",
                name=path.name,
            )
        for job in self._jobs.jobs():
            if job.is_open and _is_import(job) and job.spec.get("names") == [path.name]:
                return tr("{name} is being copied already.", name=path.name)
        return ""

    def _copy(self, path: Path) -> None:
        """Copy a converted model into the models folder."""
        try:
            self._library.target_for(path.name)  # the folder must be there (D-17)
        except OSError as problem:
            self._say(tr("Nothing was imported: {why}", why=problem.strerror or str(problem)))
            return
        spec: dict[str, object] = {
            "act": "copy",
            "source": str(path.parent),
            "target": str(self.folder),
            "names": [path.name],
            "keep": True,
            "id": path.name,
        }
        self._jobs.start("move", spec, path.name)

    def _convert(self, path: Path) -> None:
        try:
            target = self._library.target_for(path.name, targets_of(self._jobs.jobs()))
        except OSError as problem:
            self._say(tr("Nothing was imported: {why}", why=problem.strerror or str(problem)))
            return
        spec: dict[str, object] = {
            "source": str(path),
            "target": str(target),
            "room_at": str(target.parent),
            "id": path.name,
        }
        self._jobs.start("convert", spec, path.name)

    def _renew_rows(self, *_: object) -> None:
        model = self._client.model
        loaded = Path(model.path) if model is not None else None
        total, free = self._ram
        rows = []
        for entry in self._library.entries():
            state: RowState = "source" if entry.kind == "builtin_source" else "ready"
            if entry.path == loaded:
                state = "loaded"
            elif entry.path == self._loading or entry.name == self._coming:
                state = "loading"
            used = entry.ram_bytes if state == "loaded" else 0  # it has its memory already
            rows.append(ModelRow(entry, state, judge_fit(entry.ram_bytes, total, free + used)))
        self.rows = tuple(rows)
        self.rows_changed.emit()

    def _renew_jobs(self) -> None:
        self.jobs = tuple(
            JobRow(job, stage_of(job), self._speeds.of(job.id))
            for job in self._jobs.jobs()
            if _is_shown(job) and job.phase not in ("done", "cancelled")
        )
        self.jobs_changed.emit()

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            self.problem = sentence
            self.problem_changed.emit()


def _is_shown(job: JobState) -> bool:
    """Whether a job is an import of this page; what comes from the hub has lines of its own."""
    return (job.job in SHOWN_JOBS and not is_flow(job)) or _is_import(job)


def _is_import(job: JobState) -> bool:
    """Whether a job copies a converted model into the models folder."""
    return job.job == "move" and job.spec.get("keep") is True
