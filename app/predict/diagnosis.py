"""What a measurement means, as findings. Pure judgement; the words are the page's.

Source of link classes: usable rates of PCIe generations and widths as seen on the paper's machines
(arXiv 2608.16157, Table 1), rounded.
"""

from dataclasses import dataclass
from typing import Literal

from app.predict.profiles import Profile

Kind = Literal["emulated", "link", "share", "together", "apart", "small", "threads"]
LINKS: tuple[tuple[str, float], ...] = (
    ("PCIe 3.0 x8", 6.5),
    ("PCIe 4.0 x8", 12.5),
    ("PCIe 4.0 x16", 25.5),
    ("PCIe 5.0 x16", 53.0),
)
_SMALL = 0.65  # of the best copy rate; below, the record size is what limits
_GAIN = 1.12  # joint over the better link alone; above, both together are worth it


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what kind, whether it asks for attention, and the figures of its sentence."""

    kind: Kind
    is_good: bool
    value: float = 0.0
    other: float = 0.0
    name: str = ""


def diagnose(profile: Profile) -> tuple[Finding, ...]:
    """Return the findings of one measurement, the most telling first."""
    found = [_link(profile)]
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
