"""Moving the models folder from Settings: two jobs, one switch, nothing lost in between."""

from pathlib import Path

import msgspec
import pytest

from app.services.downloads import Downloads
from app.services.engine_program import find_program
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.model_library import ModelLibrary
from app.services.model_store import ModelStore, StoreFacts, look
from app.services.settings import SettingsStore
from app.viewmodels.models_move import MoveViewModel
from app.views.models_storage import StorageRow
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.protocol.places import data_root
from tests.app.models.stubs import StubLibrary
from tests.app.models.test_models import loaded
from tests.app.performance.stubs import StubClient
from tests.app.profiler.stubs import StubJobs
from tests.app.services.test_model_library import put
from tests.app.walk import clipped, controls, settle, spoken_name


class StubStore(ModelStore):
    """Measures nothing by itself."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def measure(self, folder):
        self.asked.append(folder)


class Parts:
    """The view model between stubs."""

    def __init__(self, folder: Path):
        self.old, self.new = folder / "old", folder / "new"
        for place in (self.old, self.new):
            place.mkdir()
        self.jobs, self.library, self.client = StubJobs(), StubLibrary(), StubClient()
        self.library.target_folder = self.old
        self.settings = SettingsStore(folder / "settings.json")
        self.settings.set(models_folder=str(self.old), last_model=str(self.old / "tiny"))
        self.settings.changed.connect(self.follow)
        self.store = StubStore()
        self.vm = self.make()

    def make(self):
        return MoveViewModel(self.jobs, self.library, self.settings, self.client, self.store)

    def follow(self, settings):
        self.library.target_folder = Path(settings.models_folder)


@pytest.fixture
def parts(qapp, tmp_path):
    use("dark", 1.0, "en", True)
    return Parts(tmp_path)


def done(parts, **result):
    parts.jobs.end(parts.vm.job.id, m.JobDone(job="move", result=result))


def test_move_then_switched_after_the_copy_and_the_old_place_cleaned_after_that(qtbot, parts):
    """Copy, switch, remove; the last model and paused downloads follow."""
    parts.vm.move(parts.new)
    spec = {"source": str(parts.old), "target": str(parts.new), "id": "move"}
    assert parts.vm.job.spec == {**spec, "act": "copy"}
    assert parts.settings.value.models_folder == str(parts.old)
    done(parts, num_bytes=5)
    assert parts.settings.value.models_folder == str(parts.new)
    assert parts.settings.value.last_model == str(parts.new / "tiny")
    assert parts.jobs.relocated == [(parts.old, parts.new)]
    assert parts.vm.job.spec == {**spec, "act": "clean"}
    with qtbot.waitSignal(parts.vm.said) as said:
        done(parts, num_bytes=5_000_000, kept=[])
    assert said.args == [f"The models are in {parts.new} now, 5.0 MB freed."]
    assert (parts.vm.job, parts.jobs.jobs()) == (None, ())


def test_move_when_something_stays_behind_then_named(parts):
    """Never silently half."""
    parts.vm.move(parts.new)
    done(parts)
    done(parts, num_bytes=5, kept=["big"])
    assert parts.vm.problem == "Moved, but these are still in the old folder too: big"


def test_move_when_stopped_then_the_old_place_stays_and_it_can_go_on_or_be_given_up(parts):
    """Cancel is a pause; giving up removes the copy only."""
    parts.vm.move(parts.new)
    parts.vm.stop()
    job = parts.vm.job
    assert parts.jobs.cancelled == [job.id]
    parts.jobs.update(job.id, phase="cancelled")
    parts.jobs.failed.emit(job.id, m.Error(code=ErrorCode.CANCELLED, message="Stopped."))
    assert (parts.settings.value.models_folder, parts.vm.problem) == (str(parts.old), "")
    parts.vm.resume()
    assert parts.jobs.resumed == [job.id]
    parts.vm.give_up()
    (drop,) = parts.jobs.jobs()
    assert (drop.spec["act"], parts.vm.job) == ("drop", None)
    parts.jobs.end(drop.id, m.JobDone(job="move", result={}))
    assert parts.jobs.jobs() == ()
    assert parts.settings.value.models_folder == str(parts.old)


def test_move_when_there_is_too_little_room_then_the_sentence(parts):
    """D-08: cause and figures of the job, in place; nothing was switched."""
    parts.vm.move(parts.new)
    error = m.Error(code=ErrorCode.DISK_FULL, message="9 GiB are needed.", hint="Free 4 GiB.")
    parts.jobs.end(parts.vm.job.id, error)
    assert parts.vm.problem == "9 GiB are needed. Free 4 GiB."
    assert parts.settings.value.models_folder == str(parts.old)
    parts.vm.resume()
    assert parts.vm.problem == ""


@pytest.mark.parametrize("why", ["same", "inside", "gone", "loaded", "busy"])
def test_move_when_something_stands_against_it_then_said_and_nothing_starts(parts, why):
    """D-21: checked before the setting or a file changes."""
    target = parts.new
    if why == "same":
        target = parts.old
    elif why == "inside":
        target = parts.old / "deeper"
    elif why == "gone":
        target = parts.new / "nowhere"
    elif why == "loaded":
        parts.client.model = m.ModelInfo(
            **{f: getattr(loaded(), f) for f in loaded().__struct_fields__}
            | {"path": str(parts.old / "tiny")}
        )
    else:
        parts.jobs.start("download", {"repo": "a/b"}, "b")
    before = parts.jobs.jobs()
    parts.vm.move(target)
    assert parts.vm.problem
    assert parts.jobs.jobs() == before


def test_start_when_the_app_ended_between_copy_and_switch_then_it_goes_on(qtbot, parts):
    """The queue on disk is the move."""
    spec = {"act": "copy", "source": str(parts.old), "target": str(parts.new), "id": "move"}
    parts.jobs.states["job-7"] = JobState(id="job-7", job="move", phase="done", spec=spec)
    again = parts.make()
    qtbot.waitUntil(lambda: parts.settings.value.models_folder == str(parts.new))
    assert again.job.spec["act"] == "clean"


def test_import_job_then_no_business_of_the_move(qtbot, parts):
    """A copied-in model must not switch the folder."""
    spec = {"act": "copy", "source": "/x", "target": str(parts.old), "keep": True}
    job = parts.jobs.start("move", spec, "a model")
    parts.jobs.end(job, m.JobDone(job="move", result={}))
    assert parts.vm.job is None
    assert parts.settings.value.models_folder == str(parts.old)


def test_look_then_models_and_downloads_are_counted(tmp_path):
    """What else lies in the folder is not ours to count."""
    put(tmp_path / "one")
    (tmp_path / "notes.txt").write_bytes(b"x" * 999)
    half = tmp_path / ".downloads" / "a" / "b"
    half.mkdir(parents=True)
    (half / "x.part").write_bytes(b"x" * 500)
    facts = look(tmp_path)
    size = (tmp_path / "one" / "model.ftw").stat().st_size + 1000 + 500
    assert (facts.num_models, facts.num_bytes) == (1, size)
    assert facts.free_bytes > 0
    assert look(tmp_path / "gone").num_bytes == -1


def test_measure_then_told_from_a_thread(qtbot, tmp_path):
    """More than 32 bits fit through the signal."""
    store = ModelStore()
    with qtbot.waitSignal(store.measured) as seen:
        store.measure(tmp_path)
    assert seen.args[0].folder == tmp_path


def test_relocate_then_paths_of_resting_jobs_follow(qtbot, tmp_path):
    """A paused download goes on where its bytes are now; a running job is left alone."""
    old, new = tmp_path / "old", tmp_path / "new"
    path = tmp_path / "jobs.json"
    spec = {"repo": "a/b", "target": str(old / ".downloads/a/b"), "room_at": str(old), "n": 5}
    kept = JobState(id="job-1", job="download", phase="interrupted", spec=spec)
    path.write_text(msgspec.json.encode([kept]).decode())
    runner = JobRunner(find_program("", data_root(str(tmp_path))), path)
    runner.relocate(old, new)
    again = JobRunner(find_program("", data_root(str(tmp_path))), path)
    assert again.job("job-1").spec == {
        "repo": "a/b", "target": str(new / ".downloads/a/b"), "room_at": str(new), "n": 5,
    }  # fmt: skip


def test_sweep_then_only_half_deleted_folders_go(qtbot, tmp_path):
    """A deletion that the end of the app cut short is finished at the next start (D-08)."""
    whole, doomed = tmp_path / ".downloads/a/b", tmp_path / ".downloads/a/c.deleted"
    gone_owner = tmp_path / ".downloads/z/q.deleted"
    model = tmp_path / ".old.deleted"
    for folder in (whole, doomed, gone_owner, model, tmp_path / "mine.deleted"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    Downloads().sweep(tmp_path)
    qtbot.waitUntil(lambda: not (tmp_path / ".downloads/z").exists())
    qtbot.waitUntil(lambda: not model.exists() and not doomed.exists())
    assert (whole / "file").exists()
    assert (tmp_path / "mine.deleted" / "file").exists(), "not hidden: not ours"


def test_move_with_the_real_engine_then_loadable_from_the_new_place(qtbot, tmp_path):
    """The whole way, with the child process, the library and the settings."""
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    put(old / "tiny", name="tiny")
    settings = SettingsStore(tmp_path / "settings.json")
    settings.set(models_folder=str(old))
    library = ModelLibrary(tmp_path / "own", tmp_path / "none", old)
    settings.changed.connect(lambda s: library.set_extra(Path(s.models_folder)))
    runner = JobRunner(find_program("", data_root(str(tmp_path))), tmp_path / "jobs.json")
    vm = MoveViewModel(runner, library, settings, StubClient(), ModelStore())
    with qtbot.waitSignal(vm.said, timeout=60_000):
        vm.move(new)
    qtbot.waitUntil(lambda: [e.path for e in library.entries()] == [new / "tiny"])
    assert list(old.iterdir()) == []
    qtbot.waitUntil(lambda: runner.is_idle)
    library.close()


@pytest.mark.parametrize("language", ["en", "zh_CN", "pseudo"])
@pytest.mark.parametrize("state", ["idle", "running", "stopped", "failed"])
def test_row_in_any_state_then_named_and_whole(qtbot, parts, language, state):
    """What the section shows of it."""
    use("light", 1.0, language, True)
    row = StorageRow(parts.vm)
    qtbot.addWidget(row)
    row.resize(560, 200)
    row.show()
    assert parts.store.asked == [parts.old]
    parts.store.measured.emit(StoreFacts(parts.old, 3, 158 * 10**9, 200 * 10**9))
    if state != "idle":
        parts.vm.move(parts.new)
        progress = m.Progress(id="", stage="copy", done_bytes=10**9, total_bytes=4 * 10**9)
        parts.jobs.update(parts.vm.job.id, progress=progress, speed_bytes_s=5e8, eta_s=6.0)
    if state == "stopped":
        parts.jobs.update(parts.vm.job.id, phase="cancelled")
    if state == "failed":
        error = m.Error(code=ErrorCode.DISK_FULL, message="9 GiB are needed.", hint="Free some.")
        parts.jobs.end(parts.vm.job.id, error)
    settle()
    assert "158 GB" in row._facts.text() or "158 GB" in row._facts.toolTip()
    assert row.stop.isVisible() == (state == "running")
    assert row.resume.isVisible() == (state in ("stopped", "failed"))
    assert row.move_button.isEnabled() == (state == "idle")
    assert not [w for w in controls(row) if not spoken_name(w)]
    assert clipped(row) == []
    use("dark", 1.0, "en", True)
