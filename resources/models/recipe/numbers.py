"""Exact small arithmetic, counting and comparing, as questions and answers."""

from random import Random

from recipe.chat import Turn, exchange
from recipe.sources import table

WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
_ASK = (
    "What is {}?",
    "What is {}?",
    "How much is {}?",
    "{} = ?",
    "Calculate {}.",
    "{}",
    "{}?",
    "Can you tell me what {} is?",
    "Please work out {}.",
    "what is {}",
)
_HELD_OUT_ASK = ("Could you compute {} for me?", "I need the result of {}.")
_NAMES = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


def _problem(rng: Random) -> tuple[int, str, int, int]:
    sign = rng.choice("+++---**/")
    if sign in "+-":
        top = rng.choice((10, 10, 20, 100))
        a, b = rng.randint(0, top), rng.randint(0, top)
        if sign == "-" and rng.random() < 0.95:
            a, b = max(a, b), min(a, b)
        return a, sign, b, a + b if sign == "+" else a - b
    a, b = rng.randint(1, 12), rng.randint(1, 12)
    return (a, "*", b, a * b) if sign == "*" else (a * b, "/", b, a)


def is_held_out(a: int, sign: str, b: int) -> bool:
    """Return whether a problem is kept for the evaluation: one in nine of the larger ones."""
    return max(a, b) > 10 and (a * 7 + b * 3 + ord(sign)) % 9 == 0


def sum_(rng: Random, held_out: bool = False) -> list[Turn]:
    """Return one sum of two numbers."""
    while True:
        a, sign, b, result = _problem(rng)
        if is_held_out(a, sign, b) == held_out:
            break
    if rng.random() < 0.25 and max(a, b, result) <= 20 and min(a, b, result) >= 0:
        text = f"{WORDS[a]} {_NAMES[sign]} {WORDS[b]}"
        answer = f"{text[:1].upper()}{text[1:]} is {WORDS[result]}."
    elif rng.random() < 0.3:
        text = f"{a} {_NAMES[sign]} {b}"
        answer = f"{text} is {result}."
    else:
        shown = rng.choice(("x", "*")) if sign == "*" else sign
        text = f"{a} {shown} {b}" if rng.random() < 0.8 else f"{a}{shown}{b}"
        answer = f"{a} {shown} {b} = {result}"
    ask = rng.choice(_HELD_OUT_ASK if held_out else _ASK)
    return exchange(ask.format(text), answer)


def held_out_sum(rng: Random) -> list[Turn]:
    """Return a sum, and a way to ask for it, that no training text has."""
    return sum_(rng, held_out=True)


_GOODS = ("apples", "books", "cookies", "coins", "marbles", "flowers", "eggs", "pencils", "cards")


def word_problem(rng: Random) -> list[Turn]:
    """Return a small story sum."""
    he = rng.choice(("he", "she"))
    name, goods = rng.choice(table("names")[he]), rng.choice(_GOODS)
    a, b = rng.randint(2, 20), rng.randint(1, 10)
    if rng.random() < 0.5:
        verb = rng.choice(("gets", "finds", "buys"))
        question = (
            f"{name} has {a} {goods} and {verb} {b} more. How many {goods} does {he} have now?"
        )
        return exchange(question, f"{a} + {b} = {a + b}, so {name} has {a + b} {goods}.")
    a, b = max(a, b), min(a, b)
    verb = rng.choice(("gives away", "loses", "sells"))
    question = f"{name} has {a} {goods} and {verb} {b}. How many {goods} are left?"
    left = f"{a - b} {goods if a - b != 1 else goods[:-1]}"
    return exchange(
        question, f"{a} - {b} = {a - b}, so {left} {'are' if a - b != 1 else 'is'} left."
    )


def compare(rng: Random) -> list[Turn]:
    """Return a question about order, evenness, doubles or halves."""
    a, b = rng.sample(range(1, 101), 2)
    top, low = max(a, b), min(a, b)
    kind = rng.randrange(6)
    if kind == 0:
        word = rng.choice(("bigger", "larger", "greater"))
        return exchange(f"Which number is {word}, {a} or {b}?", f"{top} is {word} than {low}.")
    if kind == 1:
        return exchange(f"Which number is smaller, {a} or {b}?", f"{low} is smaller than {top}.")
    if kind == 2:
        word = "even" if a % 2 == 0 else "odd"
        return exchange(f"Is {a} even or odd?", f"{a} is {word}.")
    if kind == 3:
        return exchange(f"What is double {a}?", f"Double {a} is {2 * a}.")
    if kind == 4:
        return exchange(f"What is half of {2 * a}?", f"Half of {2 * a} is {a}.")
    return exchange(
        f"Is {a} more than {b}?",
        f"{'Yes' if a > b else 'No'}, {a} is {'more' if a > b else 'less'} than {b}.",
    )


def count(rng: Random) -> list[Turn]:
    """Return a request to count, or to go on with a row of numbers."""
    kind = rng.randrange(5)
    if kind == 0:
        start = rng.choice((1, 1, 1, rng.randint(1, 50)))
        end = start + rng.randint(2, 14)
        row = ", ".join(map(str, range(start, end + 1)))
        return exchange(f"Count from {start} to {end}.", row)
    if kind == 1:
        start = rng.randint(3, 12)
        row = ", ".join(map(str, range(start, 0, -1)))
        return exchange(f"Count down from {start} to 1.", row)
    if kind == 2:
        start, step = rng.randint(0, 20), rng.choice((1, 2, 3, 5, 10))
        given = [start + step * i for i in range(4)]
        question = f"Which number comes next: {', '.join(map(str, given))}?"
        return exchange(
            question, f"The next number is {start + step * 4}, because {step} is added each time."
        )
    if kind == 3:
        a = rng.randint(1, 99)
        return exchange(f"What number comes after {a}?", f"{a + 1} comes after {a}.")
    a = rng.randint(1, 99)
    return exchange(f"What number comes before {a}?", f"{a - 1} comes before {a}.")


def chain(rng: Random) -> list[Turn]:
    """Return a sum that goes on over several turns."""
    a, b = rng.randint(1, 20), rng.randint(1, 20)
    turns, value = exchange(f"What is {a} + {b}?", f"{a} + {b} = {a + b}"), a + b
    for _ in range(rng.randint(1, 3)):
        step = rng.randint(1, 10)
        if rng.random() < 0.6:
            ask = rng.choice((f"Add {step} to that.", f"And plus {step}?", f"Now add {step}."))
            turns += exchange(ask, f"{value} + {step} = {value + step}")
            value += step
        elif value >= step:
            ask = rng.choice((f"Take away {step}.", f"And minus {step}?", f"Now subtract {step}."))
            turns += exchange(ask, f"{value} - {step} = {value - step}")
            value -= step
    return turns
