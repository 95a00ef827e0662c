"""Facts and calls of the operating system that devices need; with `numa` the only ones that ask it.

Linux and Windows; elsewhere it falls back to what the standard library knows.
"""

import ctypes
import mmap
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.platform == "win32":
    import winreg

PAGE_BYTES = mmap.PAGESIZE
CAN_MAP = sys.platform == "linux"
_MAP_NORESERVE = 0x4000  # Linux; Python 3.11 does not name it on every build


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of main memory: all, and what a program can still get without swapping."""

    total_bytes: int
    free_bytes: int


def reserve(num_bytes: int) -> mmap.mmap:
    """Reserve address space whose pages cost memory only once they are written (Linux)."""
    if sys.platform != "linux":
        raise NotImplementedError("only Linux maps regions")
    # Private, because pages of a shared mapping would survive MADV_DONTNEED.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    return mmap.mmap(-1, max(num_bytes, PAGE_BYTES), flags=flags)


def give_back(mapping: mmap.mmap, start_byte: int) -> None:
    """Return all whole pages from `start_byte` on to the system; they read as zero then."""
    start = -(-start_byte // PAGE_BYTES) * PAGE_BYTES
    if sys.platform == "linux" and start < len(mapping):
        mapping.madvise(mmap.MADV_DONTNEED, start, len(mapping) - start)


def prefer_huge_pages(address: int, num_bytes: int) -> None:
    """Ask for large pages under the whole pages of a range; a wish that the system may ignore."""
    if sys.platform != "linux":
        return
    start = -(-address // PAGE_BYTES) * PAGE_BYTES
    size = (address + num_bytes - start) // PAGE_BYTES * PAGE_BYTES
    if size > 0:
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)


def memory() -> HostMemory:
    """Return the machine's memory, within the limit of the container it runs in (Linux)."""
    if sys.platform == "win32":
        return _windows_memory()
    facts = _numbers(Path("/proc/meminfo"))
    total = facts.get("MemTotal", 0) * 1024
    total = total or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = HostMemory(total, facts.get("MemAvailable", total // 1024) * 1024)
    return within_container(machine, Path("/sys/fs/cgroup"))


def within_container(machine: HostMemory, group: Path) -> HostMemory:
    """Narrow a machine's memory to what a control group (version 2) may take of it.

    Files that the system keeps in memory count as used there, though they give way.
    """
    limit = _number(group / "memory.max")
    if not limit:
        return machine
    stat = _numbers(group / "memory.stat")
    kept = stat.get("inactive_file", 0) + stat.get("active_file", 0)
    free = max(0, limit - max(0, _number(group / "memory.current") - kept))
    return HostMemory(min(machine.total_bytes, limit), min(machine.free_bytes, free))


def cpu_title() -> str:
    """Return what the maker calls the processor, e.g. "AMD Ryzen 9 9950X3D"."""
    return " ".join(_cpu_words().split()) or platform.processor() or platform.machine()


def _numbers(file: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {f[0].rstrip(":"): int(f[1]) for f in fields if len(f) > 1 and f[1].isdigit()}


def _number(file: Path) -> int:
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


if sys.platform == "win32":

    class _MemoryStatus(ctypes.Structure):
        """MEMORYSTATUSEX."""

        _fields_ = [
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("available", ctypes.c_uint64),
            ("total_page", ctypes.c_uint64),
            ("available_page", ctypes.c_uint64),
            ("total_virtual", ctypes.c_uint64),
            ("available_virtual", ctypes.c_uint64),
            ("extended", ctypes.c_uint64),
        ]

    def _windows_memory() -> HostMemory:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return HostMemory(int(status.total), int(status.available))

    def _cpu_words() -> str:
        place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
                return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])
        except OSError:
            return ""

else:

    def _cpu_words() -> str:
        try:
            lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
