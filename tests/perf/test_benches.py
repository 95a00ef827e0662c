"""Every benchmark runs on a machine without a GPU: structure, never speed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.perf import serve_decode, serve_load, serve_prefill, serve_resize
from tests.perf.__main__ import BENCHES
from tests.perf.client import BenchError
from tests.perf.probe import main as probe_main
from tests.perf.serve import measure_links
from tests.perf.synthetic import write_folder
from tests.perf.synthetic_weights import TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures of a tiny probe."""
    file = tmp_path_factory.mktemp("probe") / "probe.json"
    assert (
        probe_main(["--quick", "--memory-mb", "8", "--threads", "1", "2", "--json", str(file)]) == 0
    )
    return file


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root for all, so that the built-in model is converted once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def run(
    probe: Path, home: Path, tmp_path: Path
) -> Callable[[Callable[[list[str]], int], str], list[dict[str, Any]]]:
    """Run a benchmark on the CPU; returns the rows that it kept."""

    def run(main: Callable[[list[str]], int], words: str) -> list[dict[str, Any]]:
        file = tmp_path / "out.json"
        common = f"--device cpu --probe {probe} --home {home} --json {file}"
        assert main([*words.split(), *common.split()]) == 0
        rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return rows

    return run


def test_probe_when_there_is_no_gpu_then_main_memory_and_a_sentence(probe: Path) -> None:
    figures = json.loads(probe.read_text(encoding="utf-8"))
    assert [row["threads"] for row in figures["read"]] == [1, 2]
    assert figures["main_gbps"] == max(row.get("joint", row["cpu"]) for row in figures["read"])
    assert bool(figures["note"]) == (figures["device_gbps"] == 0)


@pytest.mark.parametrize("in_memory", [False, True])
def test_decode_when_the_model_is_synthetic_then_every_token_is_known(
    run: Callable[..., list[dict[str, Any]]], tmp_path: Path, in_memory: bool
) -> None:
    """Experts from a file, and made in the engine's own pool."""
    model = write_folder(tmp_path / "tiny", TINY, threads=2, in_memory=in_memory)
    words = (
        f"--model {model} --prompt 48 --tokens 12 --repeats 1 --warm-up 1 --cache-share 0.25 1 "
        "--policy default cpu_only --batch 1 2"
    )
    rows = run(serve_decode.main, words)
    assert [(row["slots"], row["batch"]) for row in rows] == [(12, 1), (12, 2)] * 2 + [
        (48, 1),
        (48, 2),
    ] * 2
    assert {row["right"] for row in rows} == {"all"}
    for row in rows:
        assert 0 <= row["hit"] <= 1
        assert row["missed bytes"] >= 0
        assert row["trace"] > 0
        assert row["tok/s"] >= 0  # 0: one reply was over when the other began
    assert {row["q"] for row in rows if row["policy"] == "cpu_only" and row["slots"] == 12} == {0}


def test_prefill_when_the_model_is_built_in_then_rows_for_lengths_and_turns(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    words = "--prompts 16 40 --suffixes 8 --prefix 24 --cache-share 0.25 --repeats 1"
    rows = run(serve_prefill.main, words)
    assert [row["turn"] for row in rows] == ["fresh", "fresh", "+8"]
    assert {row["right"] for row in rows} == {"all"}
    assert rows[0]["tokens"] < rows[1]["tokens"]


def test_resize_when_the_model_is_built_in_then_the_reply_stays_the_same(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    rows = run(serve_resize.main, "--prompt 16 --resizes 5 --every 2")
    assert [(row["change"], row["count"]) for row in rows] == [
        ("grow", 3),
        ("shrink", 2),
        ("all", 5),
    ]
    assert rows[-1]["right"] == "all"
    assert rows[0]["slots"] != rows[1]["slots"]


def test_load_when_the_model_is_built_in_then_disk_and_page_cache(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    rows = run(serve_load.main, "--repeats 1")
    assert [row["from"] for row in rows] == ["disk", "page cache"]
    assert all(row["plain GB/s"] > 0 and row["load s"] > 0 for row in rows)


def test_links_when_the_policy_goes_by_them_are_measured_to_the_end(home: Path) -> None:
    """The job ends by itself: its stdin stays open, or it would take that for a cancel."""
    measure_links(home, "builtin", "cpu")
    assert list((home / "profiles").glob("*.json"))


def test_links_when_they_cannot_be_measured_is_a_sentence(home: Path) -> None:
    """No such model."""
    with pytest.raises(BenchError, match="ended with code"):
        measure_links(home, "/nowhere", "cpu")


def test_table_when_read_then_every_benchmark_is_a_module_with_a_main() -> None:
    from importlib.util import find_spec

    assert [name for name, module in BENCHES.items() if find_spec(module) is None] == []
