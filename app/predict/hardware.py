"""Is this machine good for large models: a judgement per part, with the number behind it.

Pure arithmetic over plain numbers; the words are the page's. Advice only, it forbids nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.predict.fit import ROOM, Fit
from app.predict.speed import routed_bytes
from app.predict.unseen import (
    ConfigFacts,
    DownloadAdvice,
    SpeedGuess,
    ThisMachine,
    disk_need,
    guess_speed,
    judge_download,
)

Part = Literal["card", "driver", "ram", "disk", "link"]
Tone = Literal["ok", "warn", "plain"]

DRIVER_LEAST = 580  # CUDA 13 asks for it on Linux and Windows
VRAM_LEAST = 6 << 30  # attention, context and a cache worth its name
# Usable GB/s of one lane by generation: raw rate less coding and packets, as measured copies show.
LANE_GBPS = {1: 0.2, 2: 0.4, 3: 0.8, 4: 1.6, 5: 3.3, 6: 6.6}


@dataclass(frozen=True, slots=True)
class Check:
    """A judgement: the part, its tone, and two numbers whose meaning the part gives.

    card: bytes of VRAM, bytes that are advised. driver: number, least number. ram: bytes, bytes of
    the largest model that fits. disk: free bytes, bytes that the smallest model of the catalogue
    takes. link: lanes in use, lanes that are there. `value` -1 = not known or not there.
    """

    part: Part
    tone: Tone
    value: float = -1
    other: float = 0


def check_card(vram_bytes: int) -> Check:
    """Judge the graphics memory; 0 bytes = there is no card, which is no fault."""
    if vram_bytes <= 0:
        return Check("card", "plain", -1, VRAM_LEAST)
    return Check("card", "ok" if vram_bytes >= VRAM_LEAST else "warn", vram_bytes, VRAM_LEAST)


def check_driver(version: str) -> Check:
    """Judge the driver by the number before its first point; "" = there is none."""
    head = version.partition(".")[0]
    if not head.isdigit():
        return Check("driver", "plain", -1, DRIVER_LEAST)
    tone: Tone = "ok" if int(head) >= DRIVER_LEAST else "warn"
    return Check("driver", tone, int(head), DRIVER_LEAST)


def check_ram(ram_total: int, smallest_model: int) -> Check:
    """Judge the memory by the smallest model of the catalogue; `other` is the largest that fits."""
    fits = int(ram_total / ROOM)
    return Check("ram", "ok" if fits >= smallest_model else "warn", ram_total, fits)


def check_disk(free: int, smallest_model: int) -> Check:
    """Judge the room for a download and its conversion."""
    need = disk_need(smallest_model)
    if free < 0:
        return Check("disk", "plain", -1, need)
    return Check("disk", "ok" if free >= need else "warn", free, need)


def check_link(width: int, best_width: int) -> Check:
    """Judge how many lanes the card has; the generation is no measure, it drops at rest."""
    if width <= 0:
        return Check("link", "plain", -1, best_width)
    return Check("link", "ok" if width >= best_width else "warn", width, best_width)


def link_limit_gbps(generation: int, width: int) -> float:
    """Return the rate that large copies reach on such a link, GB/s; 0 = not known."""
    return LANE_GBPS.get(generation, 0.0) * width


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could be fetched, by a key of the caller."""

    key: str
    facts: ConfigFacts


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model that fits: the advice, the speed if this machine is measured, bytes per token."""

    key: str
    advice: DownloadAdvice
    guess: SpeedGuess | None
    read_bytes: int


def suggest(
    candidates: Sequence[tuple[Candidate, ThisMachine]], count: int = 3
) -> tuple[Suggestion, ...]:
    """Return at most `count` models that fit, fastest first.

    What fits easily is chosen before what fits tightly. Without a measured speed the order is that
    of the bytes which one token reads: at any bandwidth that is the order of speed. Each candidate
    comes with the machine as it is for it, as measured rates depend on the format.
    """
    fitting = []
    for candidate, machine in candidates:
        facts = candidate.facts
        advice = judge_download(facts, machine)
        if advice.fit in (Fit.FITS, Fit.TIGHT) and advice.limit != "disk":
            read = routed_bytes(facts.layers, facts.top_k, facts.expert_bytes) + facts.dense_bytes
            guess = guess_speed(facts, machine)
            fitting.append(Suggestion(candidate.key, advice, guess, read))
    easy_first = sorted(fitting, key=lambda s: (s.advice.fit is Fit.TIGHT, _slowness(s)))
    return tuple(sorted(easy_first[:count], key=_slowness))


def _slowness(one: Suggestion) -> tuple[float, float]:
    return (-one.guess.high if one.guess is not None else 0.0, one.read_bytes)
