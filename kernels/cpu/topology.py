"""Which CPUs the expert pool takes: one thread a core, fast cores first, some left to the rest.

`choose` is arithmetic; `read_machine` asks Linux's /sys or Windows. Knows no thread.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FREE_CPUS = 2  # for Python, the driver's thread and the window
MIN_FAST_CORES = 4  # these read memory about as fast as it goes; slow ones would only be waited for
FAST_SHARE = 0.8  # of the fastest core's speed
_CORE = 0  # RelationProcessorCore
_GROUP_CPUS = 64


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU that this process may run on.

    Attributes:
        number: the system's; on Windows 64 * group + place in the group.
        core: the same for CPUs that share a physical core.
        speed: to compare within one machine; 0 if unknown.
    """

    number: int
    core: int
    speed: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """CPUs that may be used, and the quota: how many of them at a time (None = all)."""

    cpus: tuple[Cpu, ...]
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class CpuChoice:
    """One CPU for each thread of the pool, and whether threads should stay there."""

    cpus: tuple[int, ...]
    pin: bool


def default_cpus(num_threads: int | None = None) -> CpuChoice:
    """Choose for this machine; see `choose`."""
    return choose(read_machine(), num_threads)


def choose(machine: Machine, num_threads: int | None = None) -> CpuChoice:
    """Take CPUs in this order: fast cores, other cores, second CPUs of cores.

    Of equals the higher number goes first: systems handle most interrupts on low ones. Without
    `num_threads` it takes one CPU a core and at most so many that `FREE_CPUS` stay free (one, where
    there are only two or three), and does without slow cores if there are enough fast ones: the
    slowest thread's last unit is what a call waits for.

    Returns: 1 to len(machine.cpus) distinct CPUs; not pinned where a quota holds, because the
        system then stops threads at times and the others should be free to move.
    Raises: ValueError for a machine without CPUs or a number of threads below 1.
    """
    if not machine.cpus:
        raise ValueError("no CPU may be used")
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"{num_threads} threads")
    fastest = max(cpu.speed for cpu in machine.cpus)
    slow = {cpu.number for cpu in machine.cpus if cpu.speed < FAST_SHARE * fastest}
    falling = sorted(machine.cpus, key=lambda cpu: -cpu.number)
    first = {cpu.core: cpu.number for cpu in falling}  # the lowest of each core comes last, stays
    seconds = {cpu.number for cpu in falling if first[cpu.core] != cpu.number}
    order = sorted(falling, key=lambda cpu: (cpu.number in seconds, cpu.number in slow))
    limited = machine.quota is not None and machine.quota < len(order)
    count = num_threads or _default_count(machine, seconds, slow)
    return CpuChoice(tuple(cpu.number for cpu in order[:count]), pin=not limited)


def _default_count(machine: Machine, seconds: set[int], slow: set[int]) -> int:
    total = len(machine.cpus)
    if machine.quota is not None:
        total = max(1, min(total, int(machine.quota)))
    most = total - FREE_CPUS if total > FREE_CPUS + 1 else max(1, total - 1)
    numbers = {cpu.number for cpu in machine.cpus}
    cores = len(numbers - seconds)
    fast = len(numbers - seconds - slow)
    return min(fast if fast >= MIN_FAST_CORES else cores, most)


def read_machine() -> Machine:
    """Ask the system; where it tells nothing, every CPU counts as a core of its own."""
    if sys.platform == "win32":
        return Machine(_windows_cpus() or _plain_cpus(range(os.cpu_count() or 1)))
    if sys.platform == "linux":
        allowed = sorted(os.sched_getaffinity(0))
        quota = read_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
        return Machine(linux_cpus(Path("/sys/devices/system/cpu"), allowed), quota)
    return Machine(_plain_cpus(range(os.cpu_count() or 1)))


def _plain_cpus(numbers: Sequence[int]) -> tuple[Cpu, ...]:
    return tuple(Cpu(number, number) for number in numbers)


# --- Linux ----------------------------------------------------------------------------------------


def linux_cpus(folder: Path, allowed: Sequence[int]) -> tuple[Cpu, ...]:
    """Read /sys/devices/system/cpu. Speed is the scheduler's capacity, or the highest frequency."""
    cpus = []
    for number in allowed:
        place = folder / f"cpu{number}"
        siblings = _text(place / "topology" / "thread_siblings_list")
        lowest = siblings.replace("-", ",").split(",")[0]
        speed = _text(place / "cpu_capacity") or _text(place / "cpufreq" / "cpuinfo_max_freq")
        core = int(lowest) if lowest.isdigit() else number
        cpus.append(Cpu(number, core, int(speed) if speed.isdigit() else 0))
    return tuple(cpus)


def read_quota(membership: Path, root: Path) -> float | None:
    """Return the CPU time a second that the control groups (version 1 or 2) allow; None = any.

    Each group above may set a limit, too. A container may see the path of its group as it is
    outside: folders that do not exist are passed over.
    """
    limits = []
    for line in _text(membership).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = [root / controllers, root / "cpu"] if controllers else [root]
        steps = Path(path.lstrip("/"))
        groups = [mount / step for mount in mounts for step in (steps, *steps.parents)]
        limits += [limit for group in groups if (limit := _group_quota(group))]
    return min(limits, default=None)


def _group_quota(group: Path) -> float | None:
    words = _text(group / "cpu.max").split() or [
        _text(group / "cpu.cfs_quota_us"),
        _text(group / "cpu.cfs_period_us"),
    ]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # "max", "-1", or no such files
    return int(words[0]) / int(words[1]) or None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


# --- Windows --------------------------------------------------------------------------------------


def windows_cpus(facts: bytes, allowed: int = 0) -> tuple[Cpu, ...]:
    """Read what GetLogicalProcessorInformationEx tells about cores.

    `allowed` is the process's mask within group 0; 0 = everything, which is also what Windows tells
    about a process that runs in several groups.
    """
    cpus = []
    at = 0
    while at + 32 <= len(facts):
        relation, size, _, efficiency_class = struct.unpack_from("<IIBB", facts, at)
        (groups,) = struct.unpack_from("<H", facts, at + 30)
        numbers = []
        for group in range(groups if relation == _CORE else 0):
            mask, group_number = struct.unpack_from("<QH", facts, at + 32 + 16 * group)
            inside = [bit for bit in range(_GROUP_CPUS) if mask >> bit & 1]
            numbers += [_GROUP_CPUS * group_number + bit for bit in inside]
        cpus += [Cpu(number, numbers[0], efficiency_class + 1) for number in numbers]
        at += max(size, 1)
    if allowed:
        cpus = [c for c in cpus if c.number < _GROUP_CPUS and allowed >> c.number & 1]
    return tuple(sorted(cpus, key=lambda cpu: cpu.number))


if sys.platform == "win32":

    def _windows_cpus() -> tuple[Cpu, ...]:
        kernel = ctypes.windll.kernel32
        size = ctypes.c_uint32(0)
        kernel.GetLogicalProcessorInformationEx(_CORE, None, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        if not kernel.GetLogicalProcessorInformationEx(_CORE, buffer, ctypes.byref(size)):
            return ()
        mine, everyone = ctypes.c_size_t(0), ctypes.c_size_t(0)
        process = ctypes.c_void_p(-1)  # the pseudo handle of this process
        kernel.GetProcessAffinityMask(process, ctypes.byref(mine), ctypes.byref(everyone))
        return windows_cpus(buffer.raw[: size.value], mine.value)
