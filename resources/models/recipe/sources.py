"""Readers of the hand-written data in `data/`; the forms are explained at the top of each file."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).resolve().parent / "data"


class Block(NamedTuple):
    """Ways to ask one thing, and answers to it."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]


class Entry(NamedTuple):
    """One name or task, and what belongs to it."""

    name: str
    parts: tuple[str, ...]


class Step(NamedTuple):
    """One step of a plot: ways to tell it; `core` steps are told in the shortest form too."""

    core: bool
    ways: tuple[str, ...]


class Plot(NamedTuple):
    """One kind of story. `things` names a list of slots.json; `lifeless`: the hero is a thing."""

    name: str
    things: str
    deed: str
    lesson: str
    moral: str
    steps: tuple[Step, ...]
    lifeless: bool = False


def _lines(name: str) -> list[str]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if not line.startswith("#")]


@cache
def blocks(name: str) -> tuple[Block, ...]:
    """Return the question blocks of a file."""
    found: list[Block] = []
    questions: list[str] = []
    answers: list[str] = []
    for line in [*_lines(name), ""]:
        if line.startswith("Q:"):
            questions += [part.strip() for part in line[2:].split(" | ")]
        elif line.startswith("A:"):
            answers.append(line[2:].strip())
        elif not line and questions:
            found.append(Block(tuple(questions), tuple(answers)))
            questions, answers = [], []
    return tuple(found)


@cache
def entries(name: str) -> tuple[Entry, ...]:
    """Return the "name | part | part" lines of a file."""
    rows = [[part.strip() for part in line.split(" | ")] for line in _lines(name) if line]
    return tuple(Entry(row[0], tuple(row[1:])) for row in rows)


@cache
def poems() -> tuple[Entry, ...]:
    """Return topics and their four lines."""
    rows = [line.split(" : ", 1) for line in _lines("poems.txt") if line]
    return tuple(Entry(name, tuple(text.split(" / "))) for name, text in rows)


@cache
def plots() -> tuple[Plot, ...]:
    """Return the story plots."""
    found: list[Plot] = []
    for line in _lines("plots.txt"):
        if line.startswith("="):
            name, deed, lesson, moral = (part.strip() for part in line[1:].split(" | "))
            name, _, things = name.partition("@")
            lifeless = name.endswith("!")
            found.append(Plot(name, things or "things", deed, lesson, moral, (), lifeless))
        elif line:
            step = Step(line[0] == "+", tuple(way.strip() for way in line[1:].split("||")))
            found[-1] = found[-1]._replace(steps=(*found[-1].steps, step))
    return tuple(found)


@cache
def table(name: str) -> Any:  # noqa: ANN401  JSON
    """Return one table of tables.json, or of slots.json."""
    for file in ("tables.json", "slots.json"):
        found = json.loads((DATA / file).read_text(encoding="utf-8"))
        if name in found:
            return found[name]
    raise KeyError(name)


class WordNet(NamedTuple):
    """What `wordnet.py` took from WordNet: topics, and (word, kind, meaning) of common words."""

    topics: tuple[str, ...]
    meanings: tuple[tuple[str, str, str], ...]


def wordnet(path: Path) -> WordNet:
    """Return the extract stored at `path`."""
    found = json.loads(gzip.decompress(path.read_bytes()))
    return WordNet(tuple(found["topics"]), tuple(tuple(row) for row in found["meanings"]))
