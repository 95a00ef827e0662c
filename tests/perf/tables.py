"""What every benchmark prints and keeps: the machine, a table, and the same as JSON."""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.system import cpu_title, host_memory, usable_cores
from kernels.device.registry import list_devices

Row = Mapping[str, Any]


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    return {
        "cpu": cpu_title(),
        "cores": usable_cores(),
        "memory_gb": round(host_memory()[0] / 1e9, 1),
        "devices": [device.title for device in list_devices(("cuda",)) if not device.problem],
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def describe(facts: Mapping[str, Any]) -> str:
    """Return the machine in one line."""
    devices = ", ".join(facts["devices"]) or "no GPU"
    return (
        f"{devices}; {facts['cores']} cores of {facts['cpu']}, {facts['memory_gb']} GB; "
        f"torch {facts['torch']}, Python {facts['python']}"
    )


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return the rows under their columns; None and missing values are a dash."""
    lines = [list(columns), *([cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def report(
    title: str, rows: Sequence[Row], columns: Sequence[str], file: Path | None, **more: Any
) -> None:
    """Print a table under its machine; keep rows, machine and `more` as JSON if asked."""
    facts = machine()
    print(f"{title}\n{describe(facts)}\n{table(rows, columns)}", flush=True)
    if file is not None:
        kept = {"title": title, "machine": facts, **more, "rows": list(rows)}
        file.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def median(values: Sequence[float]) -> float:
    """Return the median, 0 of nothing."""
    return statistics.median(values) if values else 0.0


def cell(value: Any) -> str:
    """Return a figure as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        size = abs(value)
        return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 20 else f"{value:.3g}"
    return str(value)
