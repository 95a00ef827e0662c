"""Figures of the window's bench: gaps, slopes, and one line for each with its goal. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `goal` None = shown only, else the most it may be."""

    name: str
    value: float
    unit: str
    goal: float | None

    @property
    def is_met(self) -> bool:
        """Whether the value is within its goal."""
        return self.goal is None or self.value <= self.goal

    @property
    def line(self) -> str:
        """The figure as it is printed."""
        shown = f"{self.name:48} {self.value:9.2f} {self.unit:3}"
        if self.goal is None:
            return shown.rstrip()
        return f"{shown}  goal {self.goal:g} {self.unit}{'' if self.is_met else '   MISSED'}"


def longest_gap(beats: Sequence[float]) -> float:
    """Return the longest time between two beats, in the unit of the beats; 0 = no two."""
    return max((after - before for before, after in pairwise(beats)), default=0.0)


def slope_per_step(samples: Sequence[tuple[float, float]], step: float) -> float:
    """Return by how much y grows per `step` of x: the straight line with the least squares.

    Raises:
        ValueError: fewer than two different x.
    """
    count = len(samples)
    if count < 2:
        raise ValueError("a slope needs two samples")
    mean_x = sum(x for x, _ in samples) / count
    mean_y = sum(y for _, y in samples) / count
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    if spread == 0:
        raise ValueError("a slope needs two different x")
    return step * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread
