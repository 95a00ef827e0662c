"""The Profiler's history and ways out: lines with changes, notes beside a run, files, clipboard."""

import csv
import io
import json

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from app.predict.profiles import Conditions, read_profile
from app.services.machine_facts import GpuFacts, MachineFacts
from app.services.memory_modules import MemoryModules
from app.viewmodels.profile_shelf import ProfileShelf
from app.viewmodels.profiler import ProfilerViewModel
from app.views.profiler import ProfilerView
from app.views.profiler_words import change_words, finding_words
from app.widgets.charts.table import ValuesDialog
from engine.protocol import messages as m
from tests.app.first_run.stubs import StubReader
from tests.app.performance.stubs import StubClient, profile_bytes
from tests.app.profiler.stubs import StubJobs
from tests.app.profiler.test_profiler import NOW, run_to_end
from tests.app.walk import clipped, settle

CARD = GpuFacts("Card", "590", 8, 1, 4, 5, 16, 70, False, 0.4)
LOADED = GpuFacts("Card", "590", 8, 4, 4, 5, 16, 88, True, 0.99)


@pytest.fixture
def parts(qapp, looks, tmp_path):
    jobs, reader = StubJobs(), StubReader()
    vm = ProfilerViewModel(jobs, StubClient(), tmp_path, lambda: NOW + 60, reader)
    return jobs, reader, vm


@pytest.fixture
def view(parts, qtbot):
    page = ProfilerView(parts[2])
    qtbot.addWidget(page)
    page.resize(996, 900)
    page.show()
    settle()
    return page


def runs(parts, tmp_path, *scales, **more):
    jobs, _, vm = parts
    for i, scale in enumerate(scales):
        run_to_end(jobs, vm, tmp_path, scale=scale, at=NOW + i, **more)


def test_history_when_runs_differ_then_changes_with_sign_and_a_click_shows_one(
    parts, view, tmp_path, qtlog
):
    """Each line stands beside the run before it; the figures above follow the click."""
    runs(parts, tmp_path, 1.0, 0.8, 1.0)
    rows = [row for row in view.history.rows if row.isVisible()]
    names = [row.accessibleName() for row in rows]
    assert len(rows) == 3
    assert "+25 %" in names[0]
    assert "−20 %" in names[1]
    assert "%" not in names[2]
    assert [row.isChecked() for row in rows] == [True, False, False]
    assert not view.grab().isNull()
    assert not [record for record in qtlog.records if "QPainter" in record.message]
    rows[1].click()
    assert view.fill._metric.value.text() == "39.7"
    assert [row.isChecked() for row in rows] == [False, True, False]


def test_history_when_many_then_the_newest_and_the_selected_one(parts, view, tmp_path):
    """A list of months stays short; an older one that is shown is in it."""
    runs(parts, tmp_path, *(1 + i / 100 for i in range(11)))
    vm = parts[2]
    vm.select(10)
    shown = [row for row in view.history.rows if row.isVisible()]
    assert len(shown) == 8
    assert shown[-1].isChecked()
    shown[0].click()
    assert vm.selected == 0


@pytest.mark.parametrize(
    ("change", "words"), [(None, ""), (0.031, "+3 %"), (-0.12, "−12 %"), (0.004, "±0 %")]
)
def test_change_then_with_its_sign(change, words):
    """A minus is a minus sign, nothing is plus-minus nothing."""
    assert change_words(change) == words


def test_run_then_what_was_so_is_kept_beside_it_and_told(parts, view, tmp_path):
    """Noted before the run and under load; the sentences come from the notes."""
    jobs, reader, vm = parts
    vm.run("quick")
    assert len(reader.asked) == 1
    modules = MemoryModules(1, 5600)
    reader.known.emit(MachineFacts(CARD, 1, 1, modules, 1, True))
    reader.known.emit(MachineFacts(LOADED, 1, 1, modules, 1, True))
    path = tmp_path / "gpu.json"
    path.write_bytes(profile_bytes())
    jobs.end("job-1", m.JobDone(job="profile", result={"paths": [str(path)]}))
    noted = ProfileShelf(tmp_path).conditions(vm.profile)
    assert noted == Conditions(4, 4, 16, 1, 5600, True, 0.4, 88, True)
    kinds = {finding.kind for finding in vm.findings()}
    assert {"narrow", "channel", "battery", "busy", "hot"} <= kinds
    texts = [w.text() for w in view.findings.findChildren(type(view.last))]
    for words in ("×4 of ×16", "single channel", "battery", "40 %", "88 °C"):
        assert any(words in text for text in texts), words
    for finding in vm.findings():
        assert len(finding_words(finding)) == 4


def test_facts_when_nothing_is_measured_then_not_noted(parts):
    """Readings that others asked for are no notes of a run."""
    _, reader, vm = parts
    reader.known.emit(MachineFacts(CARD))
    assert vm._around is None


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_export_then_the_file_holds_all_points_and_no_path(
    parts, view, tmp_path, monkeypatch, kind
):
    """What was measured, with units in the names; the person's folders are nobody's business."""
    runs(parts, tmp_path, 1.0)
    target = tmp_path / f"out.{kind}"
    chosen = (str(target), f"{kind.upper()} (*.{kind})")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: chosen)
    view.history.save.click()
    text = target.read_text("utf-8")
    assert str(tmp_path) not in text
    profile = read_profile(profile_bytes(at=NOW))
    if kind == "json":
        raw = json.loads(text)
        assert raw["fill_gbps"] == pytest.approx(49.6)
        points = [(p["link"], p["size_bytes"]) for p in raw["points"]]
    else:
        rows = list(csv.DictReader(io.StringIO(text)))
        assert float(rows[0]["gbps"]) == pytest.approx(profile.points[0][2], abs=1e-3)
        points = [(row["link"], int(row["size_bytes"])) for row in rows]
    assert points == [(link, size) for link, size, _ in profile.points]
    assert "Written" in view.history.said.text()


def test_export_when_the_folder_is_gone_then_said(parts, view, tmp_path, monkeypatch):
    """A failure is a sentence on the card."""
    runs(parts, tmp_path, 1.0)
    (tmp_path / "file").write_text("")
    chosen = (str(tmp_path / "file" / "out.json"), "JSON (*.json)")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: chosen)
    view.history.save.click()
    assert "could not be written" in view.history.said.text()


def test_copy_then_a_table_with_this_machine_and_the_six(parts, view, tmp_path):
    """Tabs, so that a spreadsheet takes it."""
    assert not view.history.copy.isEnabled()
    runs(parts, tmp_path, 1.0)
    view.history.copy.click()
    lines = QGuiApplication.clipboard().text().split("\n")
    assert len(lines) == 8
    assert {line.count("\t") for line in lines} == {6}
    assert lines[1].startswith("this PC\t49.6\t57.6\t79.8")


@pytest.mark.parametrize("name", ["copies", "kernel", "machines"])
def test_chart_when_ctrl_shift_t_then_its_values_as_a_table(parts, view, tmp_path, name):
    """Every chart of the page can be read without seeing it."""
    runs(parts, tmp_path, 1.0)
    chart = getattr(view, name)
    view.activateWindow()
    chart.setFocus()
    keys = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    QTest.keyClick(chart, Qt.Key.Key_T, keys)
    dialog = chart.findChild(ValuesDialog)
    assert dialog.grid.rowCount() >= 6
    assert dialog.grid.accessibleName()
    dialog.close()


@pytest.mark.parametrize("size", [(996, 712), (640, 500)])
def test_page_when_all_is_wrong_then_whole(parts, view, tmp_path, size):
    """The longest diagnosis still fits its card."""
    _, reader, vm = parts
    vm.run("quick")
    reader.known.emit(MachineFacts(LOADED, 1, 1, MemoryModules(1, 5600), 1, True))
    path = tmp_path / "gpu.json"
    path.write_bytes(profile_bytes())
    parts[0].end("job-1", m.JobDone(job="profile", result={"paths": [str(path)]}))
    view.resize(*size)
    settle()
    assert clipped(view) == []
