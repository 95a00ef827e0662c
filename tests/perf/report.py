"""Every table of a machine in one program: `dev.py bench report OUT`.

Makes the models it needs, runs sections by value, each engine once, and stops before `--budget-s`
is over. Rows are kept in OUT/SECTION.json as they come; a second call with the same OUT goes on
behind them, and `--merge` prints the tables of several calls together. `--plan` prints what each
process would cost with its sections.

On a machine without a card sizes are tiny: every section runs, no figure is worth keeping.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tests.perf.client import BenchError
from tests.perf.report_place import Place
from tests.perf.report_plan import (
    DISK,
    SECTIONS,
    TINY_SIZES,
    Costs,
    Session,
    Sizes,
    Task,
    groups,
    needs_links,
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
    """Return what each process should cost with its sections, and their sum, on a bare machine.

    A model is made before the first process that needs it. Sections that share one are best asked
    for in one call.
    """
    rows = [
        {"process": name, "start s": start_s, "rows s": sum(seconds.values())}
        | {"sections": ", ".join(f"{section} {value:.0f}" for section, value in seconds.items())}
        for name, start_s, seconds in _processes(tasks, costs)
    ]
    start_s, rows_s = (sum(row[name] for row in rows) for name in ("start s", "rows s"))
    rows.append({"process": "all", "start s": start_s, "rows s": rows_s})
    found = table(rows, ("process", "start s", "rows s", "sections"))
    return f"{found}\n{start_s + rows_s:.0f} s, {len(tasks)} tasks"


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


def _processes(
    tasks: Sequence[Task], costs: Costs
) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yield each process: its name, the seconds of its start, and those of its sections."""
    made: set[str] = set()
    has_links = False
    by_process = groupby(groups(tasks), lambda one: one[0] or one[1][0].section)
    for process, parts in by_process:
        group = [task for _, part in parts for task in part]
        seconds: Counter[str] = Counter()
        for task in group:
            seconds[task.section] += task.seconds
        is_engine = isinstance(process, Session)
        start_s = costs.load(process) if is_engine else 0.0
        model = process.model if is_engine else DISK if process == "load" else ""
        if model and model not in made:
            start_s += costs.make(model)
            made.add(model)
        if needs_links(group) and not has_links:
            start_s, has_links = start_s + costs.links(), True
        yield _words(process) if is_engine else "-", start_s, seconds


def _words(session: Session) -> str:
    threads = f" {session.threads} threads" if session.threads else ""
    chunks = f" chunks of {session.chunk}" if session.chunk else ""
    return f"{session.model}{threads}{chunks}{' turns' if session.reuse else ''}"


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
