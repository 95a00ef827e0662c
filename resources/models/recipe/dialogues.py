"""Conversations in which a later turn needs an earlier one, and instructions to copy."""

from random import Random

from recipe.chat import Turn, exchange
from recipe.sources import table
from recipe.stories import capital


def remember(rng: Random) -> list[Turn]:
    """Return a conversation in which the user tells something and asks for it later."""
    name = rng.choice([n for names in table("names").values() for n in names])
    town, like, age = rng.choice(table("towns")), rng.choice(table("likes")), rng.randint(6, 80)
    said = {
        "name": (
            rng.choice(
                (f"My name is {name}.", f"I am {name}.", f"Hi, I'm {name}.", f"Call me {name}.")
            ),
            rng.choice((f"Nice to meet you, {name}!", f"Hello {name}! How can I help you today?")),
            rng.choice(("What is my name?", "Do you remember my name?", "What's my name?")),
            f"Your name is {name}.",
        ),
        "town": (
            f"I live in {town}.",
            rng.choice(
                (
                    f"I would like to see {town} one day. Do you like it there?",
                    "That sounds like a nice place to live.",
                )
            ),
            rng.choice(("Where do I live?", "Do you remember where I live?")),
            f"You live in {town}.",
        ),
        "like": (
            rng.choice((f"I like {like}.", f"I love {like}.", f"My favorite thing is {like}.")),
            rng.choice(
                (f"{capital(like)} can be a lot of fun!", f"What do you like most about {like}?")
            ),
            rng.choice(("What do I like?", "Do you remember what I like?")),
            f"You like {like}.",
        ),
        "age": (
            f"I am {age} years old.",
            rng.choice((f"{age} is a good age!", "Thank you for telling me.")),
            "How old am I?",
            f"You are {age} years old.",
        ),
    }
    keys = rng.sample(list(said), rng.randint(1, 3))
    turns = [turn for key in keys for turn in exchange(*said[key][:2])]
    if rng.random() < 0.4:
        turns += exchange("Thank you!", "You are welcome!")
    for key in rng.sample(keys, rng.randint(1, len(keys))):
        turns += exchange(*said[key][2:])
    return turns


def unknown(rng: Random) -> list[Turn]:
    """Return a question about the user that nothing answers."""
    question, what = rng.choice(
        (
            ("What is my name?", "your name"),
            ("Where do I live?", "where you live"),
            ("How old am I?", "how old you are"),
            ("What do I like?", "what you like"),
        )
    )
    return exchange(question, f"I do not know {what} yet. Please tell me!")


def echo(rng: Random) -> list[Turn]:
    """Return a request to say something exactly, or several times."""
    words = (*table("likes"), *table("beings"), *table("things"))
    word = rng.choice(words)
    kind = rng.randrange(4)
    if kind == 0:
        text = capital(f"{rng.choice(words)} and {word}")
        ask = rng.choice(("Repeat after me: {}", "Say this: {}", "Please repeat: {}"))
        return exchange(ask.format(text), text)
    if kind == 1:
        count, name = rng.choice(((2, "two"), (3, "three"), (4, "four")))
        say = rng.choice(("hello", "yes", "hooray", "good morning", word))
        return exchange(f"Say {say} {name} times.", capital(", ".join([say] * count)) + ".")
    if kind == 2:
        return exchange(f"Write the word {word} in capital letters.", word.upper())
    first, second = rng.sample(words, 2)
    ask = rng.choice(
        (f"Which is first here: {first}, {second}?", f"Which do I name first: {first} or {second}?")
    )
    return exchange(ask, f"You name {first} first.")


def sentence(rng: Random) -> list[Turn]:
    """Return a sentence with given words."""
    names = [n for names in table("names").values() for n in names]
    being, thing, food = (rng.choice(table(k)) for k in ("beings", "things", "foods"))
    in_place = rng.choice(table("places")).split("|")[0]
    told = rng.choice(
        (
            f"The {being} found a {thing} {in_place}.",
            f"{in_place}, the {being} lost the {thing}.",
            f"{rng.choice(names)} and the {being} ate {food} {in_place}.",
            f"The {being} gave the {thing} to {rng.choice(names)}.",
        )
    )
    told = capital(told)
    inside = [w for w in (being, thing, food) if w in told]
    if len(inside) > 1 and rng.random() < 0.6:
        return exchange(f"Write one sentence with {inside[0]} and {inside[1]}.", told)
    return exchange(
        f"Write a sentence about {'an' if inside[0][0] in 'aeiou' else 'a'} {inside[0]}.".replace(
            "a straw", "straw"
        )
        if inside[0] != food
        else f"Write a sentence about {food}.",
        told,
    )


def rest_after(rng: Random) -> list[Turn]:
    """Return a short thanks or goodbye that may follow anything."""
    if rng.random() < 0.7:
        ask = rng.choice(("Thanks!", "Thank you!", "Great, thank you.", "thanks", "Nice!", "Cool!"))
        answer = rng.choice(
            (
                "You are welcome!",
                "My pleasure! Is there anything else?",
                "I am glad that you like it!",
                "You are welcome! Just ask if you need more.",
            )
        )
        return exchange(ask, answer)
    return exchange(
        rng.choice(("Bye!", "Goodbye!", "See you!")),
        rng.choice(("Goodbye! Have a nice day.", "See you soon!")),
    )
