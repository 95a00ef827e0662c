"""What a report plans: which rows, in which order, at which price."""

import re

import pytest

from engine.protocol.messages import MissPolicy
from tests.perf import report, report_rows
from tests.perf.report_plan import (
    BF16,
    DEEP,
    DISK,
    FP8,
    NEEDS_PROBE,
    SECTIONS,
    Costs,
    Session,
    Sizes,
    groups,
    plan,
)
from tests.perf.report_tables import WIDTH

FULL = plan(SECTIONS, Sizes(), Costs())


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
    assert [facts["counts"] for facts in of["same"]] == [(4, 8, 12)]
    assert {facts["format"]: facts["counts"] for facts in of["pool"]} == {
        encoding: (4, 8, 12, 0) for encoding in ("bf16", "fp8")
    }


def test_replies_when_a_prompt_is_read_once_then_one_reply_has_what_counts() -> None:
    sizes = Sizes()
    assert sizes.replies("decode").lengths == [48, 48, 192, 192, 192]
    assert sizes.replies("threads").lengths == [32 + 3 * 64]
    assert sizes.replies("batch").lengths == [32 + 192]


@pytest.mark.parametrize("section", sorted(report_rows.SERVED))
def test_words_when_put_under_a_title_then_they_fit(section: str) -> None:
    assert len(f"24 layers; {Sizes().words(section)}") <= WIDTH


def test_plan_when_chunks_are_known_then_two_of_them_warm_up() -> None:
    """At the first cache size a prompt of the same length does."""
    of = {task.key: task.facts["warm up"] for task in FULL if task.section == "prefill"}
    assert of["0 0.5 32768"] == of["2048 0.125 32768"] == 32768
    assert of["2048 0.25 32768"] == of["2048 1.0 16384"] == 4096


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
    """A process a line; models, and the links' rates, where they are first needed."""
    *lines, last = report.planned(FULL, Costs()).splitlines()
    cells = [re.split(r"  +", line.strip()) for line in lines]
    assert cells[0] == ["process", "start s", "rows s", "sections"]
    *processes, whole = cells[1:]
    assert [cell[0] for cell in processes] == [
        "-", "bf16", "-", "bf16 4 threads", "bf16 8 threads", "bf16 12 threads",
        "bf16 chunks of 2048", "bf16 turns", "fp8", "deep", "-", "-",
    ]  # fmt: skip
    named = {part.split()[0] for cell in processes for part in cell[3].split(", ")}
    assert named == set(SECTIONS)
    costs = Costs()
    assert float(processes[1][1]) == costs.load(Session(BF16)) + costs.make(BF16) + costs.LINKS_S
    assert float(processes[3][1]) == costs.load(Session(BF16, 4))
    assert float(processes[-1][1]) == costs.make(DISK)
    for column in (1, 2):
        parts = sum(float(cell[column]) for cell in processes)
        assert float(whole[column]) == pytest.approx(parts, rel=0.01)
    seconds = float(whole[1]) + float(whole[2])
    assert last == f"{seconds:.0f} s, {len(FULL)} tasks"
    assert seconds < 1050  # of a loan
