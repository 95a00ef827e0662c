"""The report: what it keeps, leaves out and runs; and all of it once on the CPU."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.moe import device_prefill
from engine.protocol.messages import MissPolicy
from kernels.cuda.residency import Eviction
from tests.engine.moe.prefill_world import PrefillWorld, chunk_of
from tests.engine.moe.world import EXPERTS, LAYERS, LAYOUT
from tests.kernels.cuda.moe_support import needs_native
from tests.kernels.emulator import needs_emulator
from tests.perf import report, report_rows
from tests.perf.client import BenchError
from tests.perf.report_place import Place, child
from tests.perf.report_plan import (
    BF16,
    DISK,
    SECTIONS,
    TINY_SIZES,
    Costs,
    Task,
    plan,
)
from tests.perf.report_rows import same_row
from tests.perf.report_run import NO_TIME, LeftOut, Run
from tests.perf.report_store import FIGURES, Budget, Row, Store
from tests.perf.report_tables import WIDTH, text
from tests.perf.same import Case, Outcome, line
from tests.perf.switched_engine import DEMAND, STREAM, WAYS, switched

CARD = "NVIDIA H200; 16 cores"


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A tiny place, with the figures of a probe."""
    figures = tmp_path / FIGURES
    figures.write_text("{}", encoding="utf-8")
    return Place(
        tmp_path / "out", tmp_path / "models", tmp_path / "disk", "cpu", TINY_SIZES, Costs(True),
        figures,
    )  # fmt: skip


def tasks_of(*keys: str, seconds: float = 1.0) -> list[Task]:
    return [Task("pool", key, seconds, None, {"format": key}) for key in keys]


def measured_by(
    monkeypatch: pytest.MonkeyPatch, rows: Callable[[Mapping[str, Any]], list[Row]]
) -> None:
    """Let the section `pool` be measured by a function."""
    monkeypatch.setitem(report_rows.OTHERS, "pool", lambda place, facts, keep: rows(facts))


# --- budget


def test_budget_when_rows_take_longer_than_estimated_then_fewer_fit() -> None:
    clock = Clock()
    budget = Budget(10.0, clock)
    assert budget.fits({"decode": 10.0})
    assert not budget.fits({"decode": 6.0, "load": 4.5})
    clock.now_s += 4.0
    budget.spent("decode", 2.0, 4.0)
    assert budget.left_s == 6.0
    assert budget.fits({"decode": 3.0})
    assert not budget.fits({"decode": 3.1})
    assert not budget.fits({"batch": 3.1})  # of which nothing is known


def test_budget_when_one_kind_is_fast_then_another_is_not_taken_to_be() -> None:
    budget = Budget(10.0, Clock())
    budget.spent("decode", 8.0, 2.0)
    assert budget.fits({"decode": 39.0})
    assert not budget.fits({"load": 10.5})


# --- store


def test_store_when_a_run_is_killed_then_the_next_one_has_its_rows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("same", "4", [{"hash": "a"}], is_whole=False)
    store.put("decode", "0.25", [{"tok/s": 1.0}])
    again = Store(tmp_path)
    assert again.rows("same") == [{"hash": "a"}]
    assert not again.is_whole("same", "4")
    assert again.is_whole("decode", "0.25")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decode.json", "same.json"]


def test_merge_when_two_runs_have_a_task_then_the_last_whole_one_counts(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "1"), Store(tmp_path / "2")
    first.put("pool", "a", [{"n": 1}])
    first.put("pool", "b", [{"n": 2}])
    first.put("pool", "c", [{"n": 3}], is_whole=False)
    second.put("pool", "a", [{"n": 4}])
    second.put("pool", "b", [{"n": 5}], is_whole=False)
    second.put("pool", "c", [{"n": 6}])
    merged = Store.merged([tmp_path / "1", tmp_path / "2"])
    assert merged.rows("pool") == [{"n": 4}, {"n": 2}, {"n": 6}]
    assert merged.is_whole("pool", "c")


# --- a run


def test_run_when_a_row_fails_then_the_others_are_measured(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(facts: Mapping[str, Any]) -> list[Row]:
        if facts["format"] == "b":
            raise BenchError("No b here.")
        return [{"n": facts["format"]}]

    measured_by(monkeypatch, rows)
    store = Store(place.out)
    run = Run(place, store, Budget(60.0), CARD)
    run.tasks(tasks_of("a", "b", "c"))
    assert [row["n"] for row in store.rows("pool")] == ["a", "c"]
    assert {row["machine"] for row in store.rows("pool")} == {CARD}
    assert run.left_out == [LeftOut("pool", "b", "No b here.")]
    assert run.left_out[0].is_refused


def test_run_when_rows_are_kept_already_then_they_are_not_measured_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rows(facts: Mapping[str, Any]) -> list[Row]:
        asked.append(facts["format"])
        return [{}]

    measured_by(monkeypatch, rows)
    store = Store(place.out)
    store.put("pool", "a", [{}])
    store.put("pool", "b", [{}], is_whole=False)
    Run(place, store, Budget(60.0), CARD).tasks(tasks_of("a", "b", "c"))
    assert asked == ["b", "c"]


def test_same_when_a_call_was_cut_off_then_the_next_one_begins_with_the_threads_it_broke_off(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept on the way holds the earlier rows, too."""
    asked: list[str] = []

    def row(threads: int) -> str:
        case = Case(threads, 0.125, MissPolicy.FILL_ONLY, Eviction.LRU, True)
        return line(case, Outcome(1, 6, 6, 0.5, 1.0))

    @contextmanager
    def child(*words: str, may_fail: bool) -> Iterator[Iterator[str]]:
        asked.extend(words)
        yield iter(["same: 6 layers", "a card", row(8), row(12), "2 combinations, 1 hash"])

    monkeypatch.setattr(report_rows, "child", child)
    store = Store(place.out)
    before = [same_row(row(threads)) for threads in (4, 4, 8)]
    store.put("same", "all", [one for one in before if one], is_whole=False)
    task = Task("same", "all", 1.0, None, {"counts": (4, 8, 12)})
    Run(place, store, Budget(60.0), CARD).tasks([task])
    at = asked.index("--threads")
    assert asked[at + 1 : at + 3] == ["8", "12"]
    assert [row["threads"] for row in store.rows("same")] == [4, 4, 8, 12]
    assert store.is_whole("same", "all")
    assert store.rows("same")[-1]["how"] == "6 layers"


def test_run_when_the_time_is_short_then_what_fits_is_measured(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long row in the middle is left out, the short one behind it is not."""
    measured_by(monkeypatch, lambda facts: [{"n": facts["format"]}])
    store = Store(place.out)
    run = Run(place, store, Budget(50.0), CARD)
    run.tasks([*tasks_of("a"), *tasks_of("b", seconds=500.0), *tasks_of("c")])
    assert [row["n"] for row in store.rows("pool")] == ["a", "c"]
    assert run.left_out == [LeftOut("pool", "b", NO_TIME)]
    assert not run.left_out[0].is_refused


def test_run_when_no_row_of_an_engine_fits_then_the_engine_is_not_started(place: Place) -> None:
    run = Run(place, Store(place.out), Budget(2.0), CARD)
    run.tasks(plan(["decode"], TINY_SIZES, place.costs)[1:])
    assert {one.reason for one in run.left_out} == {NO_TIME}
    assert not place.models.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such clock")
def test_run_when_a_row_never_ends_then_the_clock_ends_the_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(facts: Mapping[str, Any]) -> list[Row]:
        if facts["format"] == "b":
            threading.Event().wait(30.0)  # longer than any budget here
        return [{}]

    measured_by(monkeypatch, rows)
    store = Store(place.out)
    run = Run(place, store, Budget(0.5), CARD)
    run.tasks(tasks_of("a", "b", "c", seconds=0.01))
    assert len(store.rows("pool")) == 1
    assert [one.key for one in run.left_out] == ["b", "c"]


def test_child_when_it_fails_then_its_last_words_are_the_reason() -> None:
    with (
        pytest.raises(BenchError, match="Where shall the figures go"),
        child("tests.perf.report", "--device", "cpu") as lines,
    ):
        list(lines)


def test_child_when_nobody_reads_on_then_it_is_ended() -> None:
    """This one would wait for ever."""
    words = ("-n", "1", "-r", "1", "import threading; threading.Event().wait()")
    with pytest.raises(BenchError, match="enough"), child("timeit", *words):
        raise BenchError("enough")


# --- the switch


@pytest.mark.parametrize("way", WAYS)
def test_switch_when_it_names_a_way_then_a_chunk_is_loaded_so(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On demand, only what is routed crosses the link; the engine's own choice is asked else."""
    file, asked = tmp_path / "switch", []

    def own(*facts: Any) -> bool:
        asked.append(facts)
        return False

    monkeypatch.setattr(device_prefill, "prefers_demand", switched(file, own))
    hidden, routings = chunk_of(1)
    routed = sum(len(set(routing.ids.flatten().tolist())) for routing in routings)
    assert 0 < routed < LAYERS * EXPERTS
    with PrefillWorld(()) as world:
        file.write_text(way, encoding="utf-8")
        world.run((hidden, routings))
        records = routed if way == DEMAND else LAYERS * EXPERTS
        assert world.prefill.num_bytes == records * LAYOUT.record_bytes
    assert bool(asked) == (way not in (DEMAND, STREAM))


# --- all of it


@pytest.mark.slow
@pytest.mark.timeout(400)
@needs_native
@needs_emulator
def test_report_when_run_on_the_cpu_then_every_section_has_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One call measures all; a second one finds it; two of them are merged."""
    out = tmp_path / "out"
    words = [str(out), "--device", "cpu", "--budget-s", "380"]
    words += ["--models", str(tmp_path / "models"), "--disk", str(tmp_path / "disk")]
    assert report.main(words) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("Nothing was left out.\n")
    wanted = plan(SECTIONS, TINY_SIZES, Costs(True))
    for section in SECTIONS:
        kept = json.loads((out / f"{section}.json").read_text(encoding="utf-8"))
        assert set(kept["tasks"]) == {task.key for task in wanted if task.section == section}
        assert set(kept["whole"]) == set(kept["tasks"])
    tables = printed[printed.rindex("\n\nprobe: ") :]
    assert [line for line in tables.splitlines() if len(line) > WIDTH] == []
    left = {path.name for path in (tmp_path / "models").rglob("*-tiny")}
    assert left == {f"{BF16}-tiny"}  # for the next call
    assert not list((tmp_path / "disk").rglob(f"{DISK}-tiny"))

    assert report.main(words) == 0
    again = capsys.readouterr().out
    assert "loaded in" not in again
    assert again.strip() == f"{text(Store(out))}\n\nNothing was left out.".strip()

    assert report.main(["--merge", str(out), str(out)]) == 0
    assert capsys.readouterr().out == f"{text(Store(out))}\n"
