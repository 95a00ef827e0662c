"""What a report says: its tables, what is wrong, what is missing."""

import pytest

from engine.protocol.messages import MissPolicy
from kernels.cuda.residency import Eviction
from tests.perf import report
from tests.perf.report_plan import (
    POLICIES,
    SECTIONS,
    Costs,
    Sizes,
    plan,
)
from tests.perf.report_rows import same_row
from tests.perf.report_run import NO_TIME, LeftOut
from tests.perf.report_store import Row, Store
from tests.perf.report_tables import WIDTH, text, verdict, wrong
from tests.perf.same import Case, Outcome, line

CARD = "NVIDIA H200; 16 cores"


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
            "q": 0.35, "right": "all", "policy": "two_ended", "share": 0.25, "threads": 12,
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
    for task in plan(SECTIONS, Sizes(), Costs()):
        row = rows[task.section] | task.facts | {"machine": CARD}
        store.put(task.section, task.key, [row])
    return store


def test_tables_when_every_section_has_its_rows_then_none_is_too_wide() -> None:
    printed = text(full_store())
    assert printed.startswith(f"{CARD}\n\nprobe: ")
    assert [line for line in printed.splitlines() if len(line) > WIDTH] == []
    assert all(f"\n{section}: {title}\n" in printed for section, title in SECTIONS.items())


def test_tables_when_rows_say_how_they_were_measured_then_it_stands_under_the_title() -> None:
    """Once; another way is another line."""
    store, row = Store(), full_store().rows("resize")[0]
    store.put("resize", "a", [row | {"how": "20 times"}, row | {"how": "20 times"}])
    store.put("resize", "b", [row, row | {"how": "twice"}])
    lines = text(store).splitlines()
    assert lines[2:5] == [f"resize: {SECTIONS['resize']}", "20 times", "twice"]
    assert lines[5].split()[0] == "change"


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


@pytest.mark.parametrize(
    ("compute_s", "goal_s"),
    [(0.4, 0.5038), (None, 0.5038), (0.6, 0.66)],
    ids=["copying is longer", "not measured resident", "computing is longer"],
)
def test_tables_when_a_prompt_is_read_then_the_goal_is_beside_it(
    compute_s: float | None, goal_s: float
) -> None:
    """1.1 times what copying the missing experts takes, or computing where they are resident."""
    whole = [row for row in full_store().rows("prefill") if not row["chunk"]]
    mine, *_, resident = [row for row in whole if row["prompt"] == 512]
    assert resident["share"] == 1.0
    store = Store()
    store.put("prefill", "mine", [mine])
    if compute_s is not None:
        store.put("prefill", "resident", [resident | {"ttft s": compute_s, "limit s": None}])
    titles, row = text(store).partition("prefill: ")[2].splitlines()[1:3]
    names = titles.replace("of goal", "of_goal").replace(" s ", "_s ").split()
    of = dict(zip(names, row.split(), strict=False))  # behind the goal a title has two words
    assert float(of["goal_s"]) == pytest.approx(goal_s, abs=6e-4)
    assert float(of["of_goal"]) == pytest.approx(0.495 / goal_s, abs=0.01)


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
