"""The engine's calls to the operating system; everything here has a branch per platform.

Knows no messages and no models. Called by `engine.__main__`, `engine.pipe`, `engine.loader`.
"""

import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

import psutil

from kernels.device import host

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies (Linux).

    On Windows the app's job object does this. A second net only: a parent that is gone also shows
    as a broken stdout.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def number_cards_by_bus() -> None:
    """Let CUDA number cards as the driver's own library does, before CUDA starts (case M-20).

    Its default puts the fastest first, so "cuda:0" would be another card than the one listed so.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def settle_compilers(folder: Path) -> None:
    """Tell libraries, before they are imported, where to keep what they compile: below a folder.

    Their default lies in HOME. Torch shall compile nothing by itself: the few operations that it
    writes in Triton, such as a product over one column, would ask for a C compiler.
    """
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    os.environ.setdefault("CUDA_CACHE_PATH", str(folder / "driver"))
    os.environ.setdefault("TORCH_DISABLE_NATIVE_JIT", "1")


def make_binary(fd: int) -> None:
    """Switch off newline translation on a descriptor (Windows)."""
    if sys.platform == "win32":
        import msvcrt  # exists on Windows only

        msvcrt.setmode(fd, os.O_BINARY)


def trim_heap() -> None:
    """Collect garbage and give freed pages back to the system where the C library keeps them."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def host_memory() -> tuple[int, int]:
    """Return (total, available) bytes of host memory, within the limit of a container."""
    reading = host.memory()
    return reading.total_bytes, reading.free_bytes


def usable_cores() -> int:
    """Return the physical cores that this process may run on (affinity respected, case E-08)."""
    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    if sys.platform in ("linux", "win32"):
        allowed = len(psutil.Process().cpu_affinity())
        return max(1, min(physical, allowed))
    return max(1, physical)


def cpu_title() -> str:
    """Return what the maker calls the processor."""
    return host.cpu_title()


def hard_exit(code: int) -> NoReturn:
    """End the process now: no destructors, no waiting for threads."""
    os._exit(code)
