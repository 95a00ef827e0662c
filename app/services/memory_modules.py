"""How many memory modules this machine has and how fast they run, as its firmware says.

Linux: udev's copy of the firmware's table, which everybody may read. Windows: the table itself.
Both are read without special rights; a virtual machine often says nothing.
"""

import ctypes
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

UDEV_FILE = Path("/run/udev/data/+dmi:id")
_UDEV_LINE = re.compile(
    r"^E:MEMORY_DEVICE_(\d+)_(SIZE|SPEED_MTS|CONFIGURED_SPEED_MTS)=(\d+)$", re.M
)
_MEMORY_DEVICE, _END_OF_TABLE = 17, 127  # structure types of SMBIOS
_SIZE_AT, _SPEED_AT, _CONFIGURED_AT = 0x0C, 0x15, 0x20
_UNKNOWN = (0, 0xFFFF)


@dataclass(frozen=True, slots=True)
class MemoryModules:
    """What is plugged in; 0 = not known. `speed_mts` is of the slowest, in megatransfers/s."""

    count: int = 0
    speed_mts: int = 0


def read_modules() -> MemoryModules:
    """Return what this machine's firmware says."""
    if sys.platform == "win32":
        return from_smbios(_windows_table())
    try:
        return from_udev(UDEV_FILE.read_text("utf-8", "replace"))
    except OSError:
        return MemoryModules()


def from_udev(text: str) -> MemoryModules:
    """Return what a udev record of the firmware's table says."""
    found: dict[str, dict[str, int]] = {}
    for number, name, value in _UDEV_LINE.findall(text):
        found.setdefault(number, {})[name] = int(value)
    plugged = [slot for slot in found.values() if slot.get("SIZE", 0) > 0]
    speeds = (slot.get("CONFIGURED_SPEED_MTS") or slot.get("SPEED_MTS", 0) for slot in plugged)
    return MemoryModules(len(plugged), min((s for s in speeds if s), default=0))


def from_smbios(table: bytes) -> MemoryModules:
    """Return what a table of SMBIOS structures says; a cut table counts as far as it goes.

    Source: DMTF DSP0134, structure 17 (memory device).
    """
    count, speeds, at = 0, [], 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        if length < 4 or kind == _END_OF_TABLE:
            break
        body = table[at : at + length]
        if kind == _MEMORY_DEVICE and _word(body, _SIZE_AT) not in _UNKNOWN:
            count += 1
            configured, speed = _word(body, _CONFIGURED_AT), _word(body, _SPEED_AT)
            speeds += [s for s in (configured, speed) if s not in _UNKNOWN][:1]
        end = table.find(b"\0\0", at + length)  # the strings behind the structure end with it
        if end < 0:
            break
        at = end + 2
    return MemoryModules(count, min(speeds, default=0))


def _word(body: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", body, at)[0]) if at + 2 <= len(body) else 0


def _windows_table() -> bytes:
    """Return the structures without the head that GetSystemFirmwareTable puts before them."""
    if sys.platform != "win32":
        return b""
    provider = int.from_bytes(b"RSMB", "big")
    ask = ctypes.windll.kernel32.GetSystemFirmwareTable
    size = ask(provider, 0, None, 0)
    buffer = ctypes.create_string_buffer(size)
    got = ask(provider, 0, buffer, size)
    return buffer.raw[8:got] if 8 < got <= size else b""
