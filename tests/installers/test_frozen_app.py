"""What the app does differently when it is frozen; PyInstaller's marks are set by hand."""

import ctypes
import sys
from pathlib import Path

import pytest

from app.services.display import display_problem
from app.services.engine_program import ENGINE_NAME, find_program
from app.services.settings import Environment
from engine.protocol.places import data_root


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a frozen program."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "freetoken"))
    return tmp_path


def engine_in(folder: Path) -> Path:
    return folder / (ENGINE_NAME + (".exe" if sys.platform == "win32" else ""))


def test_engine_when_frozen_then_the_sibling_is_taken(frozen: Path) -> None:
    """Both programs lie in one folder."""
    engine_in(frozen).touch()
    program = find_program("", data_root(str(frozen / "home")))
    assert (program.path, program.origin) == (str(engine_in(frozen)), "bundled")
    assert "permission" in program.start_problem("permission denied")


def test_engine_when_frozen_and_gone_then_the_window_is_not_started_again(frozen: Path) -> None:
    """P-07: the sentence names the file and the likely culprit."""
    program = find_program("", data_root(str(frozen / "home")))
    assert program.path == str(engine_in(frozen))
    said = program.start_problem("execve failed")
    assert str(engine_in(frozen)) in said
    assert "Security software" in said


@pytest.mark.linux
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can lack an X library")
def test_x11_when_frozen_and_a_library_is_missing_then_that_one_is_named(
    frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-03: PyInstaller wraps the linker's words; the person needs the linker's."""

    def refuse(name: str) -> None:
        cause = OSError("libxcb-icccm.so.4: cannot open shared object file")
        raise OSError(f"Failed to load dynlib/dll {name!r}") from cause

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    root = data_root(str(frozen))
    said = display_problem(Environment(root, "", has_display=True, needs_x11=True))
    assert "the system library libxcb-icccm.so.4 is missing" in said
    nothing = display_problem(Environment(root, "", has_display=False, needs_x11=False))
    assert "python" not in nothing
