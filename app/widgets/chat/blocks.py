"""Markdown as data: blocks of runs. Made by `markdown`, drawn by the block widgets. No Qt."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Run:
    """A piece of text in one style; `text` is shown as it is, never as markup.

    `href` is a link's target; a newline in the text is a line break.
    """

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""


Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text; `level` 1-6 makes it a heading."""

    runs: Runs
    level: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A code block; `is_closed` False while more of it may come."""

    text: str
    language: str = ""
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Math:
    """A displayed formula, already as readable text."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `start` None = bullets, else the first number."""

    items: tuple[tuple["Block", ...], ...]
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """Quoted blocks."""

    blocks: tuple["Block", ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; each row has as many cells as the head."""

    head: tuple[Runs, ...]
    rows: tuple[tuple[Runs, ...], ...]
    aligns: tuple[Literal["left", "center", "right"], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A dividing line."""


Block = Paragraph | Code | Math | Items | Quote | Table | Rule


def is_flow(block: Block) -> bool:
    """Whether a block can be drawn as text alone: no code, table or rule inside."""
    match block:
        case Paragraph() | Math():
            return True
        case Items(items=items):
            return all(is_flow(inner) for item in items for inner in item)
        case Quote(blocks=blocks):
            return all(is_flow(inner) for inner in blocks)
        case _:
            return False
