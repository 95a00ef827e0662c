"""All families of exact, hand-made text: how many documents of each, and which are held out."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from recipe import dialogues, facts, numbers, stories
from recipe.chat import Turn, exchange
from recipe.facts import Family
from recipe.sources import wordnet

NUM_MEANINGS = 3000


class Doc(NamedTuple):
    """One document: a conversation of a family; held-out ones never reach the training."""

    family: str
    turns: list[Turn]
    held_out: bool = False


# family -> (maker, documents at scale 1)
TRAINING: dict[str, tuple[Family, int]] = {
    "story": (stories.story, 260_000),
    "story_talk": (stories.story_talk, 60_000),
    "freetoken": (facts.from_blocks("freetoken.txt"), 40_000),
    "smalltalk": (facts.from_blocks("smalltalk.txt"), 40_000),
    "whys": (facts.from_blocks("whys.txt"), 20_000),
    "thing": (facts.thing, 30_000),
    "how_to": (facts.how_to, 25_000),
    "tips": (facts.tips, 40_000),
    "advice": (facts.advice, 15_000),
    "listing": (facts.listing, 30_000),
    "suggest": (facts.suggest, 8_000),
    "tables": (facts.tables, 40_000),
    "counts": (facts.counts, 4_000),
    "calendar": (facts.calendar, 4_000),
    "spelling": (facts.spelling, 12_000),
    "poem": (facts.poem, 8_000),
    "joke": (facts.joke, 4_000),
    "sum": (numbers.sum_, 150_000),
    "word_problem": (numbers.word_problem, 25_000),
    "compare": (numbers.compare, 20_000),
    "count": (numbers.count, 15_000),
    "chain": (numbers.chain, 15_000),
    "remember": (dialogues.remember, 25_000),
    "unknown": (dialogues.unknown, 1_500),
    "echo": (dialogues.echo, 15_000),
    "sentence": (dialogues.sentence, 10_000),
}
HELD_OUT: dict[str, Family] = {
    "story": stories.held_out_story,
    "freetoken": facts.held_out_blocks("freetoken.txt"),
    "smalltalk": facts.held_out_blocks("smalltalk.txt"),
    "whys": facts.held_out_blocks("whys.txt"),
    "thing": facts.held_out_thing,
    "how_to": facts.held_out_how_to,
    "advice": facts.held_out_advice,
    "tables": facts.held_out_tables,
    "sum": numbers.held_out_sum,
}
_MEANING = (
    'What does "{}" mean?',
    "What does the word {} mean?",
    "What is the meaning of {}?",
    "Define {}.",
    "Define the word {}.",
)


def meanings(path: Path, rng: Random) -> Iterator[Doc]:
    """Yield word meanings from WordNet, each asked in three ways; one word in 40 is held out."""
    for i, (word, kind, meaning) in enumerate(wordnet(path).meanings[:NUM_MEANINGS]):
        answer = f"{stories.capital(word)} ({kind}): {meaning}."
        for ask in rng.sample(_MEANING, 3):
            yield Doc("meaning", exchange(ask.format(word), answer), i % 40 == 39)


def training(scale: float, seed: int) -> Iterator[Doc]:
    """Yield the training documents; `scale` multiplies every count."""
    for family, (make, count) in TRAINING.items():
        rng = Random(f"{seed}/{family}")
        for _ in range(max(1, round(count * scale))):
            yield Doc(family, make(rng))


def held_out(per_family: int, seed: int) -> Iterator[Doc]:
    """Yield the documents of the held-out families."""
    for family, make in HELD_OUT.items():
        rng = Random(f"{seed}/held-out/{family}")
        seen: set[tuple[Turn, ...]] = set()
        for _ in range(per_family * 4):
            turns = make(rng)
            if tuple(turns) not in seen and len(seen) < per_family:
                seen.add(tuple(turns))
                yield Doc(family, turns, held_out=True)
