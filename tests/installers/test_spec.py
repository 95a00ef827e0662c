"""build.spec runs on both platforms: PyInstaller's names are stood in, the rest is real."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from installers.common import freeze
from tests.conftest import REPOSITORY


class Freezer:
    """Stands in for PyInstaller and keeps what the spec asked of it."""

    def __init__(self, work: Path, platform: str) -> None:
        self.platform = platform
        self.analyses: list[dict[str, Any]] = []
        self.programs: list[dict[str, Any]] = []
        self.collected: dict[str, Any] = {}
        self.files: set[str] = set()
        self.names = {
            "SPECPATH": str(REPOSITORY), "workpath": str(work), "Analysis": self.analysis,
            "PYZ": lambda pure: pure, "EXE": self.program, "COLLECT": self.collect,
        }  # fmt: skip

    def analysis(self, scripts: list[str], **facts: Any) -> types.SimpleNamespace:
        """Find one Qt library, one that is not wanted, and the data."""
        self.analyses.append({"script": scripts[0], **facts})
        binaries = [("PySide6/Qt6Core.dll", "/x", "BINARY"), ("Qt6Quick.dll", "/x", "BINARY")]
        datas = [(f"{folder}/{Path(src).name}", src, "DATA") for src, folder in facts["datas"]]
        return types.SimpleNamespace(pure=[], scripts=[], binaries=binaries, datas=datas)

    def program(self, *_: Any, **facts: Any) -> str:
        """Note one executable."""
        self.programs.append(facts)
        return str(facts["name"])

    def collect(self, *parts: Any, **facts: Any) -> None:
        """Note the bundle."""
        self.collected = facts
        self.files = {entry[0] for part in parts if isinstance(part, list) for entry in part}


def run_spec(folder: Path, platform: str, bundle: str, needs_native: bool = False) -> Freezer:
    """Run the spec as on a platform."""
    hooks = types.ModuleType("PyInstaller.utils.hooks")
    hooks.copy_metadata = lambda _: []
    made = Freezer(folder, platform)
    text = (REPOSITORY / "build.spec").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PyInstaller", "PyInstaller.utils"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setitem(sys.modules, hooks.__name__, hooks)
        patch.setattr(sys, "platform", platform)
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("FT_BUNDLE", bundle)
        if not needs_native:
            patch.setenv("FT_WITHOUT_NATIVE", "1")  # where nothing was compiled, too
        exec(compile(text, "build.spec", "exec"), made.names)
    return made


@pytest.fixture(scope="module", params=["linux", "win32"])
def freezer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Freezer:
    """The spec of a full build, on both platforms."""
    return run_spec(tmp_path_factory.mktemp(request.param), request.param, "full")


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_shell_when_run_then_no_libraries_but_all_of_python(tmp_path: Path, platform: str) -> None:
    """They come later, and may import what nobody saw when the shell was frozen."""
    made = run_spec(tmp_path, platform, "shell")
    engine = made.analyses[1]
    assert {"torch", "triton", "tokenizers", "numpy"} <= set(engine["excludes"])
    assert {"pickletools", "unittest.mock"} <= set(engine["hiddenimports"])
    assert "kernels/cuda/source/moe.cu" in made.files
    facts = json.loads((tmp_path / "build.json").read_text(encoding="utf-8"))
    assert facts["bundle"] == "shell"
    assert set(facts["indexes"]) == {"", "torch-cpu", "torch-cu130"}
    assert facts["indexes"]["torch-cu130"].endswith("/cu130")


@pytest.mark.parametrize("bundle", ["shell", "full", "engine"])
def test_spec_when_the_kernels_are_not_built_then_it_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: str
) -> None:
    """Not after minutes of freezing, and not without a word."""
    monkeypatch.setattr(freeze, "EXTENSION_SUFFIXES", [])
    monkeypatch.delenv("FT_WITHOUT_NATIVE", raising=False)
    with pytest.raises(freeze.MissingKernels):
        run_spec(tmp_path, "linux", bundle, needs_native=True)


def test_engine_alone_when_run_then_model_and_stamp_but_no_window(tmp_path: Path) -> None:
    """For a machine with a card and without Qt; libraries come from there, as into a shell."""
    made = run_spec(tmp_path, "linux", "engine")
    assert [one["script"] for one in made.analyses] == ["engine/__main__.py"]
    assert [one["name"] for one in made.programs] == ["freetoken-engine"]
    assert {"torch", "PySide6"} <= set(made.analyses[0]["excludes"])
    assert {
        "resources/build.json",
        "resources/models/tiny-moe-fp8/config.json",
        "kernels/cuda/source/moe.cu",
    } <= made.files


def test_spec_when_run_then_two_programs_over_one_folder(freezer: Freezer) -> None:
    """The window has no console (P-13), the engine has one for its pipes."""
    facts = [(p["name"], p["console"], p["upx"], p["exclude_binaries"]) for p in freezer.programs]
    assert facts == [("freetoken", False, False, True), ("freetoken-engine", True, False, True)]
    assert freezer.collected == {"name": "freetoken", "strip": False, "upx": False}


def test_spec_when_run_then_window_has_no_torch_and_engine_no_qt(freezer: Freezer) -> None:
    """Each program leaves out the other's libraries."""
    window, engine = freezer.analyses
    assert {"torch", "tokenizers", "kernels"} <= set(window["excludes"])
    assert {"PySide6", "pyqtgraph", "app"} <= set(engine["excludes"])
    assert "torch" not in engine["excludes"]
    assert engine["module_collection_mode"] == {"kernels": "pyz+py"}
    assert "engine.models.qwen3_moe" in engine["hiddenimports"]


def test_spec_when_run_then_trimmed_stamped_and_with_resources(freezer: Freezer) -> None:
    """What the two programs find beside them."""
    assert {
        "PySide6/Qt6Core.dll",
        "resources/build.json",
        "resources/licences/packages.json",
        "kernels/csrc/canonical.h",
        "resources/models/tiny-moe-fp8/config.json",
    } <= freezer.files
    assert "Qt6Quick.dll" not in freezer.files


def test_spec_when_run_for_windows_then_programs_say_what_they_are(freezer: Freezer) -> None:
    """P-07: version information and an icon, both there."""
    for program in freezer.programs:
        if freezer.platform == "win32":
            assert (REPOSITORY / program["icon"]).exists()
            assert "ProductVersion" in Path(program["version"]).read_text(encoding="utf-8")
        else:
            assert "icon" not in program
