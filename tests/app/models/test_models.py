"""The Models page: the list, fit, load and delete, imports as jobs, drops, failures."""

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent

from app.predict.fit import Fit
from app.services.gpu_meter import MeterReading
from app.services.model_scan import SkipNote
from app.viewmodels.models import ModelsViewModel
from app.views.jobs_parts import job_line
from app.views.models import ModelsView
from app.views.models_parts import DeleteDialog, fit_reason
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.accessible import nameless
from tests.app.models.stubs import BIG, SOURCE, TINY, StubLibrary, StubMeter, StubSession
from tests.app.performance.stubs import TINY as TINY_INFO
from tests.app.performance.stubs import StubClient
from tests.app.profiler.stubs import StubJobs
from tests.app.services.test_model_library import put
from tests.app.walk import settle

GIB = 1 << 30


class Parts:
    """The view model between stubs."""

    def __init__(self, *entries):
        self.library, self.jobs, self.client = StubLibrary(*entries), StubJobs(), StubClient()
        self.session, self.meter = StubSession(), StubMeter()
        self.vm = ModelsViewModel(self.library, self.jobs, self.client, self.session, self.meter)


@pytest.fixture
def parts(qapp):
    use("dark", 1.0, "en", True)
    made = Parts(BIG, TINY)
    made.meter.reading.emit(MeterReading(16 * GIB, 96 * GIB))
    return made


@pytest.fixture
def view(parts, qtbot):
    page = ModelsView(parts.vm)
    qtbot.addWidget(page)
    page.resize(996, 712)
    page.show()
    return page


def checkpoint(folder: Path, name="a-model") -> Path:
    """A folder that looks like a published model."""
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def loaded(name="tiny-moe-fp8"):
    fields = {f: getattr(TINY_INFO, f) for f in TINY_INFO.__struct_fields__}
    return m.ModelInfo(**fields | {"path": f"/models/{name}"})


def test_rows_when_memory_is_known_then_fit_with_its_number(parts):
    """162 GiB into 96 do not go; the small one fits."""
    big, tiny = parts.vm.rows
    assert (big.fit.fit, tiny.fit.fit) == (Fit.TOO_BIG, Fit.FITS)
    assert fit_reason(big.fit) == "RAM 96.0 < 162 GiB"
    assert "MiB" in fit_reason(tiny.fit)


def test_rows_when_readings_repeat_then_nothing_is_drawn_anew(parts, qtbot):
    """Two readings a second must not rebuild the page."""
    with qtbot.assertNotEmitted(parts.vm.rows_changed):
        parts.meter.reading.emit(MeterReading(16 * GIB - 1000, 96 * GIB))


def test_load_when_asked_then_the_session_loads_and_the_row_says_so(parts):
    """Loading is the session's; the row follows the engine's word."""
    parts.vm.load(TINY.path)
    assert parts.session.loads == [str(TINY.path)]
    assert parts.vm.rows[1].state == "loading"
    parts.client.model = loaded()
    parts.client.loaded.emit(None)
    assert parts.vm.rows[1].state == "loaded"
    parts.vm.unload()
    assert parts.session.unloads == 1


def test_rows_when_the_session_loads_by_itself_then_shown(parts):
    """At the start nobody pressed a button here."""
    parts.session.state, parts.session.model_name = m.EngineState.LOADING, "tiny-moe-fp8"
    parts.session.changed.emit()
    assert parts.vm.rows[1].state == "loading"


def test_import_when_a_checkpoint_then_a_job_with_source_and_target(parts, tmp_path):
    """The target lies in the models folder; the same folder is not converted twice at once."""
    source = checkpoint(tmp_path)
    parts.vm.import_folders((source, source))
    assert [job.spec for job in parts.jobs.jobs()] == [
        {
            "source": str(source),
            "target": "/models/a-model",
            "room_at": "/models",
            "id": "a-model",
        }
    ]
    assert "already" in parts.vm.problem


def test_import_when_another_of_this_name_is_being_converted_then_another_folder(parts, tmp_path):
    """Its folder is not there yet, but will be."""
    for owner in ("one", "two"):
        (tmp_path / owner).mkdir()
        parts.vm.import_folders((checkpoint(tmp_path / owner),))
    targets = [job.spec["target"] for job in parts.jobs.jobs()]
    assert targets == ["/models/a-model", "/models/a-model-2"]


@pytest.mark.parametrize("kind", ["file", "empty", "damaged", "gone"])
def test_import_when_no_checkpoint_then_named_and_nothing_starts(parts, tmp_path, kind):
    """G-04: what cannot be imported is named, with what to do; no process is started."""
    path = tmp_path / "thing"
    if kind == "file":
        path.write_text("print()")
    elif kind != "gone":
        path.mkdir()
    if kind == "damaged":
        (path / "model.ftw").write_text("{}")
    parts.vm.import_folders((path,))
    assert parts.jobs.jobs() == ()
    assert "thing" in parts.vm.problem
    parts.vm.dismiss_problem()
    assert parts.vm.problem == ""


@pytest.mark.parametrize("what", ["folder", "index"])
def test_import_when_converted_already_then_copied_and_verified(parts, tmp_path, what):
    """C-07, G-04: the folder or its model.ftw, from anywhere; the original stays; once."""
    folder = put(tmp_path / "elsewhere" / "made-before")
    path = folder if what == "folder" else folder / "model.ftw"
    parts.vm.import_folders((path,))
    (job,) = parts.jobs.jobs()
    assert (job.job, job.spec) == (
        "move",
        {
            "act": "copy", "source": str(folder.parent), "target": "/models",
            "names": ["made-before"], "keep": True, "id": "made-before",
        },
    )  # fmt: skip
    assert [row.job.id for row in parts.vm.jobs] == [job.id]
    parts.vm.import_folders((path,))
    assert len(parts.jobs.jobs()) == 1
    assert "already" in parts.vm.problem
    parts.jobs.end(job.id, m.JobDone(job="move", result={}))
    assert parts.library.refreshed == 1


def test_import_when_it_lies_in_the_models_folder_then_only_looked_at_again(parts, tmp_path):
    """What is there needs no copy; another model of that name is never overwritten."""
    folder = put(tmp_path / "models" / "mine")
    parts.library.folders = (folder.parent,)
    parts.vm.import_folders((folder,))
    assert (parts.jobs.jobs(), parts.library.refreshed) == ((), 1)
    parts.library.target_folder = folder.parent
    parts.vm.import_folders((put(tmp_path / "other" / "mine"),))
    assert parts.jobs.jobs() == ()
    assert "another mine" in parts.vm.problem


def test_import_when_the_models_folder_is_away_then_says_so(parts, tmp_path):
    """D-17: a missing disk is named; nothing is written elsewhere."""
    parts.library.refusal = FileNotFoundError("The models folder /mnt/x is not there.")
    parts.vm.import_folders((checkpoint(tmp_path),))
    assert "/mnt/x" in parts.vm.problem
    assert parts.jobs.jobs() == ()


def test_done_when_converted_then_the_library_looks_again_and_the_row_goes(parts, tmp_path):
    """The new model is in the list, its job no longer on top."""
    parts.vm.import_folders((checkpoint(tmp_path),))
    assert len(parts.vm.jobs) == 1
    parts.jobs.end("job-1", m.JobDone(job="convert", result={"path": "/models/a-model"}))
    assert parts.library.refreshed == 1
    assert parts.vm.jobs == ()


def test_failed_when_damaged_then_the_sentence_stays_with_a_way_on(parts, tmp_path):
    """C-01: cause and hint on the row, begin again beside it; a cancel leaves no row."""
    parts.vm.import_folders((checkpoint(tmp_path),))
    error = m.Error(
        code=ErrorCode.CORRUPT_CHECKPOINT, message="Shard 2 is damaged.", hint="Fetch it."
    )
    parts.jobs.end("job-1", error)
    assert parts.vm.jobs[0].job.error == error
    parts.vm.retry("job-1")
    assert parts.jobs.resumed == ["job-1"]
    parts.jobs.end("job-1", m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert parts.jobs.dismissed == ["job-1"]


def test_job_line_when_bytes_are_known_then_totals_speed_and_time(parts, tmp_path):
    """True byte totals in one unit, speed, time left; C-02: a stall is said."""
    parts.vm.import_folders((checkpoint(tmp_path),))
    progress = m.Progress(
        id="", stage="convert", done_bytes=61_200_000_000, total_bytes=102_000_000_000
    )
    parts.jobs.update("job-1", progress=progress, speed_bytes_s=87e6, eta_s=480.0)
    row = parts.vm.jobs[0]
    assert job_line(row.job) == "61.2 of 102 GB  ·  87.0 MB/s  ·  8 min left"
    assert row.stage == 1
    parts.jobs.update("job-1", is_stalled=True)
    assert "No progress" in job_line(parts.vm.jobs[0].job)


def test_delete_when_loaded_then_kept(parts):
    """A model in use is not taken away below the engine; another is, and its bytes are told."""
    freed = []
    parts.vm.freed.connect(lambda name, size: freed.append((name, size)))
    parts.client.model = loaded()
    parts.client.loaded.emit(None)
    parts.vm.delete(TINY.path)
    assert parts.library.to_delete == []
    parts.vm.delete(BIG.path)
    parts.vm.delete(BIG.path)
    assert parts.library.to_delete == [BIG.path], "once, however often it is clicked"
    assert freed == []
    parts.library.delete_now()
    assert freed == [("DeepSeek-V4-Flash", 38_200_000)]


def test_delete_when_refused_then_says_why(parts):
    """Rights, a busy file: the model stays in the list and the reason is shown."""
    parts.vm.delete(TINY.path)
    parts.library.delete_now("Permission denied")
    assert parts.vm.problem == f"{TINY.name} could not be deleted: Permission denied"
    assert [row.entry for row in parts.vm.rows if row.entry.path == TINY.path] == [TINY]
    parts.vm.delete(TINY.path)
    assert parts.library.to_delete == [TINY.path] * 2, "it can be tried again"


def test_page_when_delete_is_asked_then_a_question_with_the_bytes(parts, view):
    """Nothing is lost by one click; the safe button is the default."""
    row = view._rows[TINY.path]
    row.delete.click()
    dialog = next(c for c in view.children() if isinstance(c, DeleteDialog))
    assert dialog.safe.isDefault()
    assert "38.2 MB" in " ".join(c.text() for c in dialog.children() if hasattr(c, "text"))
    dialog.reject()
    assert parts.library.to_delete == []
    row.delete.click()
    next(c for c in view.children() if isinstance(c, DeleteDialog) and c.isVisible()).accept()
    assert parts.library.to_delete == [TINY.path]


def test_page_when_folders_and_a_file_are_dropped_then_each_acts_by_its_kind(parts, view, tmp_path):
    """G-04: folders become jobs, the file is named; both in one drop."""
    stray = tmp_path / "notes.py"
    stray.write_text("")
    paths = [checkpoint(tmp_path, "one"), checkpoint(tmp_path, "two"), stray]
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    event = QDropEvent(
        QPointF(300, 300), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    view.dropEvent(event)
    assert [job.title for job in parts.jobs.jobs()] == ["one", "two"]
    assert "notes.py is a file" in view._problem.words.text()
    assert len(view._jobs) == 2
    assert nameless(view) == []


def test_page_when_a_row_changes_then_its_widget_and_focus_stay(parts, view):
    """A list that is looked at again does not take the focus away."""
    view.activateWindow()
    view._rows[TINY.path].action.setFocus()
    before = view._rows[TINY.path]
    parts.library.put(BIG, TINY, SOURCE)
    assert view._rows[TINY.path] is before
    assert list(view._rows) == [BIG.path, TINY.path, SOURCE.path]
    parts.library.put(TINY)
    assert view._rows[TINY.path] is before


def test_page_when_empty_then_one_sentence_and_one_button(parts, view):
    """Also: what was left out, and a folder that is away, are said."""
    parts.library.notes = (SkipNote(Path("/models/junk"), "No model.ftw inside."),)
    parts.library.missing = (Path("/mnt/models"),)
    parts.library.put()
    assert view._empty.isVisible()
    assert not view._list_card.isVisible()
    assert "junk: No model.ftw inside." in view._notes.text()
    assert "/mnt/models" in view._missing.words.text()
    assert nameless(view) == []


@pytest.mark.parametrize("language", ["en", "pseudo"])
@pytest.mark.parametrize("size", [(996, 712), (843, 552)])
def test_page_when_any_size_then_not_wider_than_the_window(parts, view, tmp_path, size, language):
    """With a running, a failed and a waiting job, in a longer language."""
    parts.vm.import_folders((checkpoint(tmp_path, "one"), checkpoint(tmp_path, "two")))
    parts.jobs.end("job-2", m.Error(code=ErrorCode.DISK_FULL, message="The disk is full. " * 9))
    use("light", 1.0, language, True)
    view.resize(*size)
    settle()  # layouts come to rest in the event loop, some in two rounds
    content = view._place_card.parentWidget()
    assert content.minimumSizeHint().width() <= size[0]
    assert not view.grab().isNull()
    use("dark", 1.0, "en", True)
