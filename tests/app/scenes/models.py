"""The Models page: installed, Discover, downloads in all their states, Jobs, its questions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
from PySide6.QtWidgets import QWidget

from app.services.downloads import Kept
from app.services.gpu_meter import MeterReading
from app.services.job_runner import PASSING_JOBS
from app.services.model_scan import SkipNote
from app.viewmodels.jobs import JobsViewModel
from app.viewmodels.models import ModelsViewModel
from app.views.models import DISCOVER, JOBS, ModelsView
from app.views.models_parts import DeleteDialog
from app.widgets.dialogs import Question
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.discover.parts import GIB, REPO, SOURCE, TITLE, FlowJobs, Parts
from tests.app.models.stubs import BIG, TINY, StubSession
from tests.app.models.stubs import SOURCE as BUILT_IN
from tests.app.performance.stubs import TINY as TINY_INFO
from tests.app.performance.stubs import StubClient, profile_bytes
from tests.app.scenes.stage import DIALOG, SMALL, Scene, Stage
from tests.app.walk import settle

FOUND = {
    "repo": "maker/big-moe", "title": "big-moe", "commit": "beef", "licence": "mit",
    "family": "qwen3_moe", "quant": "bf16", "context": 40960, "layers": 48, "hidden": 2048,
    "moe_intermediate": 768, "experts": 128, "top_k": 8, "heads": 32, "kv_heads": 4,
    "head_dim": 128, "vocab": 151936, "total_params": 30_500_000_000,
    "active_params": 3_300_000_000,
}  # fmt: skip
CLOSED = {"repo": "maker/closed-moe", "title": "closed-moe", "commit": "f00d", "gated": True}
IMPORT = {"source": "/data/a-model", "target": "/models/a-model", "id": "a-model"}


class ListedJobs(FlowJobs):
    """As the runner, it lists no search."""

    def jobs(self):
        return tuple(job for job in super().jobs() if job.job not in PASSING_JOBS)


class Shelf(Parts):
    """The page with its three tabs between stubs."""

    make_jobs = ListedJobs

    def __init__(self, folder: Path, *entries):
        super().__init__(folder, *entries)
        self.flows.secrets.remember("x")  # else the keyring is asked on a thread first
        self.client, self.session = StubClient(), StubSession()
        self.list = JobsViewModel(self.jobs, self.flows)
        self.models = ModelsViewModel(
            self.library, self.jobs, self.client, self.session, self.meter
        )
        self.meter.reading.emit(MeterReading(16 * GIB, 96 * GIB))
        self.page = ModelsView(self.models, self.vm, self.list)


def of(
    act: Callable[[Shelf], object], tab: int = 0, entries=(BIG, TINY)
) -> Callable[[Path], Stage]:
    """A scene of the page with a tab in front."""

    def build(folder: Path) -> Stage:
        shelf = Shelf(folder, *entries)
        page = shelf.page
        page.resize(996, 712)
        page.show()
        page.show_tab(tab)
        act(shelf)
        return Stage(page, [shelf], [page.close])

    return build


def nothing(_shelf: Shelf) -> None:
    """As it is."""


def scanning(shelf: Shelf) -> None:
    shelf.library.is_scanned = False
    shelf.library.put()


def loaded(shelf: Shelf) -> None:
    """One in use, with its checkpoint, a folder that is away, and entries that were left out."""
    shelf.client.model = msgspec.structs.replace(TINY_INFO, path=str(TINY.path))
    shelf.client.loaded.emit(None)
    shelf.library.missing = (Path("/media/models-of-the-other-disk"),)
    shelf.library.notes = (SkipNote(Path("/models/odd"), "It has no config.json."),)
    shelf.library.changed.emit()


def loading(shelf: Shelf) -> None:
    shelf.session.state, shelf.session.model_name = m.EngineState.LOADING, TINY.name
    shelf.session.changed.emit()


def refused(shelf: Shelf) -> None:
    shelf.models.import_folders((Path("/data/holiday-pictures"),))


def importing(shelf: Shelf) -> None:
    """One conversion runs, one failed."""
    first = shelf.jobs.start("convert", IMPORT, "a-model")
    second = shelf.jobs.start("convert", {**IMPORT, "source": "/data/b"}, "b-model")
    done = m.Progress(id="", stage="convert", done_bytes=61 * 10**9, total_bytes=102 * 10**9)
    for speed in (80e6, 95e6, 87e6):
        shelf.jobs.update(first, speed_bytes_s=speed, eta_s=480.0, progress=done)
    error = m.Error(code=ErrorCode.DISK_FULL, message="The disk is full.", hint="Free 4 GB.")
    shelf.jobs.end(second, error)


def measured(shelf: Shelf) -> None:
    """With predicted speeds and the room on the disk."""
    (shelf.profiles / "a.json").write_bytes(profile_bytes())
    shelf.downloads.room.emit(1_180 * 10**9)
    shelf.vm.look()


def none_found(shelf: Shelf) -> None:
    shelf.page.panel.search.setText("qqq zzz")


def asked(shelf: Shelf) -> str:
    """The hub was asked; returns the job."""
    shelf.page.panel.search.setText("moe nothing")
    shelf.vm.ask_hub()
    settle()
    (job,) = [job for job in shelf.jobs.states.values() if job.job == "search"]
    return job.id


def answered(shelf: Shelf) -> None:
    result = {"query": "moe", "models": [FOUND, CLOSED], "left_out": 2}
    shelf.jobs.end(asked(shelf), m.JobDone(job="search", result=result))


def hub_away(shelf: Shelf) -> None:
    error = m.Error(
        code=ErrorCode.NETWORK,
        message="Nothing answers at mirror.example.",
        hint="Check the address of the mirror, or the proxy.",
    )
    shelf.jobs.end(asked(shelf), error)


def fetch(shelf: Shelf, stage: str = "download", **changes) -> str:
    """A download under way; returns its job."""
    shelf.flows.get(REPO, TITLE)
    settle()
    progress = m.Progress(id="", stage=stage, done_bytes=12 * 10**9, total_bytes=31 * 10**9)
    job_id = shelf.flow.job.id
    for speed in (80e6, 95e6, 87e6):
        shelf.jobs.update(job_id, speed_bytes_s=speed, eta_s=220.0, progress=progress)
    shelf.jobs.update(job_id, **changes)
    return job_id


def paused(shelf: Shelf) -> None:
    fetch(shelf, phase="cancelled")


def failed(code: ErrorCode, message: str, hint: str = "") -> Callable[[Shelf], object]:
    """A download that ended so."""

    def act(shelf: Shelf) -> None:
        error = m.Error(code=code, message=message, hint=hint)
        shelf.jobs.end(fetch(shelf), error)

    return act


def ready(shelf: Shelf) -> None:
    result = {"path": SOURCE, "num_bytes": 31_200_000_000}
    shelf.jobs.end(fetch(shelf), m.JobDone(job="download", result=result))
    shelf.jobs.end(shelf.flow.job.id, m.JobDone(job="convert", result={"path": "/models/x"}))


def leftovers(shelf: Shelf) -> None:
    kept = Kept(Path("/models/.downloads/maker/old"), "maker/old", 5 * 10**9)
    shelf.downloads.found.emit((kept,))


def jobs(shelf: Shelf) -> None:
    """One job of every kind and state."""
    importing(shelf)
    runner = shelf.jobs
    verify = runner.start("verify", {"model": str(TINY.path)}, "tiny-moe-fp8")
    profile = runner.start("profile", {"mode": "quick"}, "Measure bandwidths")
    old = runner.start("convert", {**IMPORT, "source": "/data/c"}, "c-model")
    done = runner.start("verify", {"model": "/models/d"}, "d-model")
    runner.update(verify, phase="waiting")
    runner.update(profile, phase="waiting")
    runner.update(old, phase="interrupted")
    runner.end(done, m.JobDone(job="verify", result={}))
    paused(shelf)


def asking_to_stop(shelf: Shelf) -> QWidget:
    """The question before a download is thrown away."""
    fetch(shelf)
    shelf.page.flows._cards[REPO].close_button.click()
    return shelf.page.flows.findChild(Question)


def of_dialog(act: Callable[[Shelf], QWidget]) -> Callable[[Path], Stage]:
    """A question over the page."""

    def build(folder: Path) -> Stage:
        shelf = Shelf(folder, BIG, TINY)
        shelf.page.show()
        dialog = act(shelf)
        return Stage(dialog, [shelf], [dialog.close, shelf.page.close])

    return build


MODELS = (
    Scene("models-installed", of(nothing)),
    Scene("models-installed-small", of(loaded), SMALL),
    Scene("models-loaded", of(loaded)),
    Scene("models-loading", of(loading, entries=(BIG, TINY, replace(BUILT_IN)))),
    Scene("models-none", of(nothing, entries=())),
    Scene("models-scanning", of(scanning)),
    Scene("models-refused", of(refused)),
    Scene("models-importing", of(importing)),
    Scene("models-importing-small", of(importing), SMALL),
    Scene("discover", of(measured, DISCOVER)),
    Scene("discover-small", of(measured, DISCOVER), SMALL),
    Scene("discover-unmeasured", of(nothing, DISCOVER)),
    Scene("discover-none", of(none_found, DISCOVER)),
    Scene("discover-asking", of(asked, DISCOVER)),
    Scene("discover-answered", of(answered, DISCOVER)),
    Scene("discover-answered-small", of(answered, DISCOVER), SMALL),
    Scene("discover-hub-away", of(hub_away, DISCOVER)),
    Scene("fetch-running", of(fetch, DISCOVER)),
    Scene("fetch-running-small", of(fetch, DISCOVER), SMALL),
    Scene("fetch-retrying", of(lambda s: fetch(s, "retry"), DISCOVER)),
    Scene("fetch-paused", of(paused, DISCOVER)),
    Scene(
        "fetch-gated",
        of(failed(ErrorCode.GATED, "Access to this model must be granted first."), DISCOVER),
    ),
    Scene(
        "fetch-gated-small",
        of(failed(ErrorCode.GATED, "Access to this model must be granted first."), DISCOVER),
        SMALL,
    ),
    Scene("fetch-token", of(failed(ErrorCode.TOKEN, "The hub refused the token."), DISCOVER)),
    Scene(
        "fetch-disk-full",
        of(failed(ErrorCode.DISK_FULL, "63.3 GB are needed, 9.0 GB are free."), DISCOVER),
    ),
    Scene(
        "fetch-no-network", of(failed(ErrorCode.NETWORK, "The hub cannot be reached."), DISCOVER)
    ),
    Scene(
        "fetch-damaged",
        of(failed(ErrorCode.CORRUPT_CHECKPOINT, "Shard 3 came damaged twice."), DISCOVER),
    ),
    Scene("fetch-ready", of(ready)),
    Scene("fetch-ready-small", of(ready), SMALL),
    Scene("fetch-leftovers", of(leftovers)),
    Scene("jobs-none", of(nothing, JOBS)),
    Scene("jobs", of(jobs, JOBS)),
    Scene("jobs-small", of(jobs, JOBS), SMALL),
    Scene("dialog-stop-fetching", of_dialog(asking_to_stop), DIALOG),
    Scene(
        "dialog-delete-model",
        of_dialog(lambda s: DeleteDialog(BIG.name, BIG.total_bytes, s.page)),
        DIALOG,
    ),
)
