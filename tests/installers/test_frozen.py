"""A frozen build in trouble, tried for real: needs `dist/freetoken` (`python3 dev.py package`)."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

BUILD = REPOSITORY / "dist" / "freetoken"
HELLO = '{"type":"hello","protocol_version":1,"client":"test"}\n'
LOAD = '{"type":"load","id":"l","model":"builtin","devices":["cpu"]}\n'
ASK = (
    '{"type":"generate","id":"g","messages":[{"role":"user",'
    '"parts":[{"text":"What is FreeToken Desktop?"}]}],'
    '"sampling":{"temperature":0,"max_tokens":24}}\n'
)

pytestmark = [
    pytest.mark.linux,
    pytest.mark.slow,
    pytest.mark.skipif(not BUILD.exists(), reason="no frozen build: python3 dev.py package"),
]


def run(
    program: Path, *words: str, text: str = "", **variables: str
) -> subprocess.CompletedProcess:
    """Run a frozen program with an empty environment."""
    return subprocess.run(
        [str(program), *words], input=text, capture_output=True, encoding="utf-8",
        timeout=90, check=False, env={"PATH": "", **variables},
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A build to damage; files are shared with the real one until they are replaced."""
    place = tmp_path / "freetoken"
    shutil.copytree(BUILD, place, symlinks=True, copy_function=os.link)
    yield place
    shutil.rmtree(place)


def test_build_when_listed_then_no_library_of_a_graphics_driver_is_inside() -> None:
    """P-01: they come from the system, in the version that its driver was built for."""
    names = {path.name for path in BUILD.rglob("*.so*")}
    heads = (
        "libGL.",
        "libEGL.",
        "libdrm",
        "libgbm",
        "libwayland-",
        "libstdc++",
        "libX11",
        "libxcb",
    )
    assert [name for name in names if name.startswith(heads)] == []


def test_build_when_listed_then_kernels_lie_there_as_source_too() -> None:
    """Triton compiles from the text of a kernel."""
    assert (BUILD / "_internal" / "kernels" / "registry.py").exists()
    assert not list(BUILD.rglob("*.a"))


def test_build_when_listed_then_the_compiled_kernels_are_inside() -> None:
    """Without them replies on the CPU are many times slower, and nothing else tells."""
    assert list((BUILD / "_internal" / "kernels" / "cpu").glob("_native.*.so"))


def test_engine_when_a_library_is_gone_then_it_says_which(copy: Path, tmp_path: Path) -> None:
    """P-05: not a silent end; the app shows this sentence."""
    (copy / "_internal" / "torch" / "lib" / "libtorch_cpu.so").unlink()
    words = ("--home", str(tmp_path / "home"))
    done = run(copy / "freetoken-engine", *words, text=HELLO + LOAD)
    assert done.returncode == 0
    assert "libtorch_cpu.so" in next(line for line in done.stdout.splitlines() if '"error"' in line)
    assert "Traceback" in done.stderr


def test_window_when_the_engine_is_gone_then_it_says_so(copy: Path, tmp_path: Path) -> None:
    """P-07: security software took it; the window starts, does not start itself, and explains."""
    (copy / "freetoken-engine").unlink()
    home = tmp_path / "home"
    words = ["--home", str(home)]
    variables = {"QT_QPA_PLATFORM": "offscreen"}
    process = subprocess.Popen(
        [str(copy / "freetoken"), *words], env={"PATH": "", **variables}, stderr=subprocess.DEVNULL
    )
    log = home / "logs" / "app.log"
    try:
        text = wait_for(log, "Security software")
        assert "freetoken-engine" in text
    finally:
        process.kill()
        process.wait()


def wait_for(log: Path, word: str) -> str:
    """Follow a log until a word comes; the program is another process, so there is no event."""
    text, tick = "", threading.Event()
    for _ in range(300):
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if word in text:
            return text
        tick.wait(0.1)
    raise AssertionError(f"{word} did not come: {text}")


def test_engine_when_temporary_folder_is_unusable_then_nothing_piles_up(tmp_path: Path) -> None:
    """P-14: nothing is unpacked, so a full folder for temporary files is no matter."""
    temp = tmp_path / "no such folder"
    for _ in range(3):
        words = ("--home", str(tmp_path / "home"))
        done = run(BUILD / "freetoken-engine", *words, text=HELLO, TMPDIR=str(temp))
        assert done.returncode == 0, done.stderr
    assert not temp.exists()
    assert not list(Path("/tmp").glob("_MEI*"))


def test_engine_when_old_tools_lie_first_on_the_path_then_they_are_not_called(
    tmp_path: Path,
) -> None:
    """P-08: fake compilers and driver tools leave no trace while a model loads and answers."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("nvidia-smi", "gcc", "cc", "c++", "ldconfig", "python3", "objdump", "ptxas"):
        tool = tools / name
        tool.write_text(f"#!/bin/sh\n: > '{tmp_path}/called'\nexit 1\n")
        tool.chmod(0o755)
    words = ("--home", str(tmp_path / "home"))
    done = run(BUILD / "freetoken-engine", *words, text=HELLO + LOAD + ASK, PATH=str(tools))
    assert done.returncode == 0, done.stderr
    assert '"delta"' in done.stdout
    assert not (tmp_path / "called").exists()
