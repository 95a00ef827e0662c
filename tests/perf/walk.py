"""Prompts of a wanted length, and whether a reply is right.

On a synthetic model every prompt is a range of the ring of ids, and the reply is known. On any
other model there is nothing to know beforehand: there, replies to the same prompt must be the same
in every row of a table.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.checkpoint.index import INDEX_NAME

STORY = (
    "The fox came down to the river before the sun was up. She had heard that the old "
    "bridge was gone, and she wanted to see it with her own eyes."
)
STORY_WORDS = STORY.split()


class Walk(Protocol):
    """Where prompts come from."""

    def prompt(self, start: int, tokens: int) -> str:
        """Return a text of about `tokens` tokens; the same `start`, the same text."""
        ...

    def judge(self, start: int, tokens: int, reply: str) -> tuple[int, int]:
        """Return (right, all) tokens of the reply to `prompt(start, tokens)`."""
        ...


@dataclass(frozen=True, slots=True)
class RingWalk:
    """Over a synthetic model of `vocab` ids."""

    vocab: int

    def prompt(self, start: int, tokens: int) -> str:
        """Return exactly `tokens` tokens: t5 t6 t7 ..."""
        return " ".join(f"t{(start + i) % self.vocab}" for i in range(tokens))

    def judge(self, start: int, tokens: int, reply: str) -> tuple[int, int]:
        """Hold the reply against the ids that follow the prompt."""
        words = reply.split()
        after = self.prompt(start + tokens, len(words)).split()
        return sum(a == b for a, b in zip(words, after, strict=True)), len(words)


@dataclass(slots=True)
class StoryWalk:
    """Over any model: the same prompt must always get the same reply."""

    _known: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def prompt(self, start: int, tokens: int) -> str:
        """Return `tokens` words of a story."""
        return " ".join(STORY_WORDS[(start + i) % len(STORY_WORDS)] for i in range(tokens))

    def judge(self, start: int, tokens: int, reply: str) -> tuple[int, int]:
        """Count the words that equal those of the first reply to this prompt."""
        words = reply.split()
        first = self._known.setdefault((start, tokens), words)
        same = sum(a == b for a, b in zip(words, first, strict=False))
        return same, max(len(words), len(first))


def walk_of(folder: Path) -> Walk:
    """Return the walk that fits a model folder."""
    index = folder / INDEX_NAME
    config = json.loads(index.read_bytes())["config"] if index.is_file() else {}
    return RingWalk(config["vocab_size"]) if "synthetic" in config else StoryWalk()
