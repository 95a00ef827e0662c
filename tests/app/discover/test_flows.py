"""Models on their way: download, conversion, pause, errors, the end; without any process."""

from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication

from app.services.downloads import Kept
from app.services.job_state import JobState
from app.viewmodels.flows import FlowsViewModel
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.discover.parts import REPO, SOURCE, TITLE, Parts, StubKeyring

NUM_BYTES = 31_200_000_000


@pytest.fixture
def parts(qtbot, tmp_path):
    return Parts(tmp_path)


def begin(qtbot, parts):
    with qtbot.waitSignal(parts.flows.changed):
        parts.flows.get(REPO, TITLE)
    qtbot.waitUntil(lambda: len(parts.flows.flows) == 1)
    return parts.flow.job.id


def end_download(parts, job_id):
    result = {"path": SOURCE, "num_bytes": NUM_BYTES}
    parts.jobs.end(job_id, m.JobDone(job="download", result=result))


def test_get_then_one_line_from_download_to_ready(qtbot, parts):
    """One click: the conversion follows by itself, and the line says how far it is."""
    job_id = begin(qtbot, parts)
    assert parts.flow.job.spec == {
        "repo": REPO, "target": SOURCE, "room_at": "/models", "id": REPO,
    }  # fmt: skip
    stages = []
    for stage in ("check", "download", "retry"):
        parts.jobs.update(job_id, progress=m.Progress(id=REPO, stage=stage))
        stages.append(parts.flow.stage)
    end_download(parts, job_id)
    assert parts.flow.job.job == "convert"
    assert parts.flow.job.spec["target"] == "/models/Qwen3-30B-A3B-FP8"
    for stage in ("check", "convert", "verify"):
        parts.jobs.update(parts.flow.job.id, progress=m.Progress(id=REPO, stage=stage))
        stages.append(parts.flow.stage)
    assert stages == [0, 1, 1, 2, 2, 3]
    with qtbot.waitSignal(parts.flows.ended):
        parts.jobs.end(parts.flow.job.id, m.JobDone(job="convert", result={"path": "/models/x"}))
    assert (parts.flow.state, parts.flow.stage) == ("ready", 4)
    assert parts.flow.source_bytes == NUM_BYTES


def test_get_twice_then_one_job(qtbot, parts):
    """Also when the keyring has not answered yet."""
    parts.flows.get(REPO, TITLE)
    parts.flows.get(REPO, TITLE)
    qtbot.waitUntil(lambda: len(parts.flows.flows) == 1)
    parts.flows.get(REPO, TITLE)
    assert parts.jobs.count == 1


def test_ready_when_the_download_is_not_needed_then_it_is_removed_on_request(qtbot, parts):
    """Frees N GB; dismissing the line keeps the files."""
    end_download(parts, begin(qtbot, parts))
    parts.jobs.end(parts.flow.job.id, m.JobDone(job="convert", result={}))
    parts.flows.free_source(parts.flow.job.id)
    assert parts.downloads.gone == [SOURCE]
    assert parts.flows.flows == ()


def test_free_source_when_not_converted_then_kept(qtbot, parts):
    """A download that is still needed is never removed that way."""
    end_download(parts, begin(qtbot, parts))
    parts.flows.free_source(parts.flow.job.id)
    assert parts.downloads.gone == []


def test_pause_then_bytes_are_kept_and_resume_goes_on(qtbot, parts):
    """A pause is the end of the child: the job stays listed."""
    job_id = begin(qtbot, parts)
    assert parts.flow.can_pause
    parts.flows.pause(job_id)
    assert parts.jobs.cancelled == [job_id]
    parts.jobs.update(job_id, phase="cancelled")
    parts.jobs.failed.emit(job_id, m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert parts.flow.state == "paused"
    assert parts.downloads.gone == []
    parts.flows.resume(job_id)
    assert parts.jobs.resumed == [job_id]


def test_give_up_when_running_then_files_go_once_the_child_has_ended(qtbot, parts):
    """D-08: nothing is left that the person must look for; not before the job let go of it."""
    job_id = begin(qtbot, parts)
    parts.flows.give_up(job_id)
    assert parts.downloads.gone == []
    parts.jobs.update(job_id, phase="cancelled")
    parts.jobs.failed.emit(job_id, m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert parts.downloads.gone == [SOURCE]
    assert parts.flows.flows == ()


def test_give_up_when_the_download_ends_first_then_nothing_is_converted(qtbot, parts):
    """The cancel came a moment too late; the person's word still holds, and holds once."""
    job_id = begin(qtbot, parts)
    parts.flows.give_up(job_id)
    end_download(parts, job_id)
    assert parts.flows.flows == ()
    assert parts.downloads.gone == [SOURCE]
    assert parts.jobs.count == 1


def test_give_up_when_failed_or_converting_then_the_download_goes_too(qtbot, parts):
    """Each step knows its folder."""
    end_download(parts, begin(qtbot, parts))
    parts.fail(ErrorCode.CORRUPT_CHECKPOINT)
    assert parts.flow.state == "fail"
    parts.flows.give_up(parts.flow.job.id)
    assert parts.downloads.gone == [SOURCE]


@pytest.mark.parametrize(
    ("code", "mend"),
    [
        (ErrorCode.TOKEN, "token"),
        (ErrorCode.GATED, "page"),
        (ErrorCode.NETWORK, "settings"),
        (ErrorCode.DISK_FULL, ""),
        (ErrorCode.NOT_FOUND, ""),
    ],
)
def test_failed_then_what_helps_is_offered_by_kind(qtbot, parts, code, mend):
    """D-10, D-11: the code decides, no message is parsed."""
    begin(qtbot, parts)
    parts.fail(code)
    assert (parts.flow.state, parts.flow.mend) == ("fail", mend)
    assert parts.flows.page(REPO) == f"https://huggingface.co/{REPO}"


def test_token_then_it_goes_by_the_environment_and_nowhere_else(qtbot, tmp_path):
    """D-10: not in the spec, which is on the command line and on the disk; kept in the keyring."""
    ring = StubKeyring()
    parts = Parts(tmp_path, keyring=ring)
    job_id = begin(qtbot, parts)
    parts.fail(ErrorCode.TOKEN)
    parts.flows.give_token(job_id, " hf_secret ")
    qtbot.waitUntil(lambda: ring.kept == "hf_secret")
    extra = parts.jobs.extras["download"]()
    assert extra.variables == {"FREETOKEN_HUB_TOKEN": "hf_secret"}
    assert "hf_secret" not in str(extra.spec) + str(parts.flow.job.spec)
    assert parts.jobs.resumed == [job_id]
    parts.flows.give_token(job_id, "  ")
    assert parts.secrets.token == "hf_secret"


def test_mirror_and_proxy_then_each_start_gets_those_of_now(parts):
    """D-13: a retry after a change of the settings uses the change; a password is on no argv."""
    parts.settings.set(hub_endpoint="https://mirror", hub_proxy="http://me:pw@proxy:8080")
    extra = parts.jobs.extras["download"]()
    assert extra.spec == {"endpoint": "https://mirror", "own_folder": "/models"}
    assert extra.variables == {"FREETOKEN_HUB_PROXY": "http://me:pw@proxy:8080"}


def fetched(number, repo=REPO):
    """A whole download in the queue on disk."""
    target = f"/models/.downloads/{repo}"
    return JobState(
        id=f"job-{number}", job="download", title=TITLE, phase="done",
        spec={"repo": repo, "target": target}, result={"path": target, "num_bytes": 5},
    )  # fmt: skip


def start_again(parts):
    """The page of the next start; what it does by itself at once is done."""
    again = FlowsViewModel(
        parts.jobs, parts.library, parts.settings, parts.secrets, parts.downloads
    )
    QCoreApplication.processEvents()
    return again


def test_start_when_the_app_ended_between_download_and_conversion_then_it_goes_on(parts):
    """D-05: the queue on disk is the flow; once the library knows which names are free."""
    parts.jobs.states["job-7"] = fetched(7)
    parts.library.is_scanned = False
    again = start_again(parts)
    assert parts.downloads.swept
    again.resume("job-7")
    assert [f.job.job for f in again.flows] == ["download"]
    parts.library.changed.emit()
    assert [f.job.job for f in again.flows] == ["download"]
    parts.library.is_scanned = True
    parts.library.changed.emit()
    assert [f.job.job for f in again.flows] == ["convert"]


def test_start_when_two_downloads_have_one_name_then_two_folders(parts):
    """The one under way is not on the disk yet."""
    parts.jobs.states |= {"job-7": fetched(7, "one/m"), "job-8": fetched(8, "two/m")}
    again = start_again(parts)
    targets = [flow.job.spec["target"] for flow in again.flows]
    assert targets == ["/models/m", "/models/m-2"]


def test_changed_library_when_a_download_waits_for_the_person_then_left_alone(qtbot, parts):
    """D-17: what could not be converted is, when it is asked for, not at each look."""
    QCoreApplication.processEvents()
    job_id = begin(qtbot, parts)
    parts.library.refusal = FileNotFoundError("The models folder /mnt/x is not there.")
    end_download(parts, job_id)
    parts.library.refusal = None
    parts.library.changed.emit()
    assert parts.flow.job.job == "download"


def test_get_when_the_models_folder_is_away_then_nothing_is_written_elsewhere(qtbot, parts):
    """D-17: named, not begun; a finished download waits and is converted when asked again."""
    parts.library.refusal = FileNotFoundError("The models folder /mnt/x is not there.")
    parts.flows.get(REPO, TITLE)
    assert "/mnt/x" in parts.flows.problem
    assert parts.flows.flows == ()
    parts.library.refusal = None
    job_id = begin(qtbot, parts)
    parts.library.refusal = FileNotFoundError("The models folder /mnt/x is not there.")
    end_download(parts, job_id)
    assert "/mnt/x" in parts.flows.problem
    assert parts.flow.state == "paused"
    parts.library.refusal = None
    parts.flows.resume(job_id)
    assert parts.flow.job.job == "convert"
    assert parts.flows.problem == ""


def test_leftovers_when_no_line_shows_a_download_then_it_can_be_removed(qtbot, parts):
    """D-05: what a lost queue or a dismissed line leaves is found; what is under way is not."""
    begin(qtbot, parts)
    under_way = Kept(Path(SOURCE), REPO, 5)
    orphan = Kept(Path("/models/.downloads/maker/old"), "maker/old", 7)
    parts.flows.look()
    parts.downloads.found.emit((under_way, orphan))
    assert parts.flows.leftovers == (orphan,)
    parts.flows.delete_leftovers()
    assert parts.downloads.gone == [str(orphan.folder)]
    parts.downloads.removed.emit(str(orphan.folder), 7)
    assert parts.flows.leftovers == ()


def test_failed_when_the_download_is_damaged_then_only_what_is_damaged_is_fetched(qtbot, parts):
    """D-04, C-01: one press; the download is held against the hub, then converted again."""
    end_download(parts, begin(qtbot, parts))
    parts.fail(ErrorCode.CORRUPT_CHECKPOINT, "model-2.safetensors is damaged.")
    assert parts.flow.mend == "fetch"
    parts.flows.fetch_again(parts.flow.job.id)
    assert parts.flow.job.job == "download"
    assert parts.flow.job.spec == {
        "repo": REPO, "target": SOURCE, "room_at": "/models", "id": REPO, "recheck": True,
    }  # fmt: skip
    assert parts.downloads.gone == []
    end_download(parts, parts.flow.job.id)
    assert (parts.flow.job.job, parts.flow.job.title) == ("convert", TITLE)


def test_failed_when_the_disk_was_full_then_nothing_is_fetched_again(qtbot, parts):
    """Only a damaged source is the hub's business."""
    end_download(parts, begin(qtbot, parts))
    parts.fail(ErrorCode.DISK_FULL)
    assert parts.flow.mend == ""
    end = parts.flow.job.id
    parts.jobs.update(end, phase="running", error=None)
    parts.flows.fetch_again(end)
    assert parts.flow.job.job == "convert"
