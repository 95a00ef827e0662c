"""What a measurement means, as findings. Pure judgement; the words are the page's.

Source of link classes: usable rates of PCIe generations and widths as seen on the paper's machines
(arXiv 2608.16157, Table 1), rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.predict.hardware import link_limit_gbps
from app.predict.profiles import Conditions, Profile
from app.predict.runs import same_setup

Kind = Literal[
    "emulated", "link", "narrow", "channel", "battery", "busy", "hot", "slower",
    "share", "together", "apart", "small",
]  # fmt: skip
LINKS: tuple[tuple[str, float], ...] = (
    ("PCIe 3.0 x8", 6.5),
    ("PCIe 4.0 x8", 12.5),
    ("PCIe 4.0 x16", 25.5),
    ("PCIe 5.0 x16", 53.0),
)
_SMALL = 0.65  # of the best copy rate; below, the record size is what limits
_GAIN = 1.12  # joint over the better link alone; above, both together are worth it
_BUSY = 0.15  # of the GPU's time, before the run; a desktop alone takes less
_DROP = 0.10  # below the best earlier run; runs of one machine differ by less
_HOT_C = 83  # where cards of the last generations begin to slow down
_CHANNEL_BYTES = 8  # one channel moves so many bytes a transfer
_ENOUGH_THREADS = 4  # with fewer the CPU may be the limit, not its memory


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what kind, whether it asks for attention, and the figures of its sentence."""

    kind: Kind
    is_good: bool
    value: float = 0.0
    other: float = 0.0
    name: str = ""


def diagnose(
    profile: Profile, conditions: Conditions | None = None, earlier: Sequence[Profile] = ()
) -> tuple[Finding, ...]:
    """Return the findings of one measurement, the most telling first.

    Args:
        profile: the measurement.
        conditions: what was so during it; None = not noted.
        earlier: other measurements of this machine.
    """
    around = conditions or Conditions()
    narrow = _narrow(profile, around)
    found = [narrow or _link(profile)]  # a class of link says nothing of one with half its lanes
    judged = (
        _channel(profile, around),
        _battery(around),
        _busy(around),
        _drop(profile, around, earlier),
    )
    found += [finding for finding in judged if finding is not None]
    best = max((gbps for _, gbps in profile.curve("fill")), default=profile.fill_gbps)
    if best > 0 and profile.fill_gbps < _SMALL * best:
        share = profile.fill_gbps / best
        found.append(Finding("small", False, share, float(profile.record_bytes)))
    if profile.joint_gbps > 0:
        alone = max(profile.fill_gbps, profile.cpu_gbps)
        gain = profile.joint_gbps / alone
        kind: Kind = "together" if gain >= _GAIN else "apart"
        found.append(Finding(kind, gain >= _GAIN, gain, profile.joint_gbps))
    share = profile.fills_per_miss
    found.append(Finding("share", True, share, 1 - share))
    return tuple(found)


def _link(profile: Profile) -> Finding:
    """Name the link class that the best copies come closest to."""
    if profile.emulated:
        return Finding("emulated", True, profile.fill_gbps)
    best = max((gbps for _, gbps in profile.curve("fill")), default=profile.fill_gbps)
    name, top = min(LINKS, key=lambda link: abs(link[1] - best))
    return Finding("link", best >= 0.85 * top, best, top, name)


def _narrow(profile: Profile, around: Conditions) -> Finding | None:
    """Lanes that are there and not in use: what such a link gives, and what all lanes would."""
    width, best = around.link_width, around.best_width
    if profile.emulated or not 0 < width < best:
        return None
    now = link_limit_gbps(around.link_generation, width)
    return Finding("narrow", False, width, best, f"{now * best / width:.0f}" if now else "")


def _channel(profile: Profile, around: Conditions) -> Finding | None:
    """Memory that gives no more than one channel can: one module, or two in the wrong slots."""
    peak = around.memory_mts * _CHANNEL_BYTES / 1000
    read = max((gbps for _, gbps in profile.curve("cpu")), default=profile.cpu_gbps)
    read = max(read, profile.joint_cpu_gbps)
    if around.modules == 1:
        return Finding("channel", False, read, peak)
    is_slow = 0 < read <= peak and profile.threads >= _ENOUGH_THREADS
    return Finding("channel", False, read, peak) if is_slow else None


def _battery(around: Conditions) -> Finding | None:
    return Finding("battery", False) if around.on_battery else None


def _busy(around: Conditions) -> Finding | None:
    share = around.gpu_busy or 0.0
    return Finding("busy", False, share) if share >= _BUSY else None


def _drop(profile: Profile, around: Conditions, earlier: Sequence[Profile]) -> Finding | None:
    """Slower than the best earlier run; by heat, if the card was hot or said that it slows down."""
    best = max((p.fill_gbps for p in earlier if same_setup(p, profile)), default=0.0)
    drop = max(0.0, 1 - profile.fill_gbps / best) if best > 0 else 0.0
    degrees = around.temperature or 0
    if around.is_throttled or (degrees >= _HOT_C and drop >= _DROP):
        return Finding("hot", False, drop, degrees)
    return Finding("slower", False, drop, best) if drop >= _DROP else None
