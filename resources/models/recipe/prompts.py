"""What the teacher is asked: prompts from templates, each with what its reply must show.

A prompt names words that a good reply contains (`must`) or a number of items; `filters` drops
replies that do not comply. Families whose name ends in "~" are held out: their wording never
occurs in training.
"""

# ruff: noqa: E501  texts are data

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from recipe.chat import Turn, render
from recipe.numbers import WORDS
from recipe.sources import entries, table
from recipe.stories import article

SYSTEM = "You are a helpful assistant. You give short, simple and clear answers."


class Prompt(NamedTuple):
    """One question to the teacher. `items`: list items a reply must have (0 = free)."""

    family: str
    text: str
    must: tuple[str, ...] = ()
    items: int = 0
    max_new: int = 200


_STORY = (
    "Write a short story for children about {a} named {name} who finds {thing} {where}. Use simple words and end the story happily.",
    "Write a short story about {a} named {name} who lives {where}. Use simple words.",
    "Tell me a short story about {name} the {being} and {friend} the {helper}. The story should teach about {lesson}.",
    "Write a story in six sentences about {a} named {name} {where}.",
    "Tell me a short bedtime story about {a} named {name}. Keep it under 120 words.",
    "Write a short story about {a} named {name} who loses {thing}. Finish with what {name} learned.",
    "Write a simple story for a five year old about {name}, {a} who likes {food}.",
    "Tell me a short story about {a} named {name} and {thing}.",
    "Write a short adventure story about {name}, {a}. It should have a clear ending.",
)  # fmt: skip
_STORY_HELD = ("Invent a little fairy tale with {name}, {a}, and {thing} in it.",)
_EXPLAIN = (
    "What is {x}? Answer in two sentences.", "What is {x}? Explain it in simple words.",
    "Explain {x} in two or three simple sentences.", "Tell me about {x} in a few sentences.",
    "Why is {x} important? Answer in two sentences.", "What do people use {x} for? Answer briefly.",
    "Describe {x} in two sentences.", "What is {x}?", "Explain {x} to a child.",
    "What is interesting about {x}? Answer in two sentences.",
)  # fmt: skip
_EXPLAIN_HELD = ("Give me a brief introduction to {x}.", "What should everyone know about {x}?")
_LIST = (
    "Give me {n} short facts about {x}.", "List {n} things about {x}.",
    "Name {n} reasons why {x} is useful.", "Give me {n} ideas for something to do with {x}.",
)  # fmt: skip
_TIPS = ("Give me {n} tips to {task}.", "List {n} steps to {task}.", "What are {n} good ways to {task}? Use a short list.")  # fmt: skip
_TIPS_HELD = ("Help me {task}: write a short checklist with {n} points.",)
_HOW = ("How can I {task}? Answer in one short paragraph.", "I want to {task}. What should I do first? Answer in two sentences.", "Explain briefly how to {task}.")  # fmt: skip
_POEM = ("Write a four-line poem about {x}.", "Write a short poem about {x}.", "Write a short rhyme about {a}.")  # fmt: skip
_DESCRIBE = ("Describe {a} {where} in three sentences.", "Describe {thing} in two sentences.", "Write two sentences about {a} who likes {food}.", "Write one sentence with the words {w1} and {w2}.", "Write a short dialogue between {a} and {a2}.")  # fmt: skip
_NOTE = ("Write a short thank-you note to {who} for {thing}.", "Write a short birthday message for {who}.", "Write a short, friendly letter to {who} about {x}.", "Write a kind message of two sentences to {who}.", "Write a short invitation to a picnic {where} for {who}.")  # fmt: skip
_WHO = ("my teacher", "my friend", "my grandmother", "my neighbor", "my sister", "my brother", "my father", "my mother", "a colleague", "my best friend", "our baker", "my doctor", "a new student")  # fmt: skip
# family -> (templates, share of all prompts, longest reply in tokens)
_FAMILIES: dict[str, tuple[tuple[str, ...], float, int]] = {
    "t_story": (_STORY, 0.06, 260),
    "t_explain": (_EXPLAIN, 0.40, 150),
    "t_list": (_LIST, 0.08, 160),
    "t_tips": (_TIPS, 0.12, 180),
    "t_how": (_HOW, 0.08, 170),
    "t_poem": (_POEM, 0.05, 120),
    "t_describe": (_DESCRIBE, 0.12, 130),
    "t_note": (_NOTE, 0.08, 170),
    "t_story~": (_STORY_HELD, 0.004, 260),
    "t_explain~": (_EXPLAIN_HELD, 0.004, 150),
    "t_tips~": (_TIPS_HELD, 0.002, 180),
}


def _slots(rng: Random, topics: tuple[str, ...]) -> dict[str, str]:
    names = table("names")
    being = rng.choice((*table("beings"), *table("odd_beings")))
    name, friend = (rng.choice(names[rng.choice(("he", "she"))]) for _ in range(2))
    things = entries("things.txt")
    count = rng.choice((3, 3, 3, 4, 5))
    w1, w2 = rng.sample(topics[:1500], 2)
    return {
        "a": article(being), "being": being, "name": name, "friend": friend,
        "helper": rng.choice(table("helpers")), "a2": article(rng.choice(table("beings"))),
        "thing": article(rng.choice(table("things"))), "food": rng.choice(table("foods")),
        "where": rng.choice(table("places")).split("|")[0],
        "lesson": rng.choice(("sharing", "honesty", "courage", "patience", "friendship", "never giving up", "kindness", "helping others", "being grateful", "curiosity")),
        "x": rng.choice(things).name if rng.random() < 0.4 else rng.choice(topics),
        "task": rng.choice(entries(rng.choice(("howto.txt", "tips.txt")))).name,
        "n": WORDS[count], "count": str(count), "who": rng.choice(_WHO), "w1": w1, "w2": w2,
    }  # fmt: skip


def make(count: int, topics: tuple[str, ...], seed: int) -> Iterator[Prompt]:
    """Yield `count` prompts of all families, mixed."""
    rng = Random(f"{seed}/prompts")
    names = list(_FAMILIES)
    shares = [share for _, share, _ in _FAMILIES.values()]
    for family in rng.choices(names, shares, k=count):
        templates, _, max_new = _FAMILIES[family]
        template, slots = rng.choice(templates), _slots(rng, topics)
        must = tuple(
            slots[key].removeprefix("a ").removeprefix("an ").removeprefix("the ").split()[-1]
            for key in ("name", "x", "w1", "w2", "food")
            if f"{{{key}}}" in template
        )
        items = int(slots["count"]) if "{n}" in template else 0
        yield Prompt(family, template.format(**slots), must, items, max_new)


def save(prompts: list[Prompt], path: Path) -> None:
    """Store prompts, one JSON list a line."""
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts), encoding="utf-8")


def texts(prompts: list[Prompt]) -> list[str]:
    """Return what the teacher reads, up to where its reply begins."""
    system = Turn("system", SYSTEM)
    return [render([system, Turn("user", p.text)], reply=True) for p in prompts]


def load(path: Path) -> list[Prompt]:
    """Return stored prompts."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Prompt(row[0], row[1], tuple(row[2]), row[3], row[4]) for row in rows]
