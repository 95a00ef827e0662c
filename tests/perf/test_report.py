"""The report: what it plans, keeps, leaves out and says; and all of it once on the CPU."""

import json
import sys
import threading
from collections.abc import Callable, Mapping
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
    DEEP,
    DISK,
    FP8,
    NEEDS_PROBE,
    POLICIES,
    SECTIONS,
    TINY_SIZES,
    Costs,
    Session,
    Sizes,
    Task,
    groups,
    plan,
)
from tests.perf.report_rows import same_row
from tests.perf.report_run import NO_TIME, LeftOut, Run
from tests.perf.report_store import FIGURES, Budget, Row, Store
from tests.perf.report_tables import WIDTH, text, verdict, wrong
from tests.perf.same import Case, Outcome, line
from tests.perf.switched_engine import DEMAND, STREAM, WAYS, switched

CARD = "NVIDIA H200; 16 cores"
FULL = plan(SECTIONS, Sizes(), Costs())


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


# --- plan


def test_plan_when_all_is_asked_for_then_each_engine_starts_once() -> None:
    """Three models, three numbers of threads, chunks of a fixed length, and turns."""
    sessions = [session for session, _ in groups(FULL) if session is not None]
    assert sessions == [
        Session(BF16),
        *(Session(BF16, threads) for threads in (4, 8, 12)),
        Session(BF16, chunk=2048),
        Session(BF16, reuse=True),
        Session(FP8),
        Session(DEEP),
    ]
    assert FULL[0].section == "probe"
    assert {task.section for task in FULL} == set(SECTIONS)
    assert len({(task.section, task.key) for task in FULL}) == len(FULL)
    assert all(task.seconds > 0 for task in FULL)


def test_plan_when_all_is_asked_for_then_it_holds_what_the_tables_need() -> None:
    """Four shares; all policies beside the default; chunked prompts where that differs."""
    of = {name: [task.facts for task in FULL if task.section == name] for name in SECTIONS}
    assert [facts["share"] for facts in of["decode"]] == [0.125, 0.25, 0.5, 1.0]
    assert {facts["batch"] for facts in of["batch"]} == {2, 4, 8}
    assert {(facts["threads"], facts["policy"]) for facts in of["threads"]} == {
        (threads, policy) for threads in (0, 4, 8, 12) for policy in ("default", *MissPolicy)
    }
    assert {facts["prompt"] for facts in of["prefill"] if facts["chunk"]} == {4096, 16384, 32768}
    assert {facts["way"] for facts in of["suffix"]} == {"auto", "stream", "demand"}


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_plan_when_one_section_is_asked_for_then_the_probe_comes_only_if_needed(
    section: str,
) -> None:
    found = [task.section for task in plan([section], Sizes(), Costs())]
    expected = ["probe"] if section in NEEDS_PROBE else []
    assert list(dict.fromkeys(found)) == list(dict.fromkeys([*expected, section]))


def test_costs_when_a_step_has_more_to_do_then_it_takes_longer() -> None:
    """And what was measured on such a card comes out within a fifth: 109 and 616 tokens/s."""
    costs = Costs()
    assert 1 / costs.step(0.125) == pytest.approx(109, rel=0.2)
    assert 1 / costs.step(1.0) == pytest.approx(616, rel=0.2)
    assert costs.prompt(512, 0.125) == pytest.approx(0.49, rel=0.3)
    assert costs.step(0.125, 8) > costs.step(0.125, 2) > costs.step(0.125) > costs.step(0.5)
    assert costs.step(0.25, policy="cpu_only", threads=4) > costs.step(0.25, policy="fill_only")
    assert costs.prompt(32768, 0.25, chunk=2048) > 4 * costs.prompt(32768, 0.25)


def test_planned_when_printed_then_the_last_line_is_the_sum() -> None:
    printed = report.planned(FULL, Costs()).splitlines()
    table = {words[0]: float(words[2]) for words in map(str.split, printed[1:-1])}
    whole = table.pop("all")
    assert set(table) == {*SECTIONS, "models", "engines"}
    assert whole == pytest.approx(sum(table.values()), rel=0.01)


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


# --- what is said


@pytest.mark.parametrize(
    ("mine", "others", "share", "word"),
    [
        ((98.0, 97.0, 99.0), [(100.0, 99.5, 101.0), (50.0, 49.0, 51.0)], 0.98, "ok"),
        ((90.0, 85.0, 99.0), [(100.0, 98.0, 101.0)], 0.9, "spread"),
        ((90.0, 85.0, 95.0), [(100.0, 98.0, 101.0)], 0.9, "SLOWER"),
        ((110.0, 109.0, 111.0), [(100.0, 98.0, 101.0)], 1.1, "ok"),
    ],
)
def test_verdict_when_the_best_way_is_another_then_three_percent_or_the_spread(
    mine: tuple[float, ...], others: list[tuple[float, ...]], share: float, word: str
) -> None:
    found, said = verdict(mine, others)
    assert (round(found, 3), said) == (share, word)


def full_store() -> Store:
    """Rows of every section as an H200 gives them, with the widest figures."""
    store = Store()
    speed = {
        "slots": 3072, "tok/s": 616.4, "min": 5612.7, "max": 5619.9, "each": 612.3, "hit": 0.435,
        "q": 0.305, "link GB/s": 45.12, "cpu GB/s": 88.12, "limit": 1203.1, "of limit": 0.512,
        "us/layer": 33.12, "ttft s": 0.495, "vram GB": 133.4, "right": "100/192", "reused": 0,
    }  # fmt: skip
    prompt = {
        "ttft s": 0.495, "min": 0.485, "max": 10.51, "tok/s": 22222.2, "limit s": 0.458,
        "right": "1/2",
    }  # fmt: skip
    rows: dict[str, Row] = {
        "probe": {
            "main_gbps": 140.11, "cpu": 98.12, "link_gbps": 55.53, "device_gbps": 4200.0,
            "handshake_us": 3.45,
        },
        **dict.fromkeys(("decode", "batch", "threads", "fp8", "deep"), speed),
        **dict.fromkeys(("prefill", "suffix"), prompt),
        "same": {
            "eviction": "frequency", "resizes": True, "hash": "6f8ba5278620fa1e", "hit": 0.95,
            "q": 0.35, "right": "all", "policy": "two_ended", "share": 0.25,
        },
        "resize": {
            "change": "shrink", "slots": "768 1536", "GB": 14.49, "count": 10, "pause ms": 15.12,
            "max pause": 18.12, "waited ms": 12.12, "evicted": 7680, "text gap ms": 31.12,
            "quiet gap ms": 12.12, "right": "all",
        },
        "pool": {
            "threads": 12, "read_gbps": 98.12, "pool_gbps": 71.12, "fraction": 0.812,
            "is default": True, "us": dict.fromkeys(("12", "24", "48", "96", "160"), 1234.5),
        },
        "load": {
            "from": "page cache", "GB": 7.25, "plain GB/s": 12.34, "readers GB/s": 12.34,
            "engine GB/s": 11.12, "of plain": 0.912, "of readers": 0.912, "load s": 13.12,
        },
    }  # fmt: skip
    for task in FULL:
        row = rows[task.section] | task.facts | {"machine": CARD}
        store.put(task.section, task.key, [row])
    return store


def test_tables_when_every_section_has_its_rows_then_none_is_too_wide() -> None:
    printed = text(full_store())
    assert printed.startswith(f"{CARD}\n\nprobe: ")
    assert [line for line in printed.splitlines() if len(line) > WIDTH] == []
    assert all(f"\n{section}: {title}\n" in printed for section, title in SECTIONS.items())


def test_tables_when_a_row_is_there_in_part_then_the_rest_is_a_dash() -> None:
    """Chunked prompts alone, and policies that were forced without the default."""
    whole, store = full_store(), Store()
    for section, wanted in (("prefill", "chunk"), ("threads", "policy")):
        rows = [row for row in whole.rows(section) if row[wanted] not in (0, "default")]
        store.put(section, "", rows)
    printed = text(store).splitlines()
    assert sum(line.split()[2] == "-" for line in printed if line.startswith((" ", "0"))) >= 12


def test_tables_when_a_peer_was_measured_on_such_a_card_then_the_ratio() -> None:
    store = full_store()
    decode = text(store).partition("decode: ")[2].partition("\n\n")[0].splitlines()
    assert decode[1].split()[-2:] == ["x", "peer"]
    assert [float(line.split()[-1]) for line in decode[2:]] == [14.6, 10.8, 5.21, 1.61]
    elsewhere = Store()
    elsewhere.put("decode", "", [{**row, "machine": "a laptop"} for row in store.rows("decode")])
    assert "peer" not in text(elsewhere)


def test_tables_when_the_default_is_slower_than_a_policy_then_it_says_so() -> None:
    store = Store()
    rows = full_store().rows("threads")[: len(POLICIES)]
    for row in rows:
        fast = row["policy"] == "fill_only"
        row |= {"tok/s": 200.0, "min": 199.0, "max": 201.0} if fast else {}
        row |= {"tok/s": 150.0, "min": 149.0, "max": 151.0} if row["policy"] == "default" else {}
    store.put("threads", "", [row for row in rows if row["policy"] in ("default", "fill_only")])
    words = text(store).splitlines()[-1].split()
    assert words[:2] == ["own", "12.5%"]
    assert words[2:9] == ["150.0", "-", "-", "200.0", "-", "0.75", "SLOWER"]


def test_tables_when_a_prompt_is_read_then_the_goal_is_beside_it() -> None:
    """1.1 times the limit."""
    lines = text(full_store()).partition("prefill: ")[2].splitlines()
    of = dict(zip(lines[1].replace(" s ", "_s ").split(), lines[2].split(), strict=False))
    assert (of["limit_s"], of["goal_s"]) == ("0.458", "0.504")
    assert float(lines[2].split()[8]) == pytest.approx(0.495 / 0.5038, abs=0.01)


@pytest.mark.parametrize(
    ("section", "change", "expected"),
    [
        ("decode", {"right": "3/4"}, ["decode"]),
        ("same", {"hash": "0" * 16}, ["same"]),
        ("same", {}, []),
    ],
)
def test_wrong_when_a_reply_or_a_hash_differs_then_its_section(
    section: str, change: Row, expected: list[str]
) -> None:
    store = Store()
    good = {"right": "all", "hash": "a" * 16}
    store.put(section, "1", [good, good | change])
    assert wrong(store) == expected


@pytest.mark.parametrize("q", [None, 0.5])
def test_line_of_the_matrix_when_read_back_then_it_is_the_same(q: float | None) -> None:
    case = Case(8, 0.125, MissPolicy.FILL_ONLY, Eviction.LRU, True)
    outcome = Outcome(0x1234, 255, 256, 0.425, q)
    assert same_row(line(case, outcome)) == {
        "threads": 8, "share": 0.125, "policy": "fill_only", "eviction": "lru", "resizes": True,
        "hash": "0000000000001234", "hit": 0.425, "q": q, "right": "255/256",
    }  # fmt: skip
    assert same_row("16 combinations, 1 hash, every id right, 9 s") is None


def test_missing_when_much_is_left_out_then_a_few_names_and_a_count() -> None:
    left = [LeftOut("threads", f"{n}", NO_TIME) for n in range(9)]
    printed = report.missing([*left, LeftOut("load", "disk", "No disk.")])
    assert "threads (no time): 0, 1, 2, 3, 4, 5 and 3 more" in printed
    assert "load (No disk.): disk" in printed


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
