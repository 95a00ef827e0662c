"""Whatever the distance, each line of a weight is fetched ahead once: none is left out."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off")
LINES = {"bf16": 5 * 48 * 16, "fp8": 5 * 48 * 8}  # units, rows, lines of 64 bytes of a row


@pytest.mark.timeout(300)
def test_lines_when_units_follow_each_other_are_fetched_once(tmp_path):
    """For 8, 16 and 24 rows, over the ends of gate and up, of down, and of units."""
    compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if sys.platform == "win32" or compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = REPOSITORY / "kernels" / "csrc"
    program = Path(__file__).with_name("prefetch_lines.cpp")
    target = str(tmp_path / "prefetch_lines")
    sources = (str(program), str(folder / "experts.cpp"))
    built = _run(compiler, *FLAGS, f"-I{folder}", *sources, "-o", target)
    assert built.returncode == 0, built.stdout
    ran = _run(target)
    wanted = [
        f"{name} {groups}: {lines} / {lines} of {lines}"
        for groups in (1, 2, 3)
        for name, lines in LINES.items()
    ]
    assert (ran.returncode, ran.stdout.splitlines()) == (0, wanted)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
