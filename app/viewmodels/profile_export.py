"""A measurement as a file or as text for the clipboard. Pure; names no person and no path."""

import csv
import io
from typing import Literal

import msgspec

from app.predict import amounts
from app.predict.machines import REFERENCE_MACHINES
from app.predict.profiles import Conditions, Profile

Kind = Literal["json", "csv"]


def as_json(profile: Profile, conditions: Conditions | None) -> bytes:
    """Return everything that is known of a measurement; rates in GB/s, sizes in bytes."""
    raw: dict[str, object] = {
        "device": profile.device,
        "cpu": profile.cpu,
        "format": profile.format,
        "record_bytes": profile.record_bytes,
        "threads": profile.threads,
        "emulated": profile.emulated,
        "measured_at_s": profile.measured_at_s,
        "fill_gbps": profile.fill_gbps,
        "cpu_gbps": profile.cpu_gbps,
        "joint_fill_gbps": profile.joint_fill_gbps,
        "joint_cpu_gbps": profile.joint_cpu_gbps,
        "fills_per_miss": profile.fills_per_miss,
        "points": [
            {"link": link, "size_bytes": size, "gbps": gbps} for link, size, gbps in profile.points
        ],
    }
    if conditions is not None:
        raw["conditions"] = msgspec.to_builtins(conditions)
    return msgspec.json.format(msgspec.json.encode(raw), indent=2)


def as_csv(profile: Profile) -> bytes:
    """Return the points, one a line, with what they were measured on; for spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("link", "size_bytes", "gbps", "device", "cpu", "format", "threads"))
    for link, size, gbps in profile.points:
        facts = (profile.device, profile.cpu, profile.format, profile.threads)
        writer.writerow((link, size, f"{gbps:.4f}", *facts))
    return out.getvalue().encode()


def as_text(profile: Profile) -> str:
    """Return this machine and those of the paper as a table with tabs, for the clipboard."""
    rows = [("machine", "B_P GB/s", "B_H GB/s", "both GB/s", "format", "device", "cpu")]
    both = amounts.number(profile.joint_gbps) if profile.joint_gbps > 0 else ""
    rates = (amounts.number(profile.fill_gbps), amounts.number(profile.cpu_gbps))
    rows.append(("this PC", *rates, both, profile.format, profile.device, profile.cpu))
    for machine in REFERENCE_MACHINES:
        rates = (amounts.number(machine.fill_gbps), amounts.number(machine.cpu_gbps))
        rows.append((machine.name, *rates, "", "", machine.detail, ""))
    return "\n".join("\t".join(row) for row in rows)
