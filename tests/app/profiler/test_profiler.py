"""The Profiler page: never measured, running with live curves, done, failed, stale."""

import json

import pytest
from PySide6.QtTest import QTest

from app.predict.diagnosis import diagnose
from app.predict.profiles import best_profile, read_profile
from app.viewmodels.profile_shelf import ProfileShelf
from app.viewmodels.profiler import ProfilerViewModel
from app.views.profiler import ProfilerView
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.accessible import nameless
from tests.app.performance.stubs import BIG, TINY, StubClient, profile_bytes
from tests.app.profiler.stubs import StubJobs
from tests.app.walk import settle

NOW = 1_764_426_000.0


@pytest.fixture
def parts(qapp, tmp_path):
    """Jobs, client, and a view model that looks into an empty folder."""
    use("dark", 1.0, "en", True)
    jobs, client = StubJobs(), StubClient()
    return jobs, client, ProfilerViewModel(jobs, client, tmp_path, clock=lambda: NOW + 60)


def run_to_end(jobs, vm, tmp_path, name="cpu-fp8.json", **profile):
    """A run as the job does it: progress, points, file, end."""
    vm.run("quick")
    job_id = vm._job_id
    for step, (link, size) in enumerate((("fill", 65_536), ("fill", 262_144), ("cpu", 115_200))):
        progress = m.Progress(
            id="", stage="measure", done_bytes=step, total_bytes=12, detail="fp8_block: copies"
        )
        jobs.update(job_id, progress=progress)
        jobs.point.emit(job_id, m.ProfilePoint(link=link, size_bytes=size, gbps=9.0 + step))
    path = tmp_path / name
    path.write_bytes(profile_bytes(**profile))
    jobs.end(job_id, m.JobDone(job="profile", result={"paths": [str(path)]}))


def test_empty_when_never_measured_then_says_so(parts):
    """No file: no figures, and nothing invented."""
    _, _, vm = parts
    assert vm.phase == "empty"
    assert vm.profile is None
    assert vm.curve("fill") == ()


def test_run_when_a_model_is_loaded_then_its_experts_are_measured(parts, tmp_path):
    """The spec names model, device and the folder of profiles; a second start does nothing."""
    jobs, client, vm = parts
    client.model = TINY
    vm.run("full")
    vm.run("quick")
    assert len(jobs.states) == 1
    assert jobs.states["job-1"].spec == {
        "mode": "full",
        "model": "/models/tiny",
        "device": "cpu",
        "output": str(tmp_path),
    }


def test_run_when_points_arrive_then_the_curve_grows(parts):
    """Each point is on the curve at once; the next format begins with an empty one."""
    jobs, _, vm = parts
    vm.run("quick")
    progress = m.Progress(id="", stage="measure", total_bytes=12, detail="fp8_block: copies")
    jobs.update("job-1", progress=progress)
    jobs.point.emit("job-1", m.ProfilePoint(link="fill", size_bytes=65_536, gbps=9.0))
    jobs.point.emit("job-1", m.ProfilePoint(link="fill", size_bytes=4_096, gbps=4.0))
    jobs.point.emit("other", m.ProfilePoint(link="fill", size_bytes=1, gbps=1.0))
    assert vm.curve("fill") == ((4_096.0, 4.0), (65_536.0, 9.0))
    progress = m.Progress(id="", stage="measure", total_bytes=12, detail="bf16: copies")
    jobs.update("job-1", progress=progress)
    assert vm.curve("fill") == ()


def test_done_when_ended_then_the_stored_file_is_shown_and_kept(parts, tmp_path, qtbot):
    """What is shown comes from the file, not from the points; the run joins the history."""
    jobs, _, vm = parts
    with qtbot.waitSignal(vm.measured):
        run_to_end(jobs, vm, tmp_path, scale=0.2, emulated=True, fmt="fp8_block", record=115_200)
    assert vm.phase == "done"
    assert vm.profile.fill_gbps == pytest.approx(9.92)
    assert vm.is_emulated
    assert len(vm.curve("fill")) == 6
    run_to_end(jobs, vm, tmp_path, scale=0.21, emulated=True, fmt="fp8_block", at=NOW + 500)
    assert len(vm.history) == 2
    assert vm.selected == 0
    vm.select(1)
    assert vm.profile.fill_gbps == pytest.approx(9.92)


def test_failed_when_the_job_says_why_then_shown_and_the_old_figures_stay(parts, tmp_path):
    """A failure takes nothing away; a cancel is no failure."""
    jobs, _, vm = parts
    run_to_end(jobs, vm, tmp_path)
    vm.run("quick")
    jobs.end("job-2", m.Error(code=ErrorCode.BUDGET, message="No room.", hint="Unload."))
    assert (vm.phase, vm.error.message) == ("failed", "No room.")
    assert vm.profile is not None
    vm.run("quick")
    vm.cancel()
    assert jobs.cancelled == ["job-3"]
    jobs.end("job-3", m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert vm.phase == "done"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"at": NOW - 100 * 86_400}, "days ago"),
        ({"fmt": "bf16"}, "BF16"),
        ({"record": 999}, "another size"),
        ({}, ""),
    ],
)
def test_stale_when_age_format_or_size_differ_then_says_which(parts, tmp_path, changes, word):
    """Figures that do not belong to the model in use are shown with a warning."""
    _, client, vm = parts
    (tmp_path / "a.json").write_bytes(profile_bytes(**changes))
    client.model = BIG
    vm._read()
    assert (word in vm.stale) if word else (vm.stale == "")


def test_choose_when_several_formats_then_the_loaded_models_one(tmp_path):
    """Format first, then size, then the newest."""
    for name, fmt, at in (("a", "bf16", NOW + 5), ("b", "mxfp4", NOW), ("c", "mxfp4", NOW + 1)):
        (tmp_path / f"{name}.json").write_bytes(profile_bytes(fmt=fmt, at=at))
    found = best_profile(ProfileShelf(tmp_path).profiles, "mxfp4", 1)
    assert (found.format, found.measured_at_s) == ("mxfp4", NOW + 1)
    assert best_profile((), "mxfp4", 1) is None


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"key": {}, "fill": 0, "cpu": 1}', b'{"key": 1}']
)
def test_read_when_damaged_then_no_profile(tmp_path, data):
    """A file that holds no measurement is none; nobody is told a zero."""
    (tmp_path / "a.json").write_bytes(data)
    assert read_profile(data) is None
    assert ProfileShelf(tmp_path).profiles == ()


def test_read_when_newer_fields_then_ignored():
    """A newer engine may write more."""
    raw = json.loads(profile_bytes()) | {"version": 9, "weather": "rain"}
    assert read_profile(json.dumps(raw).encode()).fills_per_miss == pytest.approx(0.605, abs=1e-3)


def test_diagnose_when_cpu_only_then_says_that_copies_are_memory_copies():
    """On a machine without GPU the first finding is what B_P means there."""
    findings = diagnose(read_profile(profile_bytes(0.2, emulated=True)))
    assert findings[0].kind == "emulated"
    assert {f.kind for f in findings} >= {"share"}


@pytest.mark.parametrize(("scale", "name"), [(1.07, "PCIe 5.0 x16"), (0.52, "PCIe 4.0 x16")])
def test_diagnose_when_gpu_then_names_the_link_class(scale, name):
    """The nearest class of link, and whether it reaches what such links do."""
    found = diagnose(read_profile(profile_bytes(scale)))[0]
    assert (found.kind, found.name, found.is_good) == ("link", name, True)


def test_diagnose_when_links_hinder_each_other_then_said():
    """Both at once barely better than one alone is a finding that asks for attention."""
    raw = json.loads(profile_bytes()) | {"joint_fill": 30e9, "joint_cpu": 30e9}
    found = next(
        f
        for f in diagnose(read_profile(json.dumps(raw).encode()))
        if f.kind in ("together", "apart")
    )
    assert (found.kind, found.is_good) == ("apart", False)


@pytest.fixture
def view(parts, qtbot):
    """The page, shown."""
    page = ProfilerView(parts[2])
    qtbot.addWidget(page)
    page.resize(996, 712)
    page.show()
    return page


def test_page_when_states_change_then_each_is_shown(parts, view, tmp_path):
    """Empty, running, failed, done: the band says it, the buttons fit it, nothing is nameless."""
    jobs, _, vm = parts
    assert view.band.isVisible()
    assert view.quick.isEnabled()
    assert view.fill._metric.value.text() == "–"
    vm.run("quick")
    progress = m.Progress(
        id="", stage="measure", done_bytes=3, total_bytes=12, detail="bf16: copies"
    )
    jobs.update("job-1", progress=progress, eta_s=8.0)
    assert not view.quick.isEnabled()
    assert view.band._text.text() == "Step 4 of 12  ·  BF16: copies  ·  8 s left"
    assert nameless(view) == []
    jobs.end("job-1", m.Error(code=ErrorCode.BUDGET, message="No room.", hint="Unload."))
    assert view.band._text.text() == "No room. Unload."
    run_to_end(jobs, vm, tmp_path, scale=0.2, emulated=True, fmt="fp8_block", record=115_200)
    assert view.fill._metric.value.text() == "9.9"
    assert "memory" in view.fill._term.text()
    assert not view.band.isVisible()
    assert view.copies._plot is not None
    assert nameless(view) == []


@pytest.mark.parametrize(
    ("size", "language"), [((996, 712), "en"), ((843, 552), "pseudo"), ((700, 500), "en")]
)
def test_page_when_any_size_then_not_wider_than_the_window(parts, view, tmp_path, size, language):
    """Also in a longer language, in both tones."""
    jobs, _, vm = parts
    run_to_end(jobs, vm, tmp_path)
    use("light", 1.0, language, True)
    view.resize(*size)
    QTest.qWait(0)  # layouts settle in the event loop
    content = view.copies.parentWidget().parentWidget()
    assert content.minimumSizeHint().width() <= size[0]
    assert not view.grab().isNull()
    use("dark", 1.0, "en", True)


def test_focus_when_a_run_begins_and_ends_then_it_stays_with_the_run(parts, qtbot, tmp_path):
    """The pressed button is disabled: the focus goes to Cancel and comes back, not to a chart."""
    jobs, _, vm = parts
    view = ProfilerView(vm)
    qtbot.addWidget(view)
    view.show()
    view.activateWindow()
    settle()
    view.quick.setFocus()
    view.quick.click()
    assert view.band.cancel.hasFocus()
    assert not view.copies.ring
    view.band.cancel.click()
    jobs.end(vm._job_id, m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert view.quick.hasFocus()
