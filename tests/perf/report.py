"""Every table of a machine in one program: `dev.py bench report OUT`.

Makes the models it needs, runs sections by value, each engine once, and stops before `--budget-s`
is over. Rows are kept in OUT/SECTION.json as they come; a second call with the same OUT goes on
behind them, and `--merge` prints the tables of several calls together. `--plan` prints what it
would cost.

On a machine without a card sizes are tiny: every section runs, no figure is worth keeping.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.perf.client import BenchError
from tests.perf.report_place import Place
from tests.perf.report_plan import (
    SECTIONS,
    TINY_SIZES,
    Costs,
    Session,
    Sizes,
    Task,
    groups,
    plan,
)
from tests.perf.report_run import LeftOut, Run
from tests.perf.report_store import Budget, Store
from tests.perf.report_tables import text, wrong
from tests.perf.serve import first_device, run
from tests.perf.tables import describe, machine, table

RESERVE_S = 12.0  # of the budget, for an engine's end and the tables
SHOWN_KEYS = 6


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a reply was wrong, a hash differed, or a row was refused."""
    options = _parser().parse_args(arguments)
    if options.merge:
        store = Store.merged(options.merge)
        print(text(store))
        return int(bool(wrong(store)))
    device = options.device or first_device()
    is_tiny = options.size == "tiny" or (not options.size and device == "cpu")
    sizes = TINY_SIZES if is_tiny else Sizes()
    costs = Costs(is_tiny)
    tasks = plan(options.sections, sizes, costs)
    if options.plan:
        print(planned(tasks, costs))
        return 0
    if options.out is None:
        raise BenchError("Where shall the figures go? Name a folder.")
    budget = Budget(max(0.0, options.budget_s - RESERVE_S))
    store = Store(options.out)
    call = Run(Place.of(options, device, sizes), store, budget, describe(machine()))
    call.tasks(tasks)
    print(f"\n{text(store)}\n\n{missing(call.left_out)}", flush=True)
    refused = [one for one in call.left_out if one.is_refused]
    return int(bool(refused or wrong(store)))


def planned(tasks: Sequence[Task], costs: Costs) -> str:
    """Return what sections and loads should cost, as a table."""
    counts = Counter(task.section for task in tasks)
    seconds = dict.fromkeys(counts, 0.0)
    for task in tasks:
        seconds[task.section] += task.seconds
    sessions = [session for session, _ in groups(tasks) if session is not None]
    rows: list[dict[str, Any]] = [
        {"section": name, "tasks": counts[name], "s": seconds[name]} for name in counts
    ]
    models = dict.fromkeys(session.model for session in sessions)
    making = sum(costs.make(model) for model in models)
    loading = sum(costs.load(session) for session in sessions)
    rows += [
        {"section": "models", "tasks": len(models), "s": making},
        {"section": "engines", "tasks": len(sessions), "s": loading},
    ]
    rows.append({"section": "all", "s": sum(row["s"] for row in rows)})
    return f"{table(rows, ('section', 'tasks', 's'))}\nEngines: {_engines(sessions)}"


def missing(left_out: Sequence[LeftOut]) -> str:
    """Return what was not measured, by section and reason."""
    if not left_out:
        return "Nothing was left out."
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        by_reason.setdefault((one.section, one.reason), []).append(one.key)
    lines = ["Left out:"]
    for (section, reason), keys in by_reason.items():
        more = f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
        lines.append(f"  {section} ({reason}): {', '.join(keys[:SHOWN_KEYS])}{more}")
    return "\n".join(lines)


def _engines(sessions: Sequence[Session]) -> str:
    return ", ".join(
        f"{one.model}{f' {one.threads} threads' if one.threads else ''}"
        f"{f' chunks of {one.chunk}' if one.chunk else ''}"
        for one in sessions
    )


def _names(words: str) -> list[str]:
    names = [word for word in words.split(",") if word]
    if unknown := [name for name in names if name not in SECTIONS]:
        raise argparse.ArgumentTypeError(f"no section {unknown[0]!r}; known: {', '.join(SECTIONS)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="folder of the figures")
    parser.add_argument("--sections", type=_names, default=list(SECTIONS), help="a,b,...")
    parser.add_argument("--budget-s", type=float, default=560.0, help="seconds of this call")
    parser.add_argument("--device", default="", help="the first GPU, else the CPU")
    parser.add_argument("--size", choices=["full", "tiny"], help="tiny on the CPU, else full")
    here = Path(tempfile.gettempdir())
    parser.add_argument("--models", type=Path, default=here / "report-models", help="in memory")
    parser.add_argument("--disk", type=Path, default=here / "report-disk", help="for `load`")
    parser.add_argument("--probe", type=Path, help="figures of the probe: read, or kept there")
    parser.add_argument("--plan", action="store_true", help="print what it would cost, run nothing")
    parser.add_argument("--merge", type=Path, nargs="+", help="print the tables of these folders")
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
