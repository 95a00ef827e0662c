"""The Jobs tab: every kind of job under its head, and what can be done about it."""

import pytest

from app.services.job_runner import JobRunner
from app.theme import px
from app.viewmodels.jobs import JobsViewModel, Section
from app.viewmodels.models import ModelsViewModel
from app.views.discover_flow_card import flow_line
from app.views.jobs_parts import job_line
from app.views.models import DISCOVER, JOBS, ModelsView
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.discover.parts import REPO, TITLE, Parts
from tests.app.models.stubs import BIG, TINY, StubSession
from tests.app.performance.stubs import StubClient
from tests.app.test_walk import LOOKS, SIZES, pale, picture
from tests.app.walk import clipped, controls, described, settle, spoken_name
from tests.support.app_engine import fake_program

SOURCE = {"source": "/data/a-model", "target": "/models/a-model", "id": "a-model"}


@pytest.fixture
def parts(qapp, tmp_path):
    use("dark", 1.0, "en", True)
    made = Parts(tmp_path, BIG, TINY)
    made.list = JobsViewModel(made.jobs, made.flows)
    return made


@pytest.fixture
def page(parts, qtbot):
    client = StubClient()
    parts.models = ModelsViewModel(parts.library, parts.jobs, client, StubSession(), parts.meter)
    made = ModelsView(parts.models, parts.vm, parts.list)
    made.client = client
    qtbot.addWidget(made)
    made.resize(996, 712)
    made.show()
    made.show_tab(JOBS)
    return made


def fill(parts):
    """One job of every kind and state; returns their ids by name."""
    jobs = parts.jobs
    ids = {
        "convert": jobs.start("convert", SOURCE, "a-model"),
        "verify": jobs.start("verify", {"model": str(TINY.path)}, "tiny-moe-fp8"),
        "profile": jobs.start("profile", {"mode": "quick"}, "Measure bandwidths"),
        "failed": jobs.start("convert", {**SOURCE, "source": "/data/b"}, "b-model"),
        "old": jobs.start("convert", {**SOURCE, "source": "/data/c"}, "c-model"),
        "done": jobs.start("verify", {"model": "/models/d"}, "d-model"),
        "flow": jobs.start("download", {"repo": REPO, "target": "/models/x"}, TITLE),
    }
    progress = m.Progress(id="", stage="convert", done_bytes=61 * 10**9, total_bytes=102 * 10**9)
    for speed in (80e6, 95e6, 87e6):
        jobs.update(ids["convert"], speed_bytes_s=speed, eta_s=480.0)
        jobs.update(ids["convert"], progress=progress)
    jobs.update(ids["verify"], phase="waiting")
    jobs.update(ids["profile"], phase="waiting")
    error = m.Error(code=ErrorCode.DISK_FULL, message="The disk is full.", hint="Free 4 GB.")
    jobs.end(ids["failed"], error)
    jobs.update(ids["old"], phase="interrupted")
    jobs.end(ids["done"], m.JobDone(job="verify", result={}))
    got = m.Progress(id="", stage="download", done_bytes=10**9, total_bytes=31 * 10**9)
    jobs.update(ids["flow"], progress=got, phase="interrupted")
    return ids


def sections(parts):
    return {line.row.job.title: line.section for line in parts.list.lines}


def test_lines_when_all_kinds_then_by_what_they_wait_for(parts):
    """Running first, what is over last; a download is one line with its conversion."""
    fill(parts)
    assert sections(parts) == {
        "a-model": Section.RUNNING,
        "tiny-moe-fp8": Section.WAITING,
        "Measure bandwidths": Section.WAITING,
        "c-model": Section.PAUSED,
        TITLE: Section.PAUSED,
        "b-model": Section.FAILED,
        "d-model": Section.OVER,
    }
    assert [line.section for line in parts.list.lines] == sorted(
        sections(parts).values(), key=list(Section).index
    )
    assert parts.list.num_open == 6
    running = parts.list.lines[0]
    assert (running.row.stage, running.row.speeds) == (1, (80e6, 95e6, 87e6))
    assert job_line(running.row.job) == "61.0 of 102 GB  ·  87.0 MB/s  ·  8 min left"


def test_intents_then_the_runner_does_them(parts):
    """Cancel, retry and remove go to the job that was pressed."""
    ids = fill(parts)
    parts.list.cancel(ids["verify"])
    parts.list.retry(ids["failed"])
    parts.list.dismiss(ids["done"])
    assert parts.jobs.cancelled == [ids["verify"]]
    assert parts.jobs.resumed == [ids["failed"]]
    assert parts.jobs.dismissed == [ids["done"]]


def test_clear_then_only_what_is_over_and_offers_nothing_goes(parts):
    """A ready model whose download can still be deleted keeps its line (D-08)."""
    ids = fill(parts)
    ready = parts.jobs.start(
        "convert", {"repo": "maker/x", "source": "/s", "source_bytes": 5}, "Ready one"
    )
    parts.jobs.end(ready, m.JobDone(job="convert", result={}))
    assert parts.list.can_clear
    parts.list.clear()
    assert parts.jobs.dismissed == [ids["done"]]
    assert sections(parts)["Ready one"] is Section.OVER
    assert not parts.list.can_clear


def test_stall_when_nothing_is_known_then_said_on_every_line(parts):
    """C-02: also where no totals are known, and while a download looks or waits for the line."""
    ids = fill(parts)
    parts.jobs.update(ids["convert"], progress=None, is_stalled=True)
    assert "No progress for a minute" in job_line(parts.jobs.job(ids["convert"]))
    for stage in ("check", "retry", "download"):
        progress = m.Progress(id="", stage=stage)
        parts.jobs.update(ids["flow"], phase="running", progress=progress, is_stalled=True)
        assert "No progress for a minute" in flow_line(parts.flow)


def test_stall_when_a_job_says_nothing_then_told_without_a_total(qtbot, tmp_path):
    """C-02: the notice comes from the clock of the app, not from the job."""
    program = fake_program("--job-end", "hang", "--job-steps", "0")
    runner = JobRunner(program, tmp_path / "jobs.json", stall_s=0.05, kill_after_s=0.4)
    job = runner.start("convert", dict(SOURCE))
    qtbot.waitUntil(lambda: runner.job(job).is_stalled)
    assert runner.job(job).share is None
    with qtbot.waitSignal(runner.failed):
        runner.cancel(job)
    assert runner.job(job).phase == "cancelled"


def test_restart_then_lines_are_there_again(qtbot, parts, tmp_path):
    """D-05: what ran is paused, what failed keeps its sentence, times of the run are kept."""
    path = tmp_path / "jobs.json"
    first = JobRunner(fake_program("--job-end", "error"), path, clock=lambda: 1000.0)
    with qtbot.waitSignal(first.failed):
        first.start("convert", {"id": "bad"}, "bad-model")
    first.set_program(fake_program("--job-seconds", "30"))
    with qtbot.waitSignal(first.progress):
        first.start("convert", {"id": "long"}, "long-model")
    first.close()
    qtbot.waitUntil(lambda: first.is_idle)
    second = JobRunner(fake_program(), path)
    lines = JobsViewModel(second, parts.flows).lines
    assert [(line.row.job.title, line.section) for line in lines] == [
        ("long-model", Section.PAUSED),
        ("bad-model", Section.FAILED),
    ]
    assert lines[1].row.job.error.message == "model-00002-of-00003.safetensors is damaged."
    assert (lines[1].row.job.begun_s, lines[1].row.job.ended_s) == (1000.0, 1000.0)


def test_search_job_then_never_listed_and_in_no_file(qtbot, tmp_path):
    """A question to the hub is no work of the person's."""
    runner = JobRunner(fake_program(), tmp_path / "jobs.json")
    with qtbot.waitSignal(runner.done) as end:
        runner.start("search", {"query": "moe"})
        assert runner.jobs() == ()
    assert runner.job(end.args[0]) is None
    assert b"search" not in (tmp_path / "jobs.json").read_bytes()


def test_search_job_when_a_download_runs_then_it_does_not_wait(qtbot, tmp_path):
    """A question is answered while the line is busy."""
    runner = JobRunner(fake_program("--job-seconds", "30"), tmp_path / "jobs.json")
    with qtbot.waitSignal(runner.progress):
        runner.start("download", {})
    runner.set_program(fake_program())
    with qtbot.waitSignal(runner.done):
        runner.start("search", {"query": "moe"})
    runner.close()
    qtbot.waitUntil(lambda: runner.is_idle)


def test_page_when_jobs_then_cards_once_and_the_figure_on_the_tab(parts, page):
    """The cards on top give way to the tab, which has them all."""
    fill(parts)
    settle()
    assert page.tabs.segments[JOBS].text() == "Jobs 6"
    assert not page.flows.isVisible()
    assert not page._imports.isVisible()
    assert len(page.job_panel._cards) == 7
    page.show_tab(DISCOVER)
    assert page.flows.isVisible()
    assert page._imports.isVisible()


def test_page_when_a_card_changes_its_section_then_the_widget_stays(parts, page):
    """A pressed button keeps the focus when its job goes on."""
    ids = fill(parts)
    card = page.job_panel._cards[ids["failed"]]
    card.retry.setFocus()
    parts.jobs.update(ids["failed"], phase="waiting", error=None)
    settle()
    assert page.job_panel._cards[ids["failed"]] is card
    assert sections(parts)["b-model"] is Section.WAITING


def test_page_when_nothing_is_listed_then_one_sentence(parts, page):
    """An empty tab says what it is for."""
    settle()
    assert page.job_panel._empty.isVisible()
    assert page.tabs.segments[JOBS].text() == "Jobs"


def test_verify_then_one_job_and_its_end_in_words(parts, page):
    """Pressed twice it is still one job."""
    parts.models.verify(TINY.path)
    parts.models.verify(TINY.path)
    (job,) = parts.jobs.jobs()
    assert (job.job, job.spec) == ("verify", {"model": str(TINY.path), "id": "tiny-moe-fp8"})
    parts.jobs.end(job.id, m.JobDone(job="verify", result={}))
    assert job_line(parts.jobs.job(job.id)) == "Whole: every checksum fits."


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_page_in_any_look_then_named_readable_and_whole(parts, page, look, size):
    """G-15, G-17, G-22: names, contrast, nothing cut; busy and empty."""
    use(*look, True)
    rail = 57 if size[0] < 1000 or look[1] > 1 else 185
    page.resize(size[0] - px(rail), max(size[1], 640) - px(48))
    for busy in (False, True):
        if busy:
            fill(parts)
        settle()
        assert [described(w) for w in controls(page) if not spoken_name(w)] == []
        assert clipped(page) == []
        assert pale(page, picture(page, 1)) == []
