"""Rows on disk and the time that is left.

A section is one JSON file, written anew after each row and never in part, so that a run that is
killed keeps what it had, and a second run into the same folder goes on behind it.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.perf.report_plan import SECTIONS

Row = dict[str, Any]
FIGURES = "probe-figures.json"  # as `tests.perf.probe` keeps them
PACE_LIMITS = (0.1, 20.0)


class Store:
    """The rows of a folder, by section and task.

    Attributes:
        folder: where they lie.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._rows: dict[str, dict[str, list[Row]]] = {}
        self._whole: dict[str, set[str]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.add_folder(folder)

    @classmethod
    def merged(cls, folders: Iterable[Path]) -> "Store":
        """Return what several runs measured; of a task that more than one has, the last one's."""
        store = cls()
        for folder in folders:
            store.add_folder(folder)
        return store

    def add_folder(self, folder: Path) -> None:
        """Read what a run kept."""
        for section in SECTIONS:
            file = folder / f"{section}.json"
            if not file.is_file():
                continue
            kept = json.loads(file.read_text(encoding="utf-8"))
            mine, whole = self._rows.setdefault(section, {}), self._whole.setdefault(section, set())
            for task, rows in kept["tasks"].items():
                is_whole = task in kept["whole"]
                if task in whole and not is_whole:
                    continue
                mine[task] = rows
                if is_whole:
                    whole.add(task)

    def rows(self, section: str) -> list[Row]:
        """Return a section's rows in the order in which their tasks came."""
        return [row for rows in self._rows.get(section, {}).values() for row in rows]

    def task_rows(self, section: str, task: str) -> list[Row]:
        """Return a task's rows so far."""
        return self._rows.get(section, {}).get(task, [])

    def is_whole(self, section: str, task: str) -> bool:
        """Return whether a task was measured to its end."""
        return task in self._whole.get(section, set())

    def put(self, section: str, task: str, rows: list[Row], is_whole: bool = True) -> None:
        """Keep a task's rows, instead of those it had."""
        self._rows.setdefault(section, {})[task] = rows
        whole = self._whole.setdefault(section, set())
        if is_whole:
            whole.add(task)
        self._write(section)

    def _write(self, section: str) -> None:
        if self.folder is None:
            return
        kept = {
            "section": section,
            "whole": sorted(self._whole[section]),
            "tasks": self._rows[section],
        }
        file = self.folder / f"{section}.json"
        part = file.with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        part.replace(file)


class Budget:
    """The seconds of a call, and whether a row still fits into them.

    Estimates are for one machine. What rows took, beside what they should have taken, scales those
    that follow: of the same kind if there was one, else of all; a kind that is new is not taken to
    be faster than estimated.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + seconds
        self._seen: dict[str, tuple[float, float]] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the end; negative behind it."""
        return self._end_s - self._clock()

    def fits(self, costs: Mapping[str, float]) -> bool:
        """Return whether the sum of these estimates, by kind, is left."""
        return sum(seconds * self._pace(kind) for kind, seconds in costs.items()) <= self.left_s

    def spent(self, kind: str, estimate_s: float, took_s: float) -> None:
        """Learn from a row."""
        if estimate_s > 0:
            estimated, took = self._seen.get(kind, (0.0, 0.0))
            self._seen[kind] = (estimated + estimate_s, took + took_s)

    def _pace(self, kind: str) -> float:
        low, high = PACE_LIMITS
        if kind in self._seen:
            estimated, took = self._seen[kind]
        else:
            seen = self._seen.values()
            estimated, took = sum(one for one, _ in seen), sum(one for _, one in seen)
            low = 1.0
        return min(high, max(low, took / estimated)) if estimated else 1.0
