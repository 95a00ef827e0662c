"""Short stories told from the plots of `data/plots.txt`, and questions about them.

A story is made of one hero, one helper, one thing, one place; the prompt names some of them, so
that the only way to tell the right story is to read the prompt.
"""

import re
from random import Random
from typing import NamedTuple

from recipe.chat import Turn, exchange
from recipe.sources import Plot, plots, table

_FORMS = {
    "he": ("him", "his", "himself"),
    "she": ("her", "her", "herself"),
    "it": ("it", "its", "itself"),
}
_SLOT = re.compile(r"\{(\w+)\}")
_COUNTS = ("three", "four", "five", "six")


class Cast(NamedTuple):
    """Who and what a story is about; `slots` fills the plot's lines."""

    plot: Plot
    slots: dict[str, str]


def article(noun: str) -> str:
    """Return the noun with "a" or "an"."""
    if noun.startswith("pair of"):
        return f"a {noun}"
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def draw_cast(rng: Random) -> Cast:
    """Return a plot with everything that its lines need."""
    plot = rng.choice(plots())
    being = rng.choice(table("objects" if plot.lifeless else "beings"))
    he = table("gender").get(being) or rng.choice(("he", "she"))
    name = f"the {being}" if plot.lifeless else rng.choice(table("names")[he])
    friend = rng.choice([n for names in table("names").values() for n in names if n != name])
    helper = rng.choice([h for h in table("helpers") if h not in being])
    thing = rng.choice(table(plot.things))
    in_place, place = rng.choice(table("places")).split("|")
    if plot.lifeless:
        he = "it"
    him, his, himself = _FORMS[he]
    slots = {
        "name": name,
        "being": being,
        "a_being": article(being),
        "friend": friend,
        "helper": helper,
        "a_helper": article(helper),
        "thing": thing,
        "a_thing": article(thing),
        "in_place": in_place,
        "place": place,
        "in_place_cap": capital(in_place),
        "food": rng.choice(table("foods")),
        "he": he,
        "him": him,
        "his": his,
        "himself": himself,
    }
    slots |= {capital(key): capital(value) for key, value in slots.items()}
    return Cast(plot, slots)


def fill(text: str, cast: Cast) -> str:
    """Return the text with its slots filled and a capital at its beginning."""
    return capital(_SLOT.sub(lambda found: cast.slots[found[1]], text))


def tell(cast: Cast, rng: Random, num_sentences: int = 0, moral: bool = False) -> str:
    """Return the story; `num_sentences` > 0 tells that many core steps, one sentence each."""
    steps = list(cast.plot.steps)
    if num_sentences:
        core = [step for step in steps if step.core]
        while len(core) > num_sentences:  # beginning, turn and end stay
            del core[rng.randrange(1, len(core) - 1)]
        return " ".join(fill(rng.choice(step.ways), cast) for step in core)
    keep = rng.choice((0.35, 0.7, 1.0, 1.0))
    told = [step for step in steps if step.core or rng.random() < keep]
    lines = [fill(rng.choice(step.ways), cast) for step in told]
    split = rng.random() < 0.5
    text = lines[0]
    for i, line in enumerate(lines[1:], 1):
        text += ("\n\n" if split and i % 3 == 0 else " ") + line
    return f"{text}\n\n{cast.plot.moral}" if moral else text


_ABOUT = (
    "{a_being} named {name}", "{a_being} named {name} who {deed}", "{name} the {being}",
    "{a_being}", "{a_being}", "{a_being} who {deed}", "{a_being} and {a_helper}",
    "{a_being} named {name} and {a_helper} named {friend}", "{name} and {friend}",
    "{a_being} {in_place}",
)  # fmt: skip


def ask(cast: Cast, rng: Random) -> str:
    """Return a way to ask for this story, naming some of what it has."""
    kind = rng.choice(("short story", "short story", "story", "little story", "bedtime story"))
    verb = rng.choice(("Write", "Tell me", "Please tell me", "Can you tell me", "Please write"))
    end = "?" if verb.startswith("Can") else "."
    if cast.plot.lifeless:
        about = rng.choice(
            ("{a_being}", "{a_being}", "{a_being} that {deed}", "{a_being} {in_place}")
        )
    else:
        about = rng.choice(_ABOUT)
    about = about.replace("{deed}", cast.plot.deed)
    request = _SLOT.sub(lambda found: cast.slots[found[1]], f"{verb} a {kind} about {about}")
    request = request.replace("{a_thing}", cast.slots["a_thing"])
    return request + _SLOT.sub(lambda f: cast.slots[f[1]], _more(cast, rng, end))


def _more(cast: Cast, rng: Random, end: str) -> str:
    roll = rng.random()
    if roll < 0.6:
        return end
    if roll < 0.75:
        return f"{end} It should be about {cast.plot.lesson}."
    if roll < 0.85:
        return f"{end} It should have a happy ending."
    return f" for children{end}"


def story(rng: Random) -> list[Turn]:
    """Return a request and its story."""
    cast = draw_cast(rng)
    roll = rng.random()
    if roll < 0.2:
        count = rng.randrange(3, len([s for s in cast.plot.steps if s.core]) + 1)
        asked = ask(cast, rng)[:-1].removesuffix(" for children")
        request = f"{asked} in {_COUNTS[count - 3]} sentences."
        if "?" not in request and ". " not in request:
            return exchange(request, tell(cast, rng, count))
    if roll < 0.3:
        request = f"Tell me a story that teaches about {cast.plot.lesson}."
        return exchange(request, tell(cast, rng, moral=True))
    if roll < 0.38:
        return exchange(rng.choice(_BARE), tell(cast, rng))
    return exchange(ask(cast, rng), tell(cast, rng, moral=rng.random() < 0.1))


_BARE = (
    "Tell me a story.",
    "Tell me a short story.",
    "Write a short story.",
    "Tell me a bedtime story.",
    "Can you tell me a story?",
    "I want to hear a story.",
    "A story, please.",
    "Tell me a story!",
    "Write a story with a happy ending.",
    "Tell me a story for children.",
)


def held_out_story(rng: Random) -> list[Turn]:
    """Return a story asked for in a way that no training text has."""
    cast = draw_cast(rng)
    request = rng.choice(
        (
            "I would love to hear something about {a_being} {in_place}.",
            "Make up a tale in which {a_being} meets {a_helper}.",
        )
    )
    return exchange(fill(request, cast), tell(cast, rng))


def story_talk(rng: Random) -> list[Turn]:
    """Return a story and one to three questions about it, answered from the story's cast."""
    cast = draw_cast(rng)
    turns = exchange(ask(cast, rng), tell(cast, rng))
    for question, answer in rng.sample(_questions(cast, rng), rng.randint(1, 3)):
        turns += exchange(question, answer)
    return turns


def _hero(cast: Cast) -> str:
    if cast.plot.lifeless:
        return f"The hero is {cast.slots['name']}."
    return f"The hero is {cast.slots['name']}, {cast.slots['a_being']}."


def _questions(cast: Cast, rng: Random) -> list[tuple[str, str]]:
    get = cast.slots
    title = rng.choice(
        (
            f"The {get['being'].title()} and the {get['helper'].title()}",
            f"{capital(get['name'])} and {get['friend']}",
        )
    )
    return [
        (
            rng.choice(
                ("What is the name of the hero?", "Who is the hero?", "Who is the story about?")
            ),
            _hero(cast),
        ),
        (
            rng.choice(
                ("Give the story a title.", "What could be the title?", "Now give it a title.")
            ),
            f'"{title}"',
        ),
        (
            rng.choice(
                ("What does the story teach?", "What is the lesson?", "What can I learn from it?")
            ),
            cast.plot.moral,
        ),
        (
            rng.choice(("Who is the friend in the story?", "Who else is in the story?")),
            f"{get['friend']} the {get['helper']} is in the story too.",
        ),
        (
            rng.choice(
                ("I like it!", "That was nice.", "What a lovely story!", "Good story, thanks.")
            ),
            rng.choice(
                (
                    f"I am glad that you like it! {capital(get['name'])} would be happy too.",
                    "Thank you! Shall I tell you another one?",
                )
            ),
        ),
        (
            "Tell it again in three sentences.",
            tell(cast, rng, 3),
        ),
    ]
