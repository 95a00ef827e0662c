"""From a name on the hub to a model in the library: download, convert, verify, ready, as one line.

A flow is at each moment one job of the runner that bears the repository's name, so its queue on
disk is the flow's too. QtCore only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.downloads import Downloads, Kept, download_folder
from app.services.job_runner import JobRunner
from app.services.job_state import JobExtra, JobState
from app.services.model_library import ModelLibrary, targets_of
from app.services.secrets import SecretStore
from app.services.settings import SettingsStore
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

HUB = "https://huggingface.co"
TOKEN_VARIABLE, PROXY_VARIABLE = "FREETOKEN_HUB_TOKEN", "FREETOKEN_HUB_PROXY"
STAGES = ("check", "download", "convert", "verify", "ready")
_READY = len(STAGES) - 1
_STAGE_OF = {
    "download": {"check": 0, "download": 1, "retry": 1},
    "convert": {"check": 2, "convert": 2, "verify": 3},
}

FlowState = Literal["wait", "run", "paused", "fail", "ready"]
GetState = Literal["busy", "paused", "failed", "installed"]  # of a model that could be fetched
UNDER_WAY: dict[FlowState, GetState] = {
    "wait": "busy",
    "run": "busy",
    "paused": "paused",
    "fail": "failed",
    "ready": "installed",
}
Mend = Literal["", "token", "page", "settings", "fetch"]
_MENDS: dict[ErrorCode, Mend] = {
    ErrorCode.TOKEN: "token",
    ErrorCode.GATED: "page",
    ErrorCode.NETWORK: "settings",
}


@dataclass(frozen=True, slots=True)
class Flow:
    """One model on its way.

    Attributes:
        job: the job that it is now.
        stage: index of STAGES.
        state: "paused" also after the app ended; its bytes are kept.
        mend: what helps against its error, beside trying again.
        source_bytes: of the download, which a ready model does not need any more; 0 = gone.
    """

    repo: str
    title: str
    job: JobState
    stage: int
    state: FlowState
    mend: Mend = ""
    source_bytes: int = 0

    @property
    def can_pause(self) -> bool:
        """Whether a pause makes sense: a conversion begins anew, a download goes on."""
        return self.state in ("run", "wait") and self.job.job == "download"


class FlowsViewModel(QObject):
    """See the module.

    Args:
        jobs: runs them.
        library: where models go.
        settings: hub address and proxy.
        secrets: the access token.
        downloads: removes what is not needed.

    Signals:
        changed(): `flows`, `problem` or `leftovers` differ.
        ended(): one became ready, or its files were removed.
        settings_wanted(): the person wants to see hub address and proxy.
    """

    changed = Signal()
    ended = Signal()
    settings_wanted = Signal()

    def __init__(
        self,
        jobs: JobRunner,
        library: ModelLibrary,
        settings: SettingsStore,
        secrets: SecretStore,
        downloads: Downloads,
    ) -> None:
        super().__init__()
        self._jobs, self._library, self._settings = jobs, library, settings
        self.secrets, self.downloads = secrets, downloads
        self._leaving: set[str] = set()  # jobs that are cancelled for good
        self.flows: tuple[Flow, ...] = ()
        self.problem = ""
        self.leftovers: tuple[Kept, ...] = ()  # downloads on disk that no flow has
        self._kept: tuple[Kept, ...] = ()
        self._has_gone_on = False
        for job in ("download", "search"):
            jobs.set_extra(job, self._surroundings)
        jobs.changed.connect(self._renew)
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)
        downloads.removed.connect(self._on_removed)
        downloads.found.connect(self._on_found)
        library.changed.connect(self._go_on)
        self._renew()
        QTimer.singleShot(0, self, self._sweep)
        QTimer.singleShot(0, self, self._go_on)

    # --- facts ------------------------------------------------------------------------------

    def flow_of(self, repo: str) -> Flow | None:
        """Return the flow of a repository, None = there is none."""
        return next((flow for flow in self.flows if flow.repo == repo), None)

    def page(self, repo: str) -> str:
        """Return the address of the model's page, where its licence is accepted."""
        return f"{HUB}/{repo}"

    # --- intents ----------------------------------------------------------------------------

    def get(self, repo: str, title: str, revision: str = "") -> None:
        """Begin, unless it has begun; `revision` "" = what the main branch holds."""
        self._say("")
        before = self.flow_of(repo)
        if before is not None and before.state == "ready":
            self._jobs.dismiss(before.job.id)
        elif before is not None:
            return
        models = self._library.target_folder
        try:
            self._library.target_for(repo.rpartition("/")[2])  # the folder must be there (D-17)
        except OSError as problem:
            self._say(tr("Nothing was fetched: {why}", why=problem.strerror or str(problem)))
            return
        spec: dict[str, object] = {
            "repo": repo,
            "target": str(download_folder(models, repo)),
            "room_at": str(models),
            "id": repo,
        }
        if revision:
            spec["revision"] = revision
        self.secrets.when_loaded(_Start(self._jobs, spec, title))

    def pause(self, job_id: str) -> None:
        """Stop for now; the bytes are kept, also over a restart of the app."""
        self._jobs.cancel(job_id)

    def resume(self, job_id: str) -> None:
        """Go on, or try again."""
        self._say("")
        job = self._jobs.job(job_id)
        if job is not None and job.job == "download" and job.phase == "done":
            self._convert(job)  # the models folder was away
            return
        self.secrets.when_loaded(_Resume(self._jobs, job_id))

    def give_token(self, job_id: str, token: str) -> None:
        """Take an access token, then try again."""
        if token.strip():
            self.secrets.remember(token)
            self.resume(job_id)

    def fetch_again(self, job_id: str) -> None:
        """Hold a download that could not be converted against the hub; fetch what is damaged."""
        job = self._jobs.job(job_id)
        if job is None or job.job != "convert" or job.phase != "failed" or not _repo(job):
            return
        source = Path(str(job.spec["source"]))
        spec: dict[str, object] = {
            "repo": _repo(job),
            "target": str(source),
            "room_at": str(self._library.target_folder),
            "id": _repo(job),
            "recheck": True,
        }
        self._jobs.dismiss(job_id)
        self.secrets.when_loaded(_Start(self._jobs, spec, job.title))

    def give_up(self, job_id: str) -> None:
        """End it and remove what was fetched."""
        job = self._jobs.job(job_id)
        if job is not None and job.is_open:
            self._leaving.add(job_id)
            self._jobs.cancel(job_id)
        elif job is not None:
            self._leave(job)

    def free_source(self, job_id: str) -> None:
        """Remove the download of a model that is ready."""
        job = self._jobs.job(job_id)
        if job is not None and job.job == "convert" and job.phase == "done":
            self.downloads.remove(Path(str(job.spec["source"])))
            self._jobs.dismiss(job_id)

    def dismiss(self, job_id: str) -> None:
        """Take a ready model's line from the page; its download stays."""
        self._jobs.dismiss(job_id)

    def look(self) -> None:
        """Look for downloads on disk that no line shows (case D-05)."""
        self.downloads.look(self._library.target_folder)

    def delete_leftovers(self) -> None:
        """Remove them."""
        for kept in self.leftovers:
            self.downloads.remove(kept.folder)

    def dismiss_problem(self) -> None:
        """Take the sentence from the page."""
        self._say("")

    # --- events -----------------------------------------------------------------------------

    def _surroundings(self) -> JobExtra:
        """What a job of the network is told when it starts, also after a change of the settings."""
        settings = self._settings.value
        given = {TOKEN_VARIABLE: self.secrets.token, PROXY_VARIABLE: settings.hub_proxy}
        variables = {name: value for name, value in given.items() if value}
        spec = self._library.job_extra().spec | {"endpoint": settings.hub_endpoint}
        return JobExtra(spec, variables)

    def _sweep(self) -> None:
        """The app may have ended in a deletion."""
        for folder in self._library.folders:
            self.downloads.sweep(folder)

    def _go_on(self) -> None:
        """The app may have ended between a download and its conversion; once, after a look."""
        if self._has_gone_on or not self._library.is_scanned:
            return
        self._has_gone_on = True
        for job in self._jobs.jobs():
            if job.job == "download" and job.phase == "done":
                self._convert(job)

    def _on_done(self, job_id: str, event: m.JobDone) -> None:
        job = self._jobs.job(job_id)
        if job is None or not _repo(job):
            return
        if job_id in self._leaving and event.job == "download":
            self._leave(job)  # given up, but it was whole before the cancel came
            return
        self._leaving.discard(job_id)
        if event.job == "download":
            self._convert(job)
        elif event.job == "convert":
            self.ended.emit()

    def _on_failed(self, job_id: str, _event: m.Error) -> None:
        job = self._jobs.job(job_id)
        if job is not None and job_id in self._leaving:
            self._leave(job)

    def _on_removed(self, folder: str, _size: int) -> None:
        self._kept = tuple(kept for kept in self._kept if str(kept.folder) != folder)
        self._renew()
        self.ended.emit()

    def _on_found(self, kept: tuple[Kept, ...]) -> None:
        self._kept = kept
        self._renew()

    # --- parts ------------------------------------------------------------------------------

    def _convert(self, job: JobState) -> None:
        """Go on with a whole download; before the first look nobody knows which names are free."""
        if not self._library.is_scanned:
            return  # see _go_on
        source = str(job.result.get("path") or job.spec["target"])
        try:
            target = self._library.target_for(Path(source).name, targets_of(self._jobs.jobs()))
        except OSError as problem:
            self._say(tr("Nothing was converted: {why}", why=problem.strerror or str(problem)))
            return
        spec: dict[str, object] = {
            "source": source,
            "target": str(target),
            "room_at": str(target.parent),
            "id": _repo(job),
            "repo": _repo(job),
            "source_bytes": job.result.get("num_bytes", 0),
        }
        self._jobs.start("convert", spec, job.title)
        self._jobs.dismiss(job.id)

    def _leave(self, job: JobState) -> None:
        self._leaving.discard(job.id)
        self._jobs.dismiss(job.id)
        key = "target" if job.job == "download" else "source"
        self.downloads.remove(Path(str(job.spec[key])))

    def _renew(self) -> None:
        self.flows = tuple(_flow(job) for job in self._jobs.jobs() if _repo(job))
        under_way = {flow.repo for flow in self.flows}
        self.leftovers = tuple(kept for kept in self._kept if kept.repo not in under_way)
        self.changed.emit()

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            self.problem = sentence
            self.changed.emit()


def is_flow(job: JobState) -> bool:
    """Whether a job belongs to a flow, and is shown there."""
    return bool(_repo(job))


class _Start:
    """Starts a job when called; a plain object, so that no closure keeps the view model alive."""

    def __init__(self, jobs: JobRunner, spec: dict[str, object], title: str) -> None:
        self._jobs, self._spec, self._title = jobs, spec, title

    def __call__(self) -> None:
        if not any(job.spec.get("repo") == self._spec["repo"] for job in self._jobs.jobs()):
            self._jobs.start("download", self._spec, self._title)


class _Resume:
    """Resumes a job when called."""

    def __init__(self, jobs: JobRunner, job_id: str) -> None:
        self._jobs, self._id = jobs, job_id

    def __call__(self) -> None:
        self._jobs.resume(self._id)


def _repo(job: JobState) -> str:
    return str(job.spec.get("repo", "")) if job.job in _STAGE_OF else ""


def _flow(job: JobState) -> Flow:
    stages = _STAGE_OF[job.job]
    now = job.progress.stage if job.progress is not None else "check"
    state: FlowState = "paused"
    if job.phase == "done" and job.job == "convert":
        state = "ready"
    elif job.is_open:
        state = "run" if job.phase == "running" else "wait"
    elif job.phase == "failed":
        state = "fail"
    error = job.error if state == "fail" else None
    return Flow(
        repo=_repo(job),
        title=job.title,
        job=job,
        stage=_READY if state == "ready" else stages.get(now, stages["check"]),
        state=state,
        mend=_mend(job, error) if error is not None else "",
        source_bytes=_count(job.spec) if state == "ready" else 0,
    )


def _mend(job: JobState, error: m.Error) -> Mend:
    if job.job == "convert":
        return "fetch" if error.code is ErrorCode.CORRUPT_CHECKPOINT else ""
    return _MENDS.get(error.code, "")


def _count(spec: dict[str, Any]) -> int:
    value = spec.get("source_bytes", 0)
    return value if isinstance(value, int) else 0
