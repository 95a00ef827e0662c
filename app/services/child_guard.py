"""Ties child processes to the life of the app, where the system can: nothing survives a crash.

Windows: a job object that the system closes, with all in it, when the app's process is gone. Linux:
the engine asks the kernel itself (engine/system.py). Everywhere: the end of stdin.
"""

import ctypes
import sys

_KILL_ON_JOB_CLOSE = 0x2000
_EXTENDED_LIMIT_INFORMATION = 9
_SET_QUOTA_AND_TERMINATE = 0x0100 | 0x0001


class _BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = [
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    ]


class _ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = [
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    ]


class ChildGuard:
    """Holds what ties the children to this process; keep it as long as the app lives."""

    def __init__(self) -> None:
        self._job: int | None = None
        if sys.platform == "win32":
            kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            kernel.CreateJobObjectW.restype = ctypes.c_void_p
            kernel.OpenProcess.restype = ctypes.c_void_p
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            job = kernel.CreateJobObjectW(None, None)
            if job and kernel.SetInformationJobObject(
                ctypes.c_void_p(job),
                _EXTENDED_LIMIT_INFORMATION,
                ctypes.byref(limits),
                ctypes.sizeof(limits),
            ):
                self._job = job

    def hold(self, pid: int) -> bool:
        """Tie a running child to the app. False where that is not possible; nothing depends on it.

        Args:
            pid: process id of the child, 0 = none.
        """
        if sys.platform == "win32":
            if self._job is None or not pid:
                return False
            kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            kernel.OpenProcess.restype = ctypes.c_void_p
            process = kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid)
            if not process:
                return False
            held = kernel.AssignProcessToJobObject(
                ctypes.c_void_p(self._job), ctypes.c_void_p(process)
            )
            kernel.CloseHandle(ctypes.c_void_p(process))
            return bool(held)
        return False
