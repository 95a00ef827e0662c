"""Runs CUDA sources without a GPU: `cuda_emulator.h` and a C++ compiler instead of nvcc.

`EmulatedModule` stands where `kernels.cuda.driver.Module` stands on a GPU: the same `function` and
`launch`, over tensors in host memory. CTAs run in order; with `host_threads` > 1 that many at once,
for kernels whose CTAs race with each other or with the CPU pool. Needs g++ or clang++ on Linux.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

COMPILER = shutil.which("g++") or shutil.which("clang++")
SOURCES = REPOSITORY / "kernels" / "cuda" / "source"
HEADERS = REPOSITORY / "kernels" / "csrc"
EMULATOR = Path(__file__).with_name("cuda_emulator.h")
BUILD = REPOSITORY / "build" / "emulator"
FLAGS = [
    "-O1",
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-march=native",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-Werror",
]
ERROR_BYTES = 512
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(')

needs_emulator = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="needs a C++ compiler on Linux"
)


class EmulatedFunction:
    """One kernel; `launch` has run it when it returns."""

    def __init__(self, entry: "ctypes._NamedFuncPointer", name: str, host_threads: int) -> None:
        self.name = name
        self._entry = entry
        self._host_threads = host_threads

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[object],
        stream: int = 0,
        shared_bytes: int = 0,
        overlap: bool = False,
    ) -> None:
        """Run the grid. Raises RuntimeError for a deadlock or a wrong meeting of lanes."""
        addresses = (ctypes.c_void_p * len(args))(*(ctypes.addressof(value) for value in args))
        sizes = (ctypes.c_uint * 8)(*grid, block, 1, 1, shared_bytes, self._host_threads)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        if self._entry(addresses, sizes, error, ctypes.c_size_t(ERROR_BYTES)):
            raise RuntimeError(f"{self.name}: {error.value.decode()}")


class EmulatedModule:
    """A .cu source, compiled with `defines`; builds are kept under a key of everything read."""

    def __init__(
        self, source: str | Path, defines: Mapping[str, int], host_threads: int = 1
    ) -> None:
        path = SOURCES / source
        self._library = ctypes.CDLL(str(_build(path, defines)))
        self._host_threads = host_threads

    def function(self, name: str) -> EmulatedFunction:
        """Return a kernel by its name."""
        return EmulatedFunction(self._library[f"launch_{name}"], name, self._host_threads)


def kernel_names(source: str) -> list[str]:
    """Return what `extern "C" __global__ void` declares in a source and its own headers."""
    return KERNEL.findall(source)


def _build(path: Path, defines: Mapping[str, int]) -> Path:
    """Compile, unless the same text was compiled before. Returns the shared library."""
    texts = [path, EMULATOR, *sorted(path.parent.glob("*.cu*")), *sorted(HEADERS.glob("*.h"))]
    names = [name for text in (path, *_included(path)) for name in kernel_names(text.read_text())]
    wrapper = "".join(
        (
            f'#include "{EMULATOR}"\n#include "{path}"\n',
            *(f"EMULATE({name})\n" for name in dict.fromkeys(names)),
        )
    )
    flags = [*FLAGS, *(f"-D{key}={value}" for key, value in sorted(defines.items()))]
    key = hashlib.sha256()
    for part in (wrapper, *flags, *(text.read_text() for text in texts)):
        key.update(part.encode() + b"\0")
    target = BUILD / f"{path.stem}-{key.hexdigest()[:24]}.so"
    if not target.exists():
        _compile(wrapper, flags, path.parent, target)
    return target


def _included(path: Path) -> list[Path]:
    """Return the headers beside a source that it includes, directly or not."""
    found: list[Path] = []
    waiting = [path]
    while waiting:
        for name in re.findall(r'#include "([\w.]+)"', waiting.pop().read_text()):
            header = path.parent / name
            if header.exists() and header not in found:
                found.append(header)
                waiting.append(header)
    return found


def _compile(wrapper: str, flags: list[str], folder: Path, target: Path) -> None:
    """Compile to a name of its own, then rename: other processes build the same at times."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        source, result = Path(scratch, "wrapper.cpp"), Path(scratch, "module.so")
        source.write_text(wrapper)
        command = [str(COMPILER), *flags, f"-I{folder}", f"-I{HEADERS}"]
        done = subprocess.run(
            [*command, str(source), "-o", str(result)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:8000]}")
        os.replace(result, target)
