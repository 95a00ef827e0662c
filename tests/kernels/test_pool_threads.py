"""The pool's threads under the compiler's thread sanitizer: no data race in random play."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SOURCES = ("pool", "call_plan", "look_ahead", "cpu_thread", "experts", "experts_scalar")
GAP = "-DFREETOKEN_CLAIM_GAP=std::this_thread::yield()"  # claims meet that were not to meet
FLAGS = (GAP, "-std=c++17", "-O1", "-g", "-ffp-contract=off", "-fsanitize=thread", "-pthread")
NO_RACE = "int main() { return 0; }\n"


def _sanitizing_compiler(folder: Path) -> str:
    """Return a compiler whose programs run under the sanitizer here, or skip with the reason."""
    compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs a C++ compiler on Linux")
    probe = folder / "probe.cpp"
    probe.write_text(NO_RACE)
    built = _run(compiler, *FLAGS, str(probe), "-o", str(folder / "probe"))
    if built.returncode:
        pytest.skip(f"{compiler} has no thread sanitizer: {built.stdout.splitlines()[-1]}")
    ran = _run(str(folder / "probe"))
    if ran.returncode:  # some kernels lay out memory in a way that older sanitizers do not know
        pytest.skip(f"the thread sanitizer does not run here: {ran.stdout.splitlines()[0]}")
    return compiler


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"},
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_threads_when_watched_by_the_sanitizer_have_no_race(tmp_path):
    """Two thousand random calls with a thief, bells, closes in mid-call and wrapping numbers."""
    compiler = _sanitizing_compiler(tmp_path)
    folder = REPOSITORY / "kernels" / "csrc"
    program = str(Path(__file__).with_name("pool_threads.cpp"))
    sources = [str(folder / f"{name}.cpp") for name in SOURCES]
    target = str(tmp_path / "pool_threads")
    built = _run(compiler, *FLAGS, f"-I{folder}", program, *sources, "-o", target)
    assert built.returncode == 0, built.stdout
    ran = _run(target)
    assert (ran.returncode, ran.stdout) == (0, "1920 calls\n"), ran.stdout
