"""What ships: every module that a registry names, the resources, no foreign graphics libraries."""

import json
import re
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import distribution
from pathlib import Path

import pytest

from app.services.licences import read_licences, text_files
from engine.jobs.registry import JOBS
from engine.models.registry import FAMILIES
from engine.quant.registry import FORMATS
from engine.settings import ENGINE_VERSION
from engine.text.dialects.registry import DIALECTS
from installers.common import freeze, notices
from kernels.registry import LINES
from tests.conftest import REPOSITORY

KERNELS = {line.target for lines in LINES.values() for line in lines} | {
    line.requirement for lines in LINES.values() for line in lines if line.requirement
}
TARGETS = {*JOBS.values(), *FAMILIES.values(), *FORMATS.values(), *DIALECTS.values(), *KERNELS}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_registry_target_when_frozen_then_its_module_is_collected(target: str) -> None:
    """Registries name modules by text, which a freezer cannot see."""
    assert target.partition(":")[0] in freeze.modules_of(REPOSITORY, "engine", "kernels")


def test_modules_when_listed_then_also_those_imported_late() -> None:
    """Devices and views are imported inside functions; entry scripts are no modules of ours."""
    engine = freeze.modules_of(REPOSITORY, "engine", "kernels")
    assert {"kernels.device.cuda", "engine.cli.__main__", "engine.pipe.host"} <= set(engine)
    assert {"app.smoke", "app.views.chat"} <= set(freeze.modules_of(REPOSITORY, "app"))
    assert "engine.__main__" not in engine


def test_native_module_when_built_then_it_is_listed_by_its_name(tmp_path: Path) -> None:
    """The tag of Python version and platform is no part of a module's name."""
    folder = tmp_path / "kernels" / "cpu"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "_native.cpython-311-x86_64-linux-gnu.so", "_native.pyd"):
        (folder / name).touch()
    assert freeze.modules_of(tmp_path, "kernels") == ["kernels.cpu", "kernels.cpu._native"]


def test_native_module_when_it_is_not_built_then_freezing_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without it works and is slow, so nobody would notice. One must say so."""
    monkeypatch.delenv(freeze.WITHOUT_NATIVE, raising=False)
    folder = tmp_path / "kernels" / "cpu"
    folder.mkdir(parents=True)
    (folder / "_native.of-another-python").touch()
    with pytest.raises(
        freeze.MissingKernels, match=r"compiler.*dev\.py package.*FT_WITHOUT_NATIVE"
    ):
        freeze.require_native(tmp_path)
    monkeypatch.setenv(freeze.WITHOUT_NATIVE, "1")
    freeze.require_native(tmp_path)
    monkeypatch.delenv(freeze.WITHOUT_NATIVE)
    (folder / f"_native{EXTENSION_SUFFIXES[0]}").touch()
    freeze.require_native(tmp_path)


def test_kernels_when_listed_then_cuda_sources_and_the_headers_they_share() -> None:
    """NVRTC compiles them on the user's machine; every include must be there."""
    files = {
        f"{folder}/{Path(file).name}": file for file, folder in freeze.kernel_sources(REPOSITORY)
    }
    names = {Path(place).name for place in files}
    assert {"kernels/cuda/source/moe.cu", "kernels/csrc/canonical.h"} <= set(files)
    for place, file in files.items():
        if place.startswith("kernels/cuda"):
            text = Path(file).read_text(encoding="utf-8")
            assert set(re.findall(r'#include "(?:[^"]*/)?([^"/]+)"', text)) <= names, place


def test_standard_library_when_listed_then_what_libraries_import_late_is_there() -> None:
    """A shell is frozen without torch, so nothing shows what torch will ask Python for."""
    names = set(freeze.standard_library())
    assert {"pickletools", "cProfile", "unittest.mock", "xml.etree.ElementTree", "sqlite3"} <= names
    assert not [
        name
        for name in names
        if name.startswith(("tkinter", "test.", "idlelib", "curses", "_crypt"))
    ]


def test_links_into_torch_when_collected_then_left_out() -> None:
    """The loader would find them before those of an installed runtime."""
    library = ("torch/lib/libc10.so", "/x", "BINARY")
    link = ("libc10.so", "torch/lib/libc10.so", "SYMLINK")
    assert freeze.without_orphans([library, link]) == [library]


def test_resources_when_listed_then_model_fonts_and_licences_but_no_recipe() -> None:
    """The built-in model works offline; how it was made is for engineers."""
    places = {
        f"{folder}/{Path(file).name}"
        for file, folder in freeze.resource_files(REPOSITORY, with_models=True)
    }
    model = "resources/models/tiny-moe-fp8"
    assert {
        f"{model}/config.json",
        f"{model}/model-00001-of-00003.safetensors",
        "resources/fonts/Inter-Regular.otf",
        "resources/i18n/zh_CN.json",
        "resources/licences/LICENSE",
        "resources/licences/LGPL-3.0.txt",
    } <= places
    assert not [place for place in places if "recipe" in place or place.endswith(".py")]
    shell = {folder for _, folder in freeze.resource_files(REPOSITORY, with_models=False)}
    assert not [folder for folder in shell if folder.startswith("resources/models")]


QT = "PySide6/Qt/"
SYSTEM = "/usr/lib/x86_64-linux-gnu/"
WHEEL = "/x/lib/python3.11/site-packages/"


@pytest.mark.parametrize(
    ("name", "source", "ships"),
    [
        (f"{QT}plugins/platforms/libqxcb.so", WHEEL, True),
        (f"{QT}plugins/platforms/libqwayland.so", WHEEL, True),
        (f"{QT}plugins/platforms/libqeglfs.so", WHEEL, False),
        (f"{QT}plugins/imageformats/libqwebp.so", WHEEL, True),
        (f"{QT}plugins/imageformats/libqtiff.so", WHEEL, False),
        (f"{QT}plugins/platformthemes/libqgtk3.so", WHEEL, False),
        (f"{QT}plugins/networkinformation/libqglib.so", WHEEL, False),
        # Typing Chinese and Japanese, accents by dead keys, icons of the theme.
        (f"{QT}plugins/platforminputcontexts/libibusplatforminputcontextplugin.so", WHEEL, True),
        (f"{QT}plugins/platforminputcontexts/libcomposeplatforminputcontextplugin.so", WHEEL, True),
        (f"{QT}plugins/iconengines/libqsvgicon.so", WHEEL, True),
        # Without them no https address is reached: no updates, no remote engine.
        (f"{QT}plugins/tls/libqopensslbackend.so", WHEEL, True),
        (f"{QT}plugins/tls/libqcertonlybackend.so", WHEEL, True),
        ("PySide6\\plugins\\tls\\qschannelbackend.dll", WHEEL, True),
        ("PySide6\\plugins\\tls\\qopensslbackend.dll", WHEEL, False),  # P-08: takes what is on PATH
        ("PySide6\\plugins\\platforms\\qwindows.dll", WHEEL, True),
        ("PySide6\\opengl32sw.dll", WHEEL, False),
        ("PySide6\\Qt6Quick.dll", WHEEL, False),
        (f"{QT}lib/libQt6Qml.so.6", WHEEL, False),
        (f"{QT}lib/libQt6WaylandClient.so.6", WHEEL, True),
        (f"{QT}translations/qtbase_zh_CN.qm", WHEEL, True),
        (f"{QT}translations/qtbase_de.qm", WHEEL, False),
        # P-01: what a graphics driver loads too comes from the system, in the driver's version.
        *((f"lib{word}", f"{SYSTEM}lib{word}", False) for word in (
            "wayland-client.so.0", "GL.so.1", "EGL.so.1", "drm.so.2", "stdc++.so.6", "gcc_s.so.1",
            "z.so.1", "expat.so.1", "X11.so.6", "xcb-cursor.so.0", "fontconfig.so.1",
        )),
        ("libcrypto.so.3", f"{SYSTEM}libcrypto.so.3", True),
        ("libpython3.11.so.1.0", "/usr/lib/libpython3.11.so.1.0", True),
        ("numpy/x.so", "/usr/lib/python3/dist-packages/numpy/x.so", True),
        ("python3.12/lib-dynload/_ssl.so", "/usr/lib/python3.12/lib-dynload/_ssl.so", True),
        ("torch/lib/libtorch_cpu.so", WHEEL, True),
        ("torch/bin/torch_shm_manager", WHEEL, True),
        ("torch/bin/protoc", WHEEL, False),
        ("torch/test/some_test", WHEEL, False),
        ("torch/include/ATen/ATen.h", WHEEL, False),
        ("torch/lib/dnnl.lib", WHEEL, False),
        ("kernels/csrc/canonical.h", "/x/kernels/csrc/canonical.h", True),
        ("torch-2.13.0.dist-info/METADATA", WHEEL, True),
    ],
)  # fmt: skip
def test_collected_file_when_asked_then_it_ships_or_not(
    name: str, source: str, ships: bool
) -> None:
    """The trimming, by example."""
    assert freeze.is_wanted((name, source, "BINARY")) is ships


def test_link_when_its_target_was_dropped_then_it_goes_too() -> None:
    """A dangling link in the bundle makes packagers and scanners stumble."""
    kept = ("PySide6/Qt/lib/libQt6Core.so.6", "/x", "BINARY")
    link = ("libQt6Core.so.6", "PySide6/Qt/lib/libQt6Core.so.6", "SYMLINK")
    orphan = ("libQt6Qml.so.6", "PySide6/Qt/lib/libQt6Qml.so.6", "SYMLINK")
    assert freeze.without_orphans([kept, link, orphan]) == [kept, link]


def test_version_when_asked_of_engine_and_project_then_they_agree() -> None:
    """Window, engine and package show one number."""
    assert freeze.version(REPOSITORY) == ENGINE_VERSION


def test_windows_version_information_when_read_as_pyinstaller_does_then_it_is_whole() -> None:
    """P-07: a program that says nothing about itself looks like malware."""
    seen: dict[str, object] = {}

    def note(name: str, *values: object, **facts: object) -> object:
        seen[str(values[0]) if name == "StringStruct" else name] = values[1:] or facts
        return name

    words = ("VSVersionInfo", "FixedFileInfo", "StringFileInfo", "StringTable", "StringStruct",
             "VarFileInfo", "VarStruct")  # fmt: skip
    names = {word: (lambda *a, word=word, **k: note(word, *a, **k)) for word in words}
    exec("made = " + freeze.version_info(REPOSITORY, "freetoken", "FreeToken Desktop"), names)
    assert seen["ProductVersion"] == (ENGINE_VERSION,)
    assert seen["OriginalFilename"] == ("freetoken.exe",)
    assert len(seen["FixedFileInfo"]["filevers"]) == 4


def test_stamp_when_written_then_it_names_the_build_without_a_date(tmp_path: Path) -> None:
    """Two builds of one commit must be able to be equal."""
    first = freeze.stamp(REPOSITORY, tmp_path, "full", {"torch": "1"}).read_text()
    assert first == freeze.stamp(REPOSITORY, tmp_path, "full", {"torch": "1"}).read_text()
    assert f'"version": "{ENGINE_VERSION}"' in first


def test_notices_when_a_bundled_package_has_none_then_the_build_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is passed on without its licence."""
    site = Path(pytest.__file__).parents[1]
    entries = [("psutil", str(site / "psutil" / "__init__.py"), "PYMODULE")]
    (paper,), index = notices.write(entries, tmp_path)
    assert "BSD" in paper.read_text(encoding="utf-8")
    (part,) = json.loads(index.read_text(encoding="utf-8"))
    assert part["texts"] == ["packages/psutil.txt"]
    assert "BSD" in part["licence"]
    monkeypatch.setattr(notices, "text_files", lambda _: [])
    with pytest.raises(notices.MissingNotice, match="psutil"):
        notices.write(entries, tmp_path)


def test_notices_that_lie_elsewhere_when_named_then_they_exist() -> None:
    """Qt's wheels bring no text; ours stands in."""
    for place in notices.ELSEWHERE.values():
        assert (REPOSITORY / place).exists(), place
    readme = (REPOSITORY / "resources" / "licences" / "README.md").read_text(encoding="utf-8")
    for path in (REPOSITORY / "resources" / "licences").glob("*.*"):
        assert path.name in (*readme.split("`"), "README.md"), path.name


def test_libraries_when_compiled_into_the_kernels_then_their_notices_ship() -> None:
    """The freezer sees no package of theirs: they are inside our own module."""
    sources = [path for path in (REPOSITORY / "kernels" / "csrc").iterdir() if path.is_file()]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    packages = set(re.findall(r"#include <(\w+)/", text))
    cmake = (REPOSITORY / "CMakeLists.txt").read_text(encoding="utf-8")
    packages |= {name.lower() for name in re.findall(r"find_package\((\w+)", cmake)} - {"python"}
    assert packages
    shown = {entry.name: entry.read() for entry in read_licences()}
    for name in sorted(packages):
        package = distribution(name)
        texts = [path.read_text(encoding="utf-8") for path in text_files(package)]
        inside = Path(str(package.locate_file(name))) / "ext"
        for header in inside.rglob("*.h"):  # sources of others, each with its licence on top
            lines = header.read_text(encoding="utf-8").partition("*/")[0].splitlines()
            texts.append("\n".join(line.lstrip(" /*") for line in lines))
        assert len(texts) > 1
        held = " ".join(next(text for title, text in shown.items() if name in title).split())
        for text in texts:
            assert " ".join(text.split()) in held, name
