"""Stored bandwidth measurements, read tolerantly: the engine writes them, the app only looks.

Pure: bytes in, facts out. Unknown fields are ignored, missing ones make the profile unusable.
"""

from dataclasses import dataclass

import msgspec

from app.predict.speed import fills_per_miss
from engine.protocol.messages import MissPolicy

_DAY_S = 24 * 3600.0
STALE_DAYS = 90


class _Key(msgspec.Struct):
    device: str = ""
    cpu: str = ""
    format: str = ""
    record_bytes: int = 0
    threads: int = 0


class _Point(msgspec.Struct):
    link: str = ""
    size_bytes: int = 0
    gbps: float = 0.0


class _File(msgspec.Struct):
    key: _Key
    fill: float
    cpu: float
    joint_fill: float = 0.0
    joint_cpu: float = 0.0
    measured_at_s: float = 0.0
    emulated: bool = False
    points: tuple[_Point, ...] = ()


class Conditions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was so during a measurement; 0 and None = not known.

    Attributes:
        link_generation, link_width, best_width: of the card's link, under load.
        modules, memory_mts: of the memory, megatransfers/s of the slowest module.
        on_battery: the battery fed the machine.
        gpu_busy: share of the GPU's time that others had before it.
        temperature: highest of the card, degrees Celsius.
        is_throttled: the driver said that heat slows the card down.
    """

    link_generation: int = 0
    link_width: int = 0
    best_width: int = 0
    modules: int = 0
    memory_mts: int = 0
    on_battery: bool | None = None
    gpu_busy: float | None = None
    temperature: int | None = None
    is_throttled: bool | None = None

    def and_then(self, later: "Conditions") -> "Conditions":
        """Return what holds over both: the widest link, the greatest heat, the first business."""
        return Conditions(
            link_generation=max(self.link_generation, later.link_generation),
            link_width=max(self.link_width, later.link_width),
            best_width=max(self.best_width, later.best_width),
            modules=later.modules or self.modules,
            memory_mts=later.memory_mts or self.memory_mts,
            on_battery=self.on_battery or later.on_battery,
            gpu_busy=self.gpu_busy,
            temperature=max(self.temperature or 0, later.temperature or 0) or None,
            is_throttled=self.is_throttled or later.is_throttled,
        )


def read_conditions(data: bytes) -> Conditions | None:
    """Return what was noted beside a measurement; None if that is not readable."""
    try:
        return msgspec.json.decode(data, type=Conditions)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """One measurement: rates in GB/s, sizes in bytes, `measured_at_s` in Unix seconds."""

    device: str
    cpu: str
    format: str
    record_bytes: int
    threads: int
    fill_gbps: float
    cpu_gbps: float
    joint_fill_gbps: float
    joint_cpu_gbps: float
    measured_at_s: float
    emulated: bool
    points: tuple[tuple[str, int, float], ...]

    @property
    def joint_gbps(self) -> float:
        """Both links at once; 0 = not measured."""
        return self.joint_fill_gbps + self.joint_cpu_gbps

    @property
    def fills_per_miss(self) -> float:
        """q*/m, by the joint rates where they were measured."""
        return fills_per_miss(
            self.fill_gbps, self.cpu_gbps, self.joint_fill_gbps, self.joint_cpu_gbps
        )

    def miss_rate(self, policy: MissPolicy) -> float:
        """Bytes/s at which misses are served under a policy; 0 = not measured."""
        if policy is MissPolicy.FILL_ONLY:
            return self.fill_gbps * 1e9
        if policy is MissPolicy.CPU_ONLY:
            return self.cpu_gbps * 1e9
        return (self.joint_gbps or max(self.fill_gbps, self.cpu_gbps)) * 1e9

    def curve(self, link: str) -> tuple[tuple[float, float], ...]:
        """The points (bytes, GB/s) of one link, by size."""
        found = {float(size): gbps for name, size, gbps in self.points if name == link}
        return tuple(sorted(found.items()))

    def age_days(self, now_s: float) -> int:
        """Whole days since it was measured; 0 for a clock that went back."""
        return max(0, int((now_s - self.measured_at_s) // _DAY_S))


def read_profile(data: bytes) -> Profile | None:
    """Return the measurement in a file's bytes; None if it is none, or holds no rates."""
    try:
        raw = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if raw.fill <= 0 or raw.cpu <= 0:
        return None
    return Profile(
        device=raw.key.device,
        cpu=raw.key.cpu,
        format=raw.key.format,
        record_bytes=raw.key.record_bytes,
        threads=raw.key.threads,
        fill_gbps=raw.fill / 1e9,
        cpu_gbps=raw.cpu / 1e9,
        joint_fill_gbps=raw.joint_fill / 1e9,
        joint_cpu_gbps=raw.joint_cpu / 1e9,
        measured_at_s=raw.measured_at_s,
        emulated=raw.emulated,
        points=tuple((p.link, p.size_bytes, p.gbps) for p in raw.points if p.size_bytes > 0),
    )


def best_profile(
    profiles: tuple[Profile, ...], expert_format: str, record_bytes: int
) -> Profile | None:
    """Return the measurement that suits a model: its format, then its record size, then newest."""
    if not profiles:
        return None
    return max(
        profiles,
        key=lambda p: (
            p.format == expert_format,
            p.record_bytes == record_bytes,
            p.measured_at_s,
        ),
    )
