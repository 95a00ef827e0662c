"""The Logs page's view model."""

import getpass
import socket

import pytest

from app.services.log_ring import LogRing
from app.viewmodels.logs import LogsViewModel


@pytest.fixture
def ring(qtbot):
    ring = LogRing(max_lines=50)
    ring.append("app", "info", "started")
    ring.append("engine", "warning", "Slow path")
    ring.append("job", "error", "shard 3 is damaged")
    return ring


def shown(vm):
    return [vm.model.line(row).text for row in range(vm.model.rowCount())]


def test_filters_then_only_what_matches(ring, tmp_path):
    """Source, level and search go together."""
    vm = LogsViewModel(ring, tmp_path)
    assert len(shown(vm)) == 3
    vm.set_level("warning")
    assert shown(vm) == ["Slow path", "shard 3 is damaged"]
    vm.set_source("engine")
    assert shown(vm) == ["Slow path"]
    vm.set_search("SLOW")
    assert shown(vm) == ["Slow path"]
    vm.set_search("nothing")
    assert shown(vm) == []


def test_new_lines_then_appended_and_the_oldest_go(qtbot, ring, tmp_path):
    """Rows are added, not rebuilt, so that the view keeps its place."""
    vm = LogsViewModel(ring, tmp_path)
    with qtbot.waitSignal(vm.model.rowsInserted):
        ring.append("app", "info", "more")
    assert shown(vm)[-1] == "more"
    assert "4 of 4 lines" in vm.count_text


def test_follow_off_then_stands_still_until_on(qtbot, ring, tmp_path):
    """Reading is not disturbed; nothing is lost."""
    vm = LogsViewModel(ring, tmp_path)
    vm.set_follow(False)
    with qtbot.waitSignal(vm.changed):
        ring.append("app", "info", "late")
    assert "late" not in shown(vm)
    vm.set_follow(True)
    assert shown(vm)[-1] == "late"


def test_report_then_without_personal_data(ring, tmp_path):
    """Keys, mail addresses and user names stay here."""
    ring.append("app", "info", "opened /home/zoe/models and C:\\Users\\Zoe\\x with hf_abcdefgh1234")
    vm = LogsViewModel(ring, tmp_path)
    assert vm.save_report(tmp_path / "report.txt") == ""
    text = (tmp_path / "report.txt").read_text()
    assert "zoe" not in text.lower()
    assert "hf_abc" not in text
    assert "/home/<name>/models" in text


def test_report_then_without_the_names_of_account_and_computer(ring, tmp_path, monkeypatch):
    """Also where they stand in no folder."""
    monkeypatch.setattr(getpass, "getuser", lambda: "Max Mustermann")
    monkeypatch.setattr(socket, "gethostname", lambda: "pc-max")
    ring.append("app", "info", "Max Mustermann began on pc-max")
    assert "<name> began on <name>" in LogsViewModel(ring, tmp_path).report()


def test_save_report_when_impossible_then_sentence(ring, tmp_path):
    """A full or forbidden place is said."""
    (tmp_path / "file").write_text("")
    vm = LogsViewModel(ring, tmp_path)
    assert "could not be written" in vm.save_report(tmp_path / "file" / "report.txt")


def test_text_then_selected_lines_in_order(ring, tmp_path):
    """Copy takes what is selected, top down."""
    vm = LogsViewModel(ring, tmp_path)
    first, second = vm.text([1, 0]).splitlines()
    assert first.endswith("app info: started")
    assert second.endswith("engine warning: Slow path")
