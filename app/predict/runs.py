"""The history of measurements: each run beside the one before it of the same kind. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.predict.profiles import Profile


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run, and its rates over those of the run before it less 1; None = there is none."""

    profile: Profile
    fill_change: float | None = None
    cpu_change: float | None = None


def same_setup(one: Profile, other: Profile) -> bool:
    """Whether two runs measured the same: device, format and size of the experts."""
    return (one.device, one.format, one.record_bytes, one.emulated) == (
        other.device,
        other.format,
        other.record_bytes,
        other.emulated,
    )


def run_lines(history: Sequence[Profile]) -> tuple[RunLine, ...]:
    """Return the runs, newest first as they come, each with its changes."""
    lines = []
    for i, run in enumerate(history):
        before = next((old for old in history[i + 1 :] if same_setup(old, run)), None)
        if before is None:
            lines.append(RunLine(run))
        else:
            fill = run.fill_gbps / before.fill_gbps - 1
            lines.append(RunLine(run, fill, run.cpu_gbps / before.cpu_gbps - 1))
    return tuple(lines)
