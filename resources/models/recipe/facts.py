"""Questions and answers from the hand-written blocks, lists and tables of `data/`."""

# ruff: noqa: E501  texts are data

from collections.abc import Callable
from random import Random

from recipe.chat import Turn, exchange
from recipe.numbers import WORDS
from recipe.sources import Block, blocks, entries, poems, table
from recipe.stories import article, capital

Family = Callable[[Random], list[Turn]]


def vary(question: str, rng: Random) -> str:
    """Return a question as people type it: now and then in small letters, or with a greeting."""
    roll = rng.random()
    if roll < 0.08:
        return question.lower().rstrip(".?!")
    if roll < 0.14:
        return question.lower()
    if roll < 0.2:
        return question.rstrip(".?!")
    if roll < 0.24 and len(question) > 12:
        return f"{rng.choice(('Hi!', 'Hello!', 'Hey,', 'Please tell me:', 'One question:'))} {question}"
    return question


def _known(block: Block) -> tuple[str, ...]:
    """The last way to ask, where there are four or more, is kept for the evaluation."""
    return block.questions[:-1] if len(block.questions) > 3 else block.questions


def from_blocks(name: str) -> Family:
    """Return a family that asks the blocks of a file."""

    def family(rng: Random) -> list[Turn]:
        block = rng.choice(blocks(name))
        return exchange(vary(rng.choice(_known(block)), rng), rng.choice(block.answers))

    return family


def held_out_blocks(name: str) -> Family:
    """Return a family that asks the same blocks in the ways kept for the evaluation."""

    def family(rng: Random) -> list[Turn]:
        block = rng.choice([b for b in blocks(name) if len(b.questions) > 3])
        return exchange(block.questions[-1], rng.choice(block.answers))

    return family


_WHAT = (
    "What is {}?",
    "What is {}?",
    "What is {}?",
    "Tell me what {} is.",
    "Explain {}.",
    "Explain {} in simple words.",
    "Tell me about {}.",
    "Can you explain what {} is?",
    "What is {}? Answer briefly.",
    "Describe {} in a few words.",
)


def thing(rng: Random) -> list[Turn]:
    """Return what something is."""
    entry = rng.choice(entries("things.txt"))
    return exchange(vary(rng.choice(_WHAT).format(entry.name), rng), entry.parts[0])


def held_out_thing(rng: Random) -> list[Turn]:
    """Return the same, asked in a new way."""
    entry = rng.choice(entries("things.txt"))
    ask = rng.choice(("I would like to know what {} is.", "How would you explain {} to a child?"))
    return exchange(ask.format(entry.name), entry.parts[0])


_HOW = (
    "How do I {}?",
    "How do I {}?",
    "How can I {}?",
    "Explain how to {}.",
    "Tell me how to {}.",
    "I want to {}. What should I do?",
    "How do you {}?",
    "Give me steps to {}.",
)
_LINKS = ("Then", "After that,", "Next,")


def how_to(rng: Random, ways: tuple[str, ...] = _HOW) -> list[Turn]:
    """Return how something is done: a numbered list, or prose."""
    entry = rng.choice(entries("howto.txt"))
    way = rng.choice(ways)
    task = entry.name.replace(" my ", " your ") if " you " in way else entry.name
    question = vary(way.format(task), rng)
    if rng.random() < 0.6:
        return exchange(question, _numbered(entry.parts))
    first, *middle, last = [step[0].lower() + step[1:] for step in entry.parts]
    told = [f"First, {first}."] + [f"{rng.choice(_LINKS)} {step}." for step in middle]
    return exchange(question, " ".join([*told, f"Finally, {last}."]))


def held_out_how_to(rng: Random) -> list[Turn]:
    """Return the same, asked in a new way."""
    return how_to(rng, ("What is the best way to {}?", "Show me step by step how to {}."))


def _numbered(parts: tuple[str, ...] | list[str], end: str = ".") -> str:
    return "\n".join(f"{i}. {part}{end}" for i, part in enumerate(parts, 1))


def tips(rng: Random) -> list[Turn]:
    """Return some tips, as many as asked for."""
    entry = rng.choice(entries("tips.txt"))
    count = rng.choice((2, 3, 3, 3, 4, 5))
    word = WORDS[count] if rng.random() < 0.8 else str(count)
    ask = rng.choice(
        (
            f"Give me {word} tips to {entry.name}.",
            f"What are {word} ways to {entry.name}?",
            f"Tell me {word} things that help to {entry.name}.",
            f"How can I {entry.name}? Give me {word} tips.",
        )
    )
    return exchange(ask, _numbered(rng.sample(entry.parts, count)))


def advice(rng: Random, ask: tuple[str, ...] = ()) -> list[Turn]:
    """Return advice in one or two sentences."""
    entry = rng.choice(entries("tips.txt"))
    ways = ask or ("How can I {}?", "I want to {}.", "Give me one tip to {}.", "Help me to {}.")
    question = vary(rng.choice(ways).format(entry.name), rng)
    one, two = rng.sample(entry.parts, 2)
    if "one tip" in question:
        return exchange(question, f"{one}.")
    return exchange(question, f"{one}, and {two[0].lower()}{two[1:]}.")


def held_out_advice(rng: Random) -> list[Turn]:
    """Return the same, asked in a new way."""
    return advice(rng, ("What would you tell someone who wants to {}?",))


def listing(rng: Random) -> list[Turn]:
    """Return some members of a category, as many as asked for."""
    name, members = rng.choice(list(table("categories").items()))
    count = rng.randint(2, min(6, len(members)))
    word = WORDS[count] if rng.random() < 0.8 else str(count)
    chosen = rng.sample(members, count)
    ask = rng.choice(
        (
            f"List {word} {name}.",
            f"Name {word} {name}.",
            f"Give me {word} {name}.",
            f"Can you name {word} {name}?",
            f"Tell me {word} {name}.",
        )
    )
    if rng.random() < 0.5:
        return exchange(ask, _numbered([capital(item) for item in chosen], ""))
    return exchange(ask, capital(", ".join(chosen[:-1])) + f" and {chosen[-1]}.")


def suggest(rng: Random) -> list[Turn]:
    """Return one member of a category as a suggestion."""
    asks = {
        "names for a cat": ("Suggest a name for a cat.", "Give me a name for my cat."),
        "names for a dog": ("Suggest a name for a dog.", "What should I call my dog?"),
        "simple dinners": ("What should I eat for dinner?", "What should I cook tonight?"),
        "breakfast foods": ("What should I eat for breakfast?", "Suggest a breakfast."),
        "desserts": ("Suggest a dessert.", "What is a good dessert?"),
        "hobbies": ("Suggest a hobby.", "What is a good hobby?"),
        "gifts for a friend": ("What is a good gift for a friend?", "Suggest a gift."),
        "games for a rainy day": ("Suggest a game for a rainy day.", "What can we play inside?"),
        "drinks": ("What should I drink?", "Suggest a drink."),
    }
    name = rng.choice(list(asks))
    item = rng.choice(table("categories")[name])
    answer = rng.choice(("How about {}?", "I would suggest {}.", "You could try {}."))
    return exchange(vary(rng.choice(asks[name]), rng), answer.format(item))


def _pairs(name: str, asks: tuple[str, ...], answer: str) -> Family:
    def family(rng: Random) -> list[Turn]:
        key, value = rng.choice(list(table(name).items()))
        value = rng.choice(value) if isinstance(value, list) else value
        text = answer.format(key, value, article(key), article(str(value)))
        return exchange(vary(rng.choice(asks).format(key, article(key)), rng), capital(text))

    return family


# (name, ways to ask, answer): {0} key, {1} value or the key's article, {2} and {3} with articles.
_TABLES = (
    (
        "capitals",
        (
            "What is the capital of {0}?",
            "Which city is the capital of {0}?",
            "Name the capital of {0}.",
            "capital of {0}?",
        ),
        "The capital of {0} is {1}.",
    ),
    (
        "opposites",
        (
            "What is the opposite of {0}?",
            "What is the opposite of the word {0}?",
            "Give me the opposite of {0}.",
        ),
        "The opposite of {0} is {1}.",
    ),
    (
        "sounds",
        ("What sound does {1} make?", "What does {1} say?", "How does {1} sound?"),
        "{2} says {1}.",
    ),
    (
        "babies",
        (
            "What is a baby {0} called?",
            "What do you call a baby {0}?",
            "What do you call a young {0}?",
        ),
        "A young {0} is called {3}.",
    ),
    ("legs", ("How many legs does {1} have?", "How many legs has {1}?"), "{2} has {1} legs."),
    (
        "colors",
        ("What color is {0}?", "What is the color of {0}?", "Which color does {0} have?"),
        "{0} is {1}.",
    ),
    ("homes", ("Where does {1} live?", "What is the home of {1}?"), "{2} lives in {1}."),
    (
        "uses",
        ("What is {0} used for?", "What do you use {0} for?", "What can you do with {0}?"),
        "It is used {1}.",
    ),
    (
        "rhymes",
        ("What rhymes with {0}?", "Give me a word that rhymes with {0}.", "Find a rhyme for {0}."),
        "{1} rhymes with {0}.",
    ),
    (
        "plurals",
        ("What is the plural of {0}?", "Give me the plural of {0}."),
        "The plural of {0} is {1}.",
    ),
    (
        "past",
        ("What is the past tense of {0}?", "Give me the past tense of {0}."),
        "The past tense of {0} is {1}.",
    ),
    (
        "synonyms",
        (
            "What is another word for {0}?",
            "Give me a synonym for {0}.",
            "What word means the same as {0}?",
        ),
        "Another word for {0} is {1}.",
    ),
    ("riddles", ("{0}", "Solve this riddle: {0}"), "{1}"),
)
_HELD_OUT_TABLES = (
    ("capitals", ("Do you know the capital city of {0}?",), "The capital of {0} is {1}."),
    ("opposites", ("Which word means the opposite of {0}?",), "The opposite of {0} is {1}."),
    ("colors", ("Tell me the color of {0}.",), "{0} is {1}."),
    ("babies", ("What name do people use for a baby {0}?",), "A young {0} is called {3}."),
)
_TABLE_FAMILIES = tuple(_pairs(*row) for row in _TABLES)
_HELD_OUT_FAMILIES = tuple(_pairs(*row) for row in _HELD_OUT_TABLES)


def tables(rng: Random) -> list[Turn]:
    """Return a small fact."""
    return rng.choice(_TABLE_FAMILIES)(rng)


def held_out_tables(rng: Random) -> list[Turn]:
    """Return the same, asked in a new way."""
    return rng.choice(_HELD_OUT_FAMILIES)(rng)


def counts(rng: Random) -> list[Turn]:
    """Return how many of something there are."""
    key, (_, answer) = rng.choice(list(table("counts").items()))
    question = "How many is a dozen?" if key == "is a dozen" else f"How many {key}?"
    return exchange(vary(question, rng), answer)


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def calendar(rng: Random) -> list[Turn]:
    """Return which day or month comes before or after another."""
    kind, row = rng.choice((("day", _DAYS), ("month", _MONTHS)))
    at = rng.randrange(len(row))
    if rng.random() < 0.6:
        other = row[(at + 1) % len(row)]
        return exchange(f"Which {kind} comes after {row[at]}?", f"{other} comes after {row[at]}.")
    return exchange(
        f"Which {kind} comes before {row[at]}?", f"{row[at - 1]} comes before {row[at]}."
    )


def spelling(rng: Random) -> list[Turn]:
    """Return how a word is spelled, its first or last letter, or its length."""
    word = rng.choice((*table("opposites"), *table("rhymes"), *table("plurals"), *table("helpers")))
    kind = rng.randrange(4)
    if kind == 0:
        return exchange(f"How do you spell {word}?", "-".join(word))
    if kind == 1:
        return exchange(
            f"What is the first letter of {word}?", f"The first letter of {word} is {word[0]}."
        )
    if kind == 2:
        return exchange(
            f"What is the last letter of {word}?", f"The last letter of {word} is {word[-1]}."
        )
    return exchange(
        f"How many letters does the word {word} have?", f"The word {word} has {len(word)} letters."
    )


_POEM = (
    "Write a short poem about {}.",
    "Write a poem about {}.",
    "Can you write a little poem about {}?",
    "Tell me a poem about {}.",
    "Write four lines about {}.",
)


def poem(rng: Random) -> list[Turn]:
    """Return a poem of four lines."""
    entry = rng.choice(poems())
    if rng.random() < 0.1:
        return exchange(rng.choice(("Write a poem.", "Tell me a poem.")), "\n".join(entry.parts))
    return exchange(rng.choice(_POEM).format(entry.name), "\n".join(entry.parts))


def joke(rng: Random) -> list[Turn]:
    """Return a joke."""
    ask = (
        "Tell me a joke.",
        "Do you know a joke?",
        "Make me laugh.",
        "Tell me something funny.",
        "A joke, please.",
        "Tell me another joke.",
    )
    return exchange(vary(rng.choice(ask), rng), rng.choice(table("jokes")))
