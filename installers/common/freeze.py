"""What belongs into a frozen build, as plain functions over names; `build.spec` applies them.

Standard library only and no import of the product, so that tests and both platforms can ask without
PyInstaller. An entry of PyInstaller's tables is (name in the bundle, source file, kind).
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

Entry = tuple[str, str, str]

NAME = "FreeToken Desktop"
WINDOW, ENGINE = "freetoken", "freetoken-engine"
WITHOUT_NATIVE = "FT_WITHOUT_NATIVE"  # 1 = freeze although the C++ kernels are not built

# Where the engine's libraries live; the window never sees them, the shell bundle has none.
ENGINE_ONLY = ("torch", "triton", "tokenizers", "safetensors", "jinja2")
# In an environment for development, imported by something of somebody behind an `if`.
NEVER = (
    "tkinter", "IPython", "matplotlib", "pandas", "scipy", "PIL", "transformers",
    "huggingface_hub", "tensorboard", "pytest", "_pytest", "hypothesis", "mypy", "setuptools",
    "pkg_resources", "pip", "py", "backports", "importlib_metadata",
    "yaml", "PyInstaller", "nanobind", "cmake", "ninja", "pydantic", "rich",
    "PySide6.QtQml", "PySide6.QtQuick",
    "PySide6.QtTest", "PySide6.QtDBus", "readline",
)  # fmt: skip
# What the window's libraries bring and the window never imports; most of it is compiled code.
WINDOW_UNUSED = (
    "numpy.random", "numpy.f2py", "numpy.testing", "numpy.polynomial", "pyqtgraph.flowchart",
    "pyqtgraph.examples", "pyqtgraph.opengl", "pyqtgraph.canvas", "pyqtgraph.console",
    "pyqtgraph.jupyter",
)  # fmt: skip
# Parts of Python that want system libraries which nobody here needs.
FOREIGN = ("crypt", "_crypt", "curses", "_curses", "_curses_panel", "_dbm", "_gdbm")
LIBRARY_UNUSED = (
    "tkinter", "_tkinter", "turtle", "turtledemo", "idlelib", "lib2to3", "ensurepip", "test",
    "antigravity", "this", "readline", "pydoc_data", "venv", "msilib", "nis", "ossaudiodev",
    "spwd", *FOREIGN,
)  # fmt: skip
# Compiler and export: torch imports them when asked to compile a graph, which we never do.
TORCH_UNUSED = (
    "torch._inductor", "torch.onnx", "torch.utils.tensorboard", "torch.utils.benchmark",
    "torch.utils.bottleneck", "torch.distributed.elastic",
    "torch.distributed._shard", "torch.distributed.pipelining", "torch.distributed.benchmarks",
)  # fmt: skip

# Qt: what is kept of each kind of plugin; a kind that is missing here is left out as a whole.
PLUGINS = {
    "platforms": {"qxcb", "qwayland", "qwayland-generic", "qoffscreen", "qwindows"},
    "imageformats": {"qsvg", "qjpeg", "qwebp", "qico"},  # PNG is built in
    "iconengines": {"qsvgicon"},
    "platforminputcontexts": {
        "composeplatforminputcontextplugin", "ibusplatforminputcontextplugin",
    },
    "platformthemes": {"qxdgdesktopportal"},  # file dialogs of the desktop, without GTK inside
    "wayland-shell-integration": {"xdg-shell"},
    "wayland-decoration-client": {"adwaita", "bradient"},
    "styles": {"qmodernwindowsstyle", "qwindowsvistastyle"},
    # With "lib": Linux only. On Windows Qt would take the first OpenSSL on the PATH (case P-08),
    # and Schannel knows the certificates of the system.
    "tls": {"libqopensslbackend", "qschannelbackend", "qcertonlybackend"},
}  # fmt: skip
QT_UNUSED = (
    "Qt6Quick", "Qt6Qml", "Qt6Pdf", "Qt6VirtualKeyboard", "Qt6Test", "Qt6EglF",
    "opengl32sw", "d3dcompiler",
)  # fmt: skip
TRANSLATIONS = ("qtbase_zh_CN.qm",)

# Linux: of the build machine's own libraries only these come along. Anything else, above all what
# a graphics driver loads too (libstdc++, libz, libexpat, libwayland, libX11), is the user's (P-01)
# and declared by the packages. So the result does not depend on what lies on the build machine.
SYSTEM_KEPT = (
    "libpython3", "libssl", "libcrypto", "libffi", "libsqlite3", "libbz2", "liblzma", "libuuid",
)  # fmt: skip
SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
# Built with symbols that nobody reads. The others are stripped already, or damaged by it: numpy's
# BLAS does not load any more afterwards.
STRIPPED = (
    re.compile(r"(^|/)libpython3[^/]*$"),
    re.compile(r"(^|/)torch/lib/lib(torch|c10)[^/]*$"),
    re.compile(r"(^|/)(tokenizers|xxhash|lib-dynload|cryptography/hazmat/bindings)/[^/]*\.so$"),
)
TORCH_LEFT_OUT = re.compile(
    r"(^|/)torch/(test|include|share|_inductor|onnx)/"
    r"|(^|/)torch/bin/(?!torch_shm_manager)"  # asked for at import
    r"|(^|/)torch/lib/(lib(aoti_custom_ops|backend_with_compiler|jitbackend_test|torchbind_test))"
    r"|\.(a|lib|h|hpp|cuh|pyi|ptl|cmake)$"
)
# Of the packages' own data only the metadata are read; licences are gathered by notices.py.
TORCH_LINK = re.compile(r"torch[\\/]lib[\\/]|torch\.libs[\\/]")
UNREAD = re.compile(r"\.dist-info/(RECORD|licenses/)|^hypothesis-")


class MissingKernels(Exception):
    """The C++ kernels are not there, and nobody said that the build is to be without."""


def version(root: Path) -> str:
    """Return the product's version; pyproject.toml is where it is kept."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def modules_of(root: Path, *packages: str) -> list[str]:
    """Return every module below the packages, extension modules included.

    Registries name modules by text; a freezer cannot see them. So all of ours come along.
    """
    names = set()
    for package in packages:
        for path in (root / package).rglob("*"):
            if path.suffix not in (".py", ".so", ".pyd") or "__pycache__" in path.parts:
                continue
            parts = list(path.relative_to(root).with_suffix("").parts)
            parts[-1] = parts[-1].partition(".")[0]  # _native.cpython-311-x86_64-linux-gnu
            names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names - {f"{package}.__main__" for package in packages})


def require_native(root: Path) -> None:
    """Stop a build without C++ kernels: it would work, many times slower, and nobody would notice.

    Raises: MissingKernels.
    """
    place = root / "kernels" / "cpu"
    is_there = any((place / f"_native{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    if is_there or os.environ.get(WITHOUT_NATIVE) == "1":
        return
    raise MissingKernels(
        "kernels/cpu/_native is not there for this Python: no C++ compiler was found, or the "
        "compiler failed. Install one, remove .venv/stamp-native and run python3 dev.py package; "
        f"its first lines say what is wrong. {WITHOUT_NATIVE}=1 freezes without, for slow replies."
    )


def standard_library() -> list[str]:
    """Return the modules of Python itself that libraries may import, without tests and tools."""
    base = Path(os.__file__).parent
    names = set()
    for name in sys.stdlib_module_names - set(LIBRARY_UNUSED):
        if find_spec(name) is None:
            continue  # of another platform, or built without it
        names.add(name)
        for path in (base / name).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            if not {"test", "tests", "__pycache__", "idle_test"} & set(parts):
                names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(name for name in names if not name.endswith("__main__"))


def kernel_sources(root: Path) -> list[tuple[str, str]]:
    """Return (file, folder in the bundle) of what NVRTC compiles on the user's machine.

    The CUDA sources, and the headers that they share with the C++ kernels.
    """
    files = [*(root / "kernels" / "cuda" / "source").iterdir()]
    files += (root / "kernels" / "csrc").glob("*.h")
    return [
        (str(path), path.parent.relative_to(root).as_posix())
        for path in sorted(files)
        if path.suffix in (".cu", ".cuh", ".h")
    ]


def resource_files(root: Path, with_models: bool) -> list[tuple[str, str]]:
    """Return (file, folder in the bundle) of all resources that ship.

    Of models only checkpoints: the recipe that made the built-in one is for engineers. A shell has
    none: the model is more than half of its size, and could not run before the libraries are there.
    """
    found = []
    tree = os.walk(root / "resources", followlinks=True)  # a large model may be linked in
    for path in sorted(Path(folder) / name for folder, _, names in tree for name in names):
        place = path.relative_to(root)
        if path.suffix in (".py", ".pyc"):
            continue
        is_model = place.parts[1] == "models"
        if is_model and not with_models:
            continue
        if is_model and not (root.joinpath(*place.parts[:3]) / "config.json").exists():
            continue
        found.append((str(path), place.parent.as_posix()))
    found.append((str(root / "LICENSE"), "resources/licences"))
    found.append((str(root / "NOTICE"), "resources/licences"))
    return found


def is_wanted(entry: Entry) -> bool:
    """Whether a collected file ships: Qt plugin, translation or library, system library, torch."""
    name, source = entry[0].replace("\\", "/"), entry[1].replace("\\", "/")
    base = name.rpartition("/")[2]
    if name.startswith("kernels/"):
        return True  # headers of ours are compiled there
    if TORCH_LEFT_OUT.search(name) or UNREAD.search(name):
        return False
    if "PySide6" in name or base.removeprefix("lib").startswith("Qt6"):
        return _is_wanted_of_qt(name, base)
    if source.startswith(SYSTEM_FOLDERS) and "-packages/" not in source:
        return base.startswith(SYSTEM_KEPT) or "/lib-dynload/" in source
    return True


def _is_wanted_of_qt(name: str, base: str) -> bool:
    if "/translations/" in name:
        return base in TRANSLATIONS
    if "/plugins/" in name:
        kind, _, file = name.partition("/plugins/")[2].partition("/")
        stem = file.partition(".")[0]
        return not {stem, stem.removeprefix("lib")}.isdisjoint(PLUGINS.get(kind, ()))
    return not any(word in base for word in QT_UNUSED)


def without_orphans(entries: Iterable[Entry]) -> list[Entry]:
    """Drop links whose target was dropped, as PyInstaller lists both; and those into torch."""
    # torch finds its libraries beside itself. The loader looks at the top first, and would mix ours
    # into an installed runtime, which brings its own.
    kept = [e for e in entries if e[2] != "SYMLINK" or not TORCH_LINK.match(e[1])]
    names = {entry[0] for entry in kept}
    return [
        entry
        for entry in kept
        if entry[2] != "SYMLINK" or (Path(entry[0]).parent / entry[1]).as_posix() in names
    ]


def stripped(entries: Iterable[Entry], folder: Path) -> list[Entry]:
    """Return the entries with symbol tables removed where that is worth it and safe (Linux)."""
    made = []
    for name, source, kind in entries:
        if kind in ("BINARY", "EXTENSION") and any(rule.search(name) for rule in STRIPPED):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "-o", str(target), source], check=True)
            source = str(target)
        made.append((name, source, kind))
    return made


def stamp(root: Path, folder: Path, bundle: str, libraries: dict[str, str]) -> Path:
    """Write build.json: what this build is. No date, so that a build can be repeated."""
    facts = {
        "version": version(root),
        "commit": commit(root),
        "bundle": bundle,
        "python": ".".join(map(str, sys.version_info[:3])),
        "libraries": libraries,
        "indexes": indexes(root),
        "update_url": os.environ.get("FT_UPDATE_URL", ""),
        "update_key": os.environ.get("FT_UPDATE_KEY", ""),
    }
    path = folder / "build.json"
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return path


def indexes(root: Path) -> dict[str, str]:
    """Return the package indexes that the app asks unless a person names another one.

    The usual one is that of pip on the machine that freezes, `FT_INDEX` beats it. The builds of
    torch that are not there come from where dev.py takes them, one folder for each.
    """
    usual = os.environ.get("FT_INDEX", "")
    if not usual:
        words = [sys.executable, "-c", "from pip._internal.models.index import PyPI as p;"
                 "print(p.simple_url)"]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        usual = done.stdout.strip()
    text = (root / "dev.py").read_text(encoding="utf-8")
    special = dict(re.findall(r'^(TORCH_CPU_INDEX|TORCH_CUDA) = "([^"]+)"', text, re.MULTILINE))
    cpu, cuda = special.get("TORCH_CPU_INDEX", ""), special.get("TORCH_CUDA", "")
    found = {"": usual, "torch-cpu": cpu}
    if cpu and cuda:
        found[f"torch-{cuda}"] = f"{cpu.rpartition('/')[0]}/{cuda}"
    return found


def commit(root: Path) -> str:
    """Return the commit of the checkout, "" outside of one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_info(root: Path, program: str, title: str) -> str:
    """Return the VERSIONINFO of a Windows program, in the form that PyInstaller reads."""
    text = version(root)
    numbers = [int(part) for part in re.findall(r"\d+", text)[:4]]
    four = tuple(numbers + [0] * (4 - len(numbers)))
    strings = {
        "CompanyName": "The FreeToken Desktop authors",
        "FileDescription": title,
        "FileVersion": text,
        "InternalName": program,
        "LegalCopyright": "Apache License 2.0",
        "OriginalFilename": f"{program}.exe",
        "ProductName": NAME,
        "ProductVersion": text,
    }
    table = ",\n".join(f"      StringStruct({key!r}, {value!r})" for key, value in strings.items())
    return (
        "VSVersionInfo(\n"
        f"  ffi=FixedFileInfo(filevers={four}, prodvers={four}, mask=0x3F, flags=0x0, OS=0x40004,\n"
        "    fileType=0x1, subtype=0x0, date=(0, 0)),\n"
        f"  kids=[StringFileInfo([StringTable('040904B0', [\n{table}])]),\n"
        "    VarFileInfo([VarStruct('Translation', [1033, 1200])])])\n"
    )
