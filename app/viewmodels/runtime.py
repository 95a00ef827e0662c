"""The engine's libraries: which are offered, the installation as a job, and its end. QtCore only.

Shown as a card in the first run of a shell and in Settings, About. Knows no view.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.runtime_build import BuildFacts, LockFile, runtime_in_use
from app.services.settings import SettingsStore
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.protocol.places import DataRoot
from engine.protocol.runtime_lock import Build, RuntimeLock, installed_lock

JOB = "runtime"

Need = Literal["missing", "outdated", "installed", "bundled"]


class RuntimeViewModel(QObject):
    """See the module.

    Args:
        jobs, settings, root: where it is done and kept.
        build: stamp of this program.
        locks: what can be installed here.
        wants_cuda: whether a driver is there, so that CUDA is offered first.

    Attributes:
        chosen: build of torch that the button installs; None = nothing fits this program.
        problem: why the last try failed, "" = it did not.

    Signals:
        changed(): anything differs.
        installed(): another runtime is there; the engine takes it from its next start on.
        stop_wanted(): the engine must let go of the present one, which is replaced.
    """

    changed = Signal()
    installed = Signal()
    stop_wanted = Signal()

    def __init__(
        self,
        jobs: JobRunner,
        settings: SettingsStore,
        root: DataRoot,
        build: BuildFacts,
        locks: Sequence[LockFile],
        wants_cuda: bool,
    ) -> None:
        super().__init__()
        self._jobs, self._settings, self._root = jobs, settings, root
        self._build, self._locks = build, {entry.lock.build: entry for entry in locks}
        order: tuple[Build, ...] = ("cuda", "cpu") if wants_cuda else ("cpu", "cuda")
        self.chosen: Build | None = next((key for key in order if key in self._locks), None)
        self.problem = ""
        if self.need == "outdated" and self.present is not None:
            self.chosen = self.present.build  # the newer ones of the same kind
        jobs.changed.connect(self.changed)
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)
        settings.changed.connect(self.changed)
        QTimer.singleShot(0, self, self._tidy)

    # --- facts ------------------------------------------------------------------------------

    @property
    def need(self) -> Need:
        """Whether something must be installed before a model can be loaded, or should be.

        "outdated": they work, but this version of the program was tried with others of their kind.
        """
        present = self.present
        if present is None:
            return "missing" if self._build.bundle == "shell" else "bundled"
        listed = self._locks.get(present.build)
        return "installed" if listed is None or listed.lock.key == present.key else "outdated"

    @property
    def builds(self) -> tuple[Build, ...]:
        """What can be chosen, CPU first."""
        return tuple(sorted(self._locks))

    @property
    def offer(self) -> RuntimeLock | None:
        """What the button would install."""
        return self._locks[self.chosen].lock if self.chosen else None

    @property
    def present(self) -> RuntimeLock | None:
        """What is installed and in use."""
        locks = tuple(self._locks.values())
        folder = runtime_in_use(self._root.runtime, self._build.bundle, locks)
        return installed_lock(folder) if folder else None

    @property
    def is_current(self) -> bool:
        """Whether the offered libraries are the installed ones."""
        present, offer = self.present, self.offer
        return present is not None and offer is not None and present.key == offer.key

    @property
    def folder(self) -> Path:
        """Where it goes."""
        return self._root.runtime

    @property
    def mirror(self) -> str:
        """The index that the person chose, "" = the usual one."""
        return self._settings.value.runtime_index

    @property
    def job(self) -> JobState | None:
        """The installation that runs, waits, rests or failed; None = there is none."""
        found = [job for job in self._jobs.jobs() if _installs(job)]
        return next((job for job in reversed(found) if job.phase != "done"), None)

    # --- intents ----------------------------------------------------------------------------

    def choose(self, build: Build) -> None:
        """Offer another build."""
        if build in self._locks and build != self.chosen:
            self.chosen = build
            self.changed.emit()

    def set_mirror(self, address: str) -> None:
        """Fetch from another index from now on; "" = from the usual one."""
        self._settings.set(runtime_index=address.strip())

    def install(self) -> None:
        """Begin, or install again what is there."""
        if self.chosen is None:
            return
        entry = self._locks[self.chosen]
        self._start({"lock": str(entry.path), "key": entry.lock.key}, self.is_current)

    def install_bundle(self, path: Path) -> None:
        """Install from an offline bundle."""
        self._start({"bundle": str(path)}, True)

    def cancel(self) -> None:
        """Stop for now; what was fetched is kept for `resume`."""
        if self.job is not None:
            self._jobs.cancel(self.job.id)

    def resume(self) -> None:
        """Go on, or try again."""
        job = self.job
        if job is not None:
            self._say("")
            self._jobs.resume(job.id)

    def discard(self) -> None:
        """Put an unfinished installation away, with what was fetched."""
        job = self.job
        if job is None or job.is_open:
            return
        self._jobs.dismiss(job.id)
        self._say("")
        self._clean("")

    # --- parts ------------------------------------------------------------------------------

    def _start(self, spec: dict[str, object], repair: bool) -> None:
        job = self.job
        if job is not None and job.is_open:
            return
        if job is not None:
            self._jobs.dismiss(job.id)
        self._say("")
        if repair:
            self.stop_wanted.emit()
        addresses = {"channels": self._build.indexes, "mirror": self.mirror}
        full: dict[str, object] = {"id": JOB, "repair": repair, **addresses, **spec}
        self._jobs.start(JOB, full, tr("Engine runtime"))

    def _clean(self, keep: str) -> None:
        spec: dict[str, object] = {"id": JOB, "act": "clean", "keep": keep}
        self._jobs.start(JOB, spec, tr("Removing what is not needed any more"))

    def _tidy(self) -> None:
        """After a start nobody uses a runtime that was replaced."""
        finished = [f for f in _folders(self._root.runtime) if installed_lock(f) is not None]
        if len(finished) > 1:
            self._clean(str(self.job.spec.get("key", "")) if self.job else "")

    def _on_done(self, job_id: str, event: m.JobDone) -> None:
        job = self._jobs.job(job_id)
        if event.job != JOB or job is None:
            return
        if not _installs(job):
            self._jobs.dismiss(job_id)
            return
        self._say("")
        self.installed.emit()
        self.changed.emit()

    def _on_failed(self, job_id: str, event: m.Error) -> None:
        job = self._jobs.job(job_id)
        if job is not None and _installs(job) and event.code is not ErrorCode.CANCELLED:
            self._say(f"{event.message} {event.hint}".strip())

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            self.problem = sentence
            self.changed.emit()


def _installs(job: JobState) -> bool:
    return job.job == JOB and "act" not in job.spec


def _folders(runtime: Path) -> tuple[Path, ...]:
    try:
        return tuple(runtime.iterdir())
    except OSError:
        return ()
