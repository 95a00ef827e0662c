"""Does a model fit this machine: the sum of its needs against memory, with the number that decides.

Advice only; it never refuses a load.
"""

from dataclasses import dataclass
from enum import StrEnum

ROOM = 1.10  # the pool and a tenth for everything beside it


class Fit(StrEnum):
    """How well a model fits."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_BIG = "too_big"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FitAdvice:
    """The judgement and the two figures behind it, in bytes of host memory."""

    fit: Fit
    need_bytes: int
    have_bytes: int


def judge_fit(model_bytes: int, ram_total_bytes: int, ram_free_bytes: int) -> FitAdvice:
    """Judge whether all of the model's weights can live in host memory.

    Tight: it fits the machine, but not what is free now with room to spare.
    """
    if model_bytes <= 0 or ram_total_bytes <= 0:
        return FitAdvice(Fit.UNKNOWN, model_bytes, ram_total_bytes)
    need = int(model_bytes * ROOM)
    if need > ram_total_bytes:
        return FitAdvice(Fit.TOO_BIG, need, ram_total_bytes)
    if need > ram_free_bytes:
        return FitAdvice(Fit.TIGHT, need, ram_free_bytes)
    return FitAdvice(Fit.FITS, need, ram_free_bytes)
