"""Runs the tasks of a report, as many as fit into the time.

A row is printed and kept as soon as it is there. What does not fit, what the engine refuses and
what the clock cuts off is left out, by name and with the reason.
"""

import queue
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from subprocess import SubprocessError
from typing import Any, NamedTuple

from tests.perf.client import BenchError
from tests.perf.report_place import Place
from tests.perf.report_plan import BF16, DISK, NEEDS_PROBE, Session, Task, groups
from tests.perf.report_rows import Kept, other_rows, served_rows
from tests.perf.report_store import Budget, Row, Store
from tests.perf.serve import Served
from tests.perf.tables import cell

NO_TIME = "no time"
FAILURES = (
    BenchError, OSError, ValueError, ArithmeticError, LookupError, SubprocessError, queue.Empty,
)  # fmt: skip
"""Of one row or one load; the others go on."""
SHOWN = (
    "tok/s", "ttft s", "hit", "q", "link GB/s", "cpu GB/s", "pause ms", "load s", "plain GB/s",
    "engine GB/s", "pool_gbps", "fraction", "main_gbps", "right",
)  # fmt: skip


class OutOfTime(BaseException):
    """The clock ended the run. No error of a row, so that nothing on the way keeps it."""


class LeftOut(NamedTuple):
    """A task that was not measured, and why."""

    section: str
    key: str
    reason: str

    @property
    def is_refused(self) -> bool:
        """Whether it was not the clock."""
        return self.reason != NO_TIME


class Run:
    """One call.

    Attributes:
        left_out: what was not measured so far.
    """

    def __init__(self, place: Place, store: Store, budget: Budget, machine: str) -> None:
        self._place, self._store, self._budget = place, store, budget
        self._machine = machine
        self._open: list[Task] = []
        self.left_out: list[LeftOut] = []

    def tasks(self, tasks: Sequence[Task]) -> None:
        """Measure what is not kept already."""
        tasks = [task for task in tasks if not self._store.is_whole(task.section, task.key)]
        if self._place.figures.is_file():  # of an earlier call: read only
            tasks = [replace(one, seconds=0.0) if one.section == "probe" else one for one in tasks]
        self._open = list(tasks)
        todo = list(groups(tasks))
        try:
            with _alarm(self._budget.left_s):
                for place, (session, group) in enumerate(todo):
                    if session is None:
                        self._alone(group[0])
                    else:
                        self._served(session, group)
                    self._tidy({one.model for one, _ in todo[place + 1 :] if one}, group)
        except OutOfTime:
            for task in list(self._open):
                self._skip(task, NO_TIME)

    def _alone(self, task: Task) -> None:
        costs = {task.section: task.seconds}
        if task.section == "load" and not self._place.has(DISK):
            costs["make"] = self._place.costs.make(DISK)
        if not self._budget.fits(costs):
            self._skip(task, NO_TIME)
            return

        def put(rows: list[Row]) -> None:
            self._store.put(task.section, task.key, self._marked(rows), is_whole=False)
            self._show(task, rows[-1])

        with self._timed(task):
            kept = Kept(self._store.task_rows(task.section, task.key), put)
            rows = other_rows(self._place, task, kept)
            self._keep(task, rows, is_shown=task.section != "same")

    def _served(self, session: Session, group: list[Task]) -> None:
        """Measure tasks on one engine, if it has time for any of them."""
        place = self._place
        start: dict[str, float] = {"load": place.costs.load(session)}
        if not place.has(session.model):
            start["make"] = place.costs.make(session.model)
        if place.lacks_links(group):
            start["links"] = place.costs.links()
        fitting = [one for one in group if self._budget.fits(start | {one.section: one.seconds})]
        if not fitting:
            for task in group:
                self._skip(task, NO_TIME)
            return
        began_s = time.monotonic()
        try:
            self._check_probe(group)
            with place.opened(session, group) as bench:
                took_s = time.monotonic() - began_s
                self._budget.spent("load", sum(start.values()), took_s)
                print(
                    f"-- {session.model}, {_words(session)}: loaded in {took_s:.1f} s", flush=True
                )
                for task in group:
                    self._on(bench, task)
        except FAILURES as problem:  # of the load; those of rows are caught there
            for task in group:
                if task in self._open:
                    self._skip(task, _sentence(problem))

    def _on(self, bench: Served, task: Task) -> None:
        if not self._budget.fits({task.section: task.seconds}):
            self._skip(task, NO_TIME)
            return
        with self._timed(task):
            if not bench.client.is_alive:
                raise BenchError("The engine has ended.")
            bench.set_room(self._place.tokens(task))
            self._keep(task, served_rows(self._place, bench, task))

    def _check_probe(self, group: Sequence[Task]) -> None:
        if not self._place.figures.is_file():
            needs = sorted({task.section for task in group} & NEEDS_PROBE)
            if needs:
                raise BenchError("The probe has no figures to hold these against.")

    @contextmanager
    def _timed(self, task: Task) -> Iterator[None]:
        """Let the budget learn from a task; what the engine refuses leaves it out."""
        began_s = time.monotonic()
        try:
            yield
        except FAILURES as problem:
            self._skip(task, _sentence(problem))
        else:
            self._open.remove(task)
        self._budget.spent(task.section, task.seconds, time.monotonic() - began_s)

    def _keep(self, task: Task, rows: list[Row], is_shown: bool = True) -> None:
        self._store.put(task.section, task.key, self._marked(rows))
        if is_shown:
            self._show(task, rows[-1])

    def _marked(self, rows: Sequence[Row]) -> list[Row]:
        return [{**row, "machine": self._machine} for row in rows]

    def _show(self, task: Task, row: Row) -> None:
        shown = "  ".join(
            f"{name} {cell(row[name])}" for name in SHOWN if row.get(name) is not None
        )
        print(f"{task.section} {task.key}: {shown}", flush=True)

    def _skip(self, task: Task, reason: str) -> None:
        self._open.remove(task)
        self.left_out.append(LeftOut(task.section, task.key, reason))
        if reason != NO_TIME:
            print(f"{task.section} {task.key}: {reason}", flush=True)

    def _tidy(self, later: set[str], group: Sequence[Task]) -> None:
        """Remove a model that nothing needs any more; the next call will want the first one."""
        session = group[0].session
        if session is not None and session.model != BF16 and session.model not in later:
            self._place.drop(session.model)
        if group[0].section == "load" and not any(task.section == "load" for task in self._open):
            self._place.drop(DISK)


def _sentence(problem: Exception) -> str:
    return str(problem) if isinstance(problem, BenchError) else repr(problem)


def _words(session: Session) -> str:
    threads = f"{session.threads} threads" if session.threads else "its own threads"
    return f"{threads}, chunks of {session.chunk}" if session.chunk else threads


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so many seconds, where the system has such a clock (not on Windows)."""
    if sys.platform == "win32":
        yield
        return

    def ring(*_: Any) -> None:
        raise OutOfTime

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
