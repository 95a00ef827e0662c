"""Jobs: one after the other, progress, cancel, stall, and the queue on disk."""

import pytest

from app.services.engine_program import EngineProgram
from app.services.job_runner import KEPT, JobRunner
from app.services.job_state import JobFile, JobState, SpeedMeter
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.support.app_engine import Recorder, fake_program


@pytest.fixture
def make_runner(qtbot, tmp_path):
    made = []

    def make(*arguments, **options):
        options.setdefault("kill_after_s", 0.4)
        runner = JobRunner(fake_program(*arguments), tmp_path / "jobs.json", **options)
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()
        qtbot.waitUntil(lambda runner=runner: runner.is_idle)


def test_start_then_progress_and_done(qtbot, make_runner, tmp_path):
    """True byte totals arrive, the result is kept, the list says done."""
    runner = make_runner()
    seen = Recorder(runner, "progress", "done", "failed")
    with qtbot.waitSignal(runner.done):
        job = runner.start("convert", {"target": str(tmp_path / "out")}, "A model")
    assert seen.names[-1] == "done"
    (state,) = runner.jobs()
    assert (state.id, state.title, state.phase) == (job, "A model", "done")
    assert state.share == 1.0
    assert state.result == {"path": str(tmp_path / "out")}


def test_two_jobs_then_one_after_the_other(qtbot, make_runner):
    """A second job waits: both together would only slow each other down."""
    runner = make_runner("--job-seconds", "0.2")
    runner.start("verify", {})
    second = runner.start("verify", {})
    assert [j.phase for j in runner.jobs()] == ["running", "waiting"]
    with qtbot.waitSignal(runner.done, check_params_cb=lambda job, _: job == second):
        pass
    assert [j.phase for j in runner.jobs()] == ["done", "done"]


def test_profile_then_points(qtbot, make_runner):
    """The profiler's curves grow while it runs."""
    runner = make_runner("--job-steps", "2")
    seen = Recorder(runner, "point")
    points = []
    runner.point.connect(lambda _, point: points.append(point.link))
    with qtbot.waitSignal(runner.done):
        runner.start("profile", {"mode": "quick"})
    assert len(seen.events) == 12
    assert set(points) == {"fill", "cpu", "joint_fill", "joint_cpu"}


def test_failure_then_error_with_hint(qtbot, make_runner):
    """The job's own sentence reaches the page."""
    runner = make_runner("--job-end", "error")
    with qtbot.waitSignal(runner.failed) as end:
        runner.start("convert", {})
    assert end.args[1].code is ErrorCode.CORRUPT_CHECKPOINT
    assert runner.jobs()[0].error.hint == "Fetch this file again."


@pytest.mark.parametrize("how", ["crash", "silent"])
def test_end_without_result_then_failed_in_words(qtbot, make_runner, how):
    """A job that dies or says nothing is a failure, not a wait for ever."""
    runner = make_runner("--job-end", how)
    with qtbot.waitSignal(runner.failed) as end:
        runner.start("convert", {})
    assert end.args[1].code is ErrorCode.INTERNAL
    assert end.args[1].message


def test_cancel_when_running_then_cancelled(qtbot, make_runner):
    """EOF is enough for a job that listens."""
    runner = make_runner("--job-seconds", "30")
    with qtbot.waitSignal(runner.progress):
        job = runner.start("convert", {})
    with qtbot.waitSignal(runner.failed, timeout=2_000) as end:
        runner.cancel(job)
        assert runner.job(job).is_cancelling
    assert end.args[1].code is ErrorCode.CANCELLED
    assert runner.job(job).phase == "cancelled"


def test_cancel_when_deaf_then_killed(qtbot, make_runner):
    """C-02: Cancel works even when the worker does not listen."""
    runner = make_runner("--job-end", "hang", "--deaf")
    with qtbot.waitSignal(runner.progress):
        job = runner.start("convert", {})
    with qtbot.waitSignal(runner.failed, timeout=3_000) as end:
        runner.cancel(job)
    assert end.args[1].code is ErrorCode.CANCELLED


def test_cancel_when_waiting_then_never_started(qtbot, make_runner):
    """The one behind it goes on."""
    runner = make_runner("--job-seconds", "0.2")
    first = runner.start("verify", {})
    second = runner.start("verify", {})
    with qtbot.waitSignal(runner.failed) as end:
        runner.cancel(second)
    assert end.args[0] == second
    with qtbot.waitSignal(runner.done) as done:
        pass
    assert done.args[0] == first


def test_no_progress_then_stall_is_said(qtbot, make_runner):
    """C-02: no progress within the time is a notice on the job, and goes with the next progress."""
    runner = make_runner("--job-end", "hang", stall_s=0.3)
    job = runner.start("convert", {})
    qtbot.waitUntil(lambda: runner.job(job).is_stalled, timeout=3_000)
    assert runner.job(job).phase == "running"


def test_resume_after_a_crash_of_the_app(qtbot, make_runner, tmp_path):
    """D-05: what ran or waited when the app died is listed as interrupted and can go on."""
    first = make_runner("--job-seconds", "30")
    with qtbot.waitSignal(first.progress):
        first.start("convert", {"target": str(tmp_path / "x")}, "A model")
    first.start("convert", {"target": "y"}, "Another")
    first.start("profile", {})
    second = make_runner()  # the file as a crash would leave it
    assert [(j.title, j.phase) for j in second.jobs()] == [
        ("A model", "interrupted"),
        ("Another", "interrupted"),
    ]
    with qtbot.waitSignal(second.done):
        second.resume(second.jobs()[0].id)
    assert {j.title: j.phase for j in second.jobs()}["A model"] == "done"


def test_close_when_running_then_job_stays_resumable(qtbot, make_runner):
    """G-18: quitting ends the child; the work is not lost and not a failure."""
    first = make_runner("--job-seconds", "30")
    seen = Recorder(first, "failed")
    with qtbot.waitSignal(first.progress):
        first.start("convert", {})
    with qtbot.waitSignal(first.idle, timeout=2_000):
        first.close()
    assert seen.events == []
    assert [j.phase for j in make_runner().jobs()] == ["interrupted"]


def test_damaged_queue_file_then_empty_and_kept_aside(make_runner, tmp_path):
    """A broken file never stops the app."""
    (tmp_path / "jobs.json").write_text("{ not json")
    assert make_runner().jobs() == ()
    assert (tmp_path / "jobs.json.damaged").exists()


def test_dismiss_then_gone_for_good(qtbot, make_runner):
    """A finished job can be cleared away; a running one cannot."""
    runner = make_runner("--job-seconds", "0.2")
    job = runner.start("verify", {})
    runner.dismiss(job)
    assert runner.job(job) is not None
    with qtbot.waitSignal(runner.done):
        pass
    runner.dismiss(job)
    assert runner.jobs() == ()
    assert make_runner().jobs() == ()


def test_bundled_engine_that_is_gone_then_the_job_explains_it(qtbot, tmp_path):
    """P-07: the same sentence as for the engine itself, not the system's bare reason."""
    program = EngineProgram(str(tmp_path / "freetoken-engine"), origin="bundled")
    runner = JobRunner(program, tmp_path / "jobs.json")
    with qtbot.waitSignal(runner.failed) as end:
        runner.start("verify", {})
    assert end.args[1].message == program.start_problem("")
    assert "Security software" in end.args[1].message


def test_many_jobs_end_then_a_paused_download_stays_listed(qtbot, make_runner, tmp_path):
    """D-05: old results make room for new ones; bytes that can be gone on with do not."""
    kept = JobState(id="job-1", job="download", spec={"repo": "a/b"}, phase="cancelled")
    over = [JobState(id=f"job-{n}", job="verify", phase="done") for n in range(2, KEPT + 2)]
    JobFile(tmp_path / "jobs.json").write((kept, *over))
    runner = make_runner()
    with qtbot.waitSignal(runner.done):
        runner.start("verify", {})
    names = [job.id for job in runner.jobs()]
    assert names[0] == "job-1"
    assert "job-2" not in names
    assert len(names) == KEPT + 1


def test_job_older_than_all_that_ended_then_its_end_is_told_with_its_facts(qtbot, make_runner):
    """A download of hours: whoever hears of its end still finds its repository."""
    runner = make_runner("--job-end", "hang")
    old = runner.start("download", {"repo": "a/b"})
    with qtbot.waitSignal(runner.progress):
        pass
    for _ in range(KEPT + 1):
        runner.cancel(runner.start("download", {}))  # waits, so it ends at once
        runner.cancel(runner.start("verify", {}))
    found = []
    runner.failed.connect(lambda job, _: found.append(runner.job(job)))
    with qtbot.waitSignal(runner.failed, check_params_cb=lambda job, _: job == old):
        runner.cancel(old)
    assert found[-1].spec == {"repo": "a/b"}


def test_cancel_too_late_then_the_done_job_is_not_stopping(qtbot, make_runner):
    """What has ended well can be dismissed: nothing is awaited any more."""
    runner = make_runner("--job-seconds", "30")
    with qtbot.waitSignal(runner.progress):
        job = runner.start("verify", {})
    runner._update(job, is_cancelling=True)
    runner._end(job, m.JobDone(job="verify", result={}))
    assert (runner.job(job).phase, runner.job(job).is_cancelling) == ("done", False)


def test_speed_when_ten_mb_s_with_pauses_then_within_ten_percent():
    """D-15: the average over the last ten seconds, pauses included; the unit is bytes."""
    now = [0.0]
    meter = SpeedMeter(lambda: now[0])
    done = 0
    for second in range(40):
        now[0] = float(second)
        if second % 10 < 7:
            done += 10_000_000
        meter.add(m.Progress(id="", stage="copy", done_bytes=done, total_bytes=10**9))
    assert meter.bytes_s == pytest.approx(7_000_000, rel=0.15)
    frame = m.Progress(id="", stage="copy", done_bytes=done, total_bytes=done + 70_000_000)
    assert meter.eta_s(frame) == pytest.approx(10, rel=0.2)


def test_speed_when_stage_changes_then_starts_anew():
    """Bytes of another stage are other bytes."""
    now = [0.0]
    meter = SpeedMeter(lambda: now[0])
    for second, (stage, done) in enumerate((("a", 0), ("a", 900), ("b", 0))):
        now[0] = float(second)
        meter.add(m.Progress(id="", stage=stage, done_bytes=done))
    assert meter.bytes_s is None
