"""Measured rates of this machine, and the judgement whether they still hold.

Only holds and judges numbers; measuring is the profile job. No torch.
"""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.protocol.errors import FileAccess

PROFILE_VERSION = 1
STALE_AFTER_S = 90 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second, for one expert format, alone and with both links running together."""

    fill: float  # B_P: host memory to device slot
    cpu: float  # B_H: the CPU expert kernel
    joint_fill: float = 0.0  # 0 = not measured
    joint_cpu: float = 0.0


class ProfileKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement is true for; any difference makes it stale.

    Attributes:
        device: title of the device that the fills went to.
        driver: its driver, "" where there is none.
        cpu: title of the CPU.
        format: expert encoding, e.g. "fp8_block".
        record_bytes: size of one expert; rates of small copies depend on it.
        threads: CPU threads of the expert kernel.
        engine_version: kernels change with the engine.
    """

    device: str
    cpu: str
    format: str
    record_bytes: int
    threads: int
    engine_version: str
    driver: str = ""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point; `link` as in ProfilePoint."""

    link: str
    size_bytes: int
    gbps: float


class BandwidthProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's rates for one expert format; bytes/s, `measured_at_s` in Unix seconds."""

    key: ProfileKey
    fill: float
    cpu: float
    joint_fill: float = 0.0
    joint_cpu: float = 0.0
    measured_at_s: float = 0.0
    emulated: bool = False  # the device is host memory: the fill is a memory-to-memory copy
    points: tuple[CurvePoint, ...] = ()
    version: int = PROFILE_VERSION

    @property
    def rates(self) -> Rates:
        """What the miss policy needs."""
        return Rates(self.fill, self.cpu, self.joint_fill, self.joint_cpu)


def stale_reason(profile: BandwidthProfile, key: ProfileKey, now_s: float) -> str:
    """Return why a profile no longer holds, as a sentence; "" if it does."""
    old = profile.key
    words = {
        "device": "device",
        "cpu": "processor",
        "driver": "driver",
        "format": "expert format",
        "record_bytes": "expert size",
        "threads": "number of threads",
        "engine_version": "engine version",
    }
    for name, word in words.items():
        before, after = getattr(old, name), getattr(key, name)
        if before != after:
            return f"Measured with another {word}: {before} then, {after} now."
    if now_s - profile.measured_at_s > STALE_AFTER_S:
        days = int((now_s - profile.measured_at_s) // (24 * 3600))
        return f"Measured {days} days ago."
    if min(profile.fill, profile.cpu) <= 0:
        return "The measurement is incomplete."
    return ""


def profile_path(folder: Path, device: str, expert_format: str) -> Path:
    """Return where the profile of a device and format is kept."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{device} {expert_format}").strip("-").lower()
    return folder / f"{name}.json"


def write_profile(path: Path, profile: BandwidthProfile) -> None:
    """Store a profile whole or not at all. Raises: FileAccess naming the file."""
    temporary = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1))
        os.replace(temporary, path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FileAccess(f"The profile {path} cannot be written: {problem.strerror}.") from problem


def read_profile(path: Path) -> BandwidthProfile | None:
    """Return the stored profile; None if there is none or it is not readable (measure again)."""
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=BandwidthProfile)
    except (OSError, msgspec.MsgspecError):
        return None
    return profile if profile.version == PROFILE_VERSION else None
