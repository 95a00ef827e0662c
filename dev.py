#!/usr/bin/env python3
"""The one door for people who work on FreeToken Desktop: python3 dev.py VERB.

Standard library only; runs on Linux and Windows with the system's Python 3.11-3.13. Makes `.venv`
beside itself and does everything else inside it. The project itself is never installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
WINDOWS = sys.platform == "win32"
PYTHON = VENV / ("Scripts/python.exe" if WINDOWS else "bin/python")
TORCH = "torch==2.13.0"  # the development pin; the product takes what pyproject.toml allows
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH_CUDA = "cu130"  # its CUDA build, which lies beside; on Linux the plain version is the same
QT_LIBRARIES = (
    "libegl1 libgl1 libopengl0 libglib2.0-0 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 "
    "libxcb-image0 libxcb-keysyms1 libxcb-render-util0 libxcb-shape0 libxcb-xinerama0 "
    "libxcb-xkb1 libdbus-1-3 libfontconfig1"
)


def main() -> int:
    """Read the verb and do it. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.py", description="Work on FreeToken Desktop.", allow_abbrev=False
    )
    parser.set_defaults(cpu=False, cuda=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    made = [
        verbs.add_parser(
            name, help=(act.__doc__ or "").splitlines()[0], add_help=False, allow_abbrev=False
        )
        for name, act in VERBS.items()
    ]
    for one in (parser, *made):  # before the verb or behind it
        for build in ("cpu", "cuda"):
            one.add_argument(
                f"--{build}",
                action="store_true",
                default=argparse.SUPPRESS,
                help=f"take the {build.upper()} build of torch",
            )
    options, rest = parser.parse_known_args()
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return fail(f"Python 3.11, 3.12 or 3.13 is needed; this is {sys.version.split()[0]}.")
    os.chdir(ROOT)
    return VERBS[options.verb](options, rest)


def bootstrap(options: argparse.Namespace, rest: list[str]) -> int:
    """Make .venv and install what the product needs."""
    return install(options, "run")


def run(options: argparse.Namespace, rest: list[str]) -> int:
    """Start the app: --smoke DIR, --prompt TEXT, --terminal, --home DIR."""
    if code := install(options, "run"):
        return code
    terminal = any(word.partition("=")[0] in ("--terminal", "--prompt") for word in rest)
    if "--smoke" not in rest and not terminal and not has_display():
        print("No display found: chatting in the terminal with the same engine. Ctrl+D ends.")
        terminal = True
    if terminal:
        words = [word for word in rest if word != "--terminal"]
        return python("-m", "engine.cli", "chat", *words)
    if code := check_qt():
        return code
    return python("-m", "app", *rest)


def test(options: argparse.Namespace, rest: list[str]) -> int:
    """Run all tests (--quick: not the slow ones; --search: property tests with new inputs)."""
    if code := install(options, "dev"):
        return code
    if code := check_qt():
        return code
    marks = "not perf and not slow" if "--quick" in rest else "not perf"
    if "--search" in rest:
        marks = "hypothesis"
        os.environ["FT_SEARCH"] = "1"
    words = [word for word in rest if word not in ("--quick", "--search")]
    split = (
        []
        if words
        else [
            "-n",
            str(min(4, os.cpu_count() or 1)),
            "--dist",
            "loadfile",
            "--max-worker-restart",
            "0",
        ]
    )
    return python("-m", "pytest", "-m", marks, *split, *words)


def lint(options: argparse.Namespace, rest: list[str]) -> int:
    """Check style, format, types on both platforms, and import directions."""
    if code := install(options, "dev"):
        return code
    steps = (
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-m", "mypy", "--platform", "linux"),
        ("-m", "mypy", "--platform", "win32"),
        ("-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"),
    )
    return int(any([python(*step) for step in steps]))  # all of them, and no crash is overlooked


def fmt(options: argparse.Namespace, rest: list[str]) -> int:
    """Format the code and mend what can be mended by itself."""
    if code := install(options, "dev"):
        return code
    return python("-m", "ruff", "format", ".") or python("-m", "ruff", "check", "--fix", ".")


def bench(options: argparse.Namespace, rest: list[str]) -> int:
    """Measure speed: alone decode against transformers; or probe, decode, prefill, resize, ui .."""
    if code := install(options, "dev"):
        return code
    return python("-m", "tests.perf", *rest)


def package(options: argparse.Namespace, rest: list[str]) -> int:
    """Freeze the app, try the result, make this platform's packages in dist (--final: smallest)."""
    if code := install(options, "package"):
        return code
    freeze = ("-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", "build.spec")
    attempt = ("installers/common/smoke.py", "dist/freetoken", "--out", "dist/smoke")
    pack = ("-m", "installers.common.pack", "dist/freetoken", "dist", *rest)
    # Packages are compressed as a whole, which is smaller than module by module: 5 MB of a shell.
    os.environ.setdefault("PYINSTALLER_ZLIB_COMPRESSION_LEVEL", "0")
    for bundle in os.environ.get("FT_BUNDLE", "shell full").split():  # the last one stays in dist
        os.environ["FT_BUNDLE"] = bundle
        if code := python(*freeze) or python(*attempt) or python(*pack):
            return code
    return 0


def doctor(options: argparse.Namespace, rest: list[str]) -> int:
    """Say what this machine has and which kernels would be chosen."""
    print(f"Python      {sys.version.split()[0]} ({sys.executable})")
    print(f"Environment {VENV if PYTHON.exists() else 'none yet: python3 dev.py bootstrap'}")
    print(f"Driver      {'NVIDIA' if has_nvidia() else 'no NVIDIA driver found'}")
    print(f"Display     {'yes' if has_display() else 'no'}")
    print(f"Compiler    {shutil.which('c++') or shutil.which('cl') or 'none (not needed)'}")
    if not PYTHON.exists():
        return 0
    check_qt()
    return python("-m", "kernels")


VERBS = {
    "bootstrap": bootstrap,
    "run": run,
    "test": test,
    "lint": lint,
    "fmt": fmt,
    "bench": bench,
    "package": package,
    "doctor": doctor,
}


# --- installing -----------------------------------------------------------------------------


def install(options: argparse.Namespace, group: str) -> int:
    """Bring `.venv` and the C++ kernels up to what `group` needs; nothing if they are already."""
    import tomllib  # Python 3.10 has none: there, main() names the version that is needed

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(extras[group] if group != "run" else ())]
    if code := install_packages(options, group, wanted):
        return code
    build_native([name for name in extras["dev"] if name.startswith(("nanobind", "cmake"))])
    return 0


def install_packages(options: argparse.Namespace, group: str, wanted: list[str]) -> int:
    """Bring `.venv` up to `wanted`."""
    stamp = VENV / f"stamp-{group}"
    facts = "\n".join([*wanted, TORCH, sys.version, str(options.cpu), str(options.cuda)])
    state = hashlib.sha256(facts.encode()).hexdigest()
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == state:
        return 0
    if not PYTHON.exists() and (code := make_venv()):
        return code
    if code := install_torch(options):
        return code
    print(f"Installing {len(wanted)} packages into {VENV.name} ...", flush=True)
    others = [name for name in wanted if not name.startswith("torch")]
    if code := pip(*others):
        return fail("Installing failed; the lines above say why. Run the same command again.")
    stamp.write_text(state)
    return 0


def build_native(tools: list[str]) -> None:
    """Build the C++ kernels in place where there is a compiler; once for each state of sources."""
    compiler = shutil.which("c++") or shutil.which("cl") or ""
    sources = [ROOT / "CMakeLists.txt", *sorted((ROOT / "kernels" / "csrc").iterdir())]
    facts = [path.read_bytes() for path in sources]
    facts += [sys.version.encode(), compiler.encode(), str(ROOT).encode()]
    state = hashlib.sha256(b"\0".join(facts)).hexdigest()
    stamp = VENV / "stamp-native"
    if stamp.exists() and stamp.read_text() == state:
        return
    for stale in (ROOT / "kernels" / "cpu").glob("_native.*"):
        stale.unlink()  # built from other sources; better none than that one
    slower = "the reference kernels serve, which are slower."
    if not compiler:
        print(f"No C++ compiler: {slower}", flush=True)
    else:
        print("Building the C++ kernels, about a minute ...", flush=True)
        place = str(VENV / "build")
        configure = ("-m", "cmake", "-S", ".", "-B", place, f"-DPython_EXECUTABLE={PYTHON}")
        build = ("-m", "cmake", "--build", place, "--config", "Release", "--parallel")
        if pip(*tools) or python(*configure, "--log-level=WARNING") or python(*build):
            print(f"The C++ kernels could not be built: {slower}", flush=True)
    stamp.write_text(state)


def make_venv() -> int:
    """Create `.venv`, or say which system package is missing."""
    print(f"Making {VENV} ...", flush=True)
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False)
    if done.returncode == 0:
        return 0
    shutil.rmtree(VENV, ignore_errors=True)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    return fail(f"Python's venv module is incomplete. Install it: sudo apt-get install {name}")


def install_torch(options: argparse.Namespace) -> int:
    """Install the build of torch that fits this machine, saying its size beforehand."""
    wanted = "cuda" if options.cuda or (has_nvidia() and not options.cpu) else "cpu"
    found = torch_build()
    if found and (found == wanted or not (options.cpu or options.cuda)):
        return 0
    # pip takes both builds for the same version and would leave the other one in place
    if found and (code := python("-m", "pip", "uninstall", "--quiet", "--yes", "torch")):
        return code
    if wanted == "cuda":
        print("Taking torch with CUDA: about 3 GB to download, 6 GB on disk.", flush=True)
        return pip(TORCH)
    print("Taking torch for CPU: about 200 MB to download, 1 GB on disk.", flush=True)
    if pip(TORCH, "--index-url", TORCH_CPU_INDEX, "--retries", "0", "--timeout", "15") == 0:
        return 0
    print("PyTorch's CPU index cannot be reached; taking pip's default index.", flush=True)
    return pip(TORCH)


def torch_build() -> str:
    """Return which build of torch is in `.venv`: cpu, cuda, or "" if there is none."""
    code = "import torch; print('cuda' if torch.version.cuda else 'cpu')"
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def pip(*words: str) -> int:
    """Run pip inside `.venv`."""
    quiet = [] if sys.stdout.isatty() else ["--quiet", "--progress-bar", "off"]
    return python("-m", "pip", "install", "--disable-pip-version-check", *quiet, *words)


# --- asking the machine ---------------------------------------------------------------------


def check_qt() -> int:
    """Say which system libraries Qt misses, with the line that installs them."""
    probe = subprocess.run(
        [str(PYTHON), "-c", "import PySide6.QtWidgets"], capture_output=True, text=True, check=False
    )
    if probe.returncode == 0:
        return 0
    last = (probe.stderr.strip().splitlines() or ["unknown"])[-1]
    mend = "" if WINDOWS else f"\nInstall: sudo apt-get install {QT_LIBRARIES}"
    return fail(f"Qt cannot start: {last}{mend}")


def has_display() -> bool:
    """Is there a screen to open a window on."""
    return WINDOWS or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def has_nvidia() -> bool:
    """Is an NVIDIA driver installed."""
    if WINDOWS:
        return bool(shutil.which("nvidia-smi"))
    return Path("/proc/driver/nvidia/version").exists() or bool(shutil.which("nvidia-smi"))


def python(*words: str) -> int:
    """Run the environment's Python from the repository root."""
    return subprocess.run([str(PYTHON), *words], check=False, cwd=ROOT).returncode


def fail(sentence: str) -> int:
    """Print a sentence where errors go."""
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
