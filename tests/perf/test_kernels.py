"""`dev.py bench kernels`: which parts run, and where their figures go."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.perf import kernels


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of every part that would have run; there is a card."""
    found: list[list[str]] = []

    def note(words: list[str], check: bool) -> SimpleNamespace:
        found.append(words[2:])
        return SimpleNamespace(returncode=3 if words[2] == "tests.perf.pool" else 0)

    monkeypatch.setattr("tests.perf.kernels.subprocess.run", note)
    monkeypatch.setattr(kernels, "cuda_obstacle", lambda: "")
    return found


def test_figures_when_they_are_kept_then_each_part_has_its_own_file(
    ran: list[list[str]], tmp_path: Path
) -> None:
    """Parts that keep none would end at a word that they do not know."""
    kernels.main(["--json", str(tmp_path / "all.json")])
    files = {words[0]: words[2:] for words in ran if "--json" in words}
    assert files == {
        "tests.perf.pool": [str(tmp_path / "all-pool.json")],
        "tests.perf.gpu_prefill": [str(tmp_path / "all-prefill.json")],
    }
    assert len(ran) == len(kernels.CPU_PARTS | kernels.GPU_PARTS)


def test_parts_when_named_then_only_these_run_with_the_words_given(ran: list[list[str]]) -> None:
    """And the first code that is not 0 is the answer."""
    assert kernels.main(["--only", "pool", "dense", "--threads", "4"]) == 3
    assert ran == [
        ["tests.perf.pool", "--threads", "4"],
        ["tests.perf.gpu_dense", "--threads", "4"],
    ]
