"""How well typed words fit a title: pure arithmetic, no Qt.

Every word must be found; a word at the beginning of one of the title's words counts more than one
inside, and that more than its letters spread over the title.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

START, WORD, INSIDE, SPREAD = 8.0, 6.0, 4.0, 1.0
_CLOSE = 0.9  # less than the step between two kinds: how early and how tightly it was found


def score(query: str, title: str) -> float | None:
    """Return how well a query fits, higher is better; None = it does not. "" fits everything."""
    found = [_word_score(word, title.casefold()) for word in query.casefold().split()]
    if any(one is None for one in found):
        return None
    return sum(one for one in found if one is not None) / max(1, len(found))


def best(query: str, entries: Iterable[T], title_of: Callable[[T], str], most: int) -> list[T]:
    """Return the entries that fit, the best first; equal ones keep their order."""
    scored = [(score(query, title_of(entry)), entry) for entry in entries]
    fitting = [(value, entry) for value, entry in scored if value is not None]
    return [entry for _, entry in sorted(fitting, key=lambda pair: -pair[0])[:most]]


def _word_score(word: str, title: str) -> float | None:
    place = title.find(word)
    if place == 0:
        return START + _CLOSE * len(word) / len(title)
    starts = [at for at in range(1, len(title)) if not title[at - 1].isalnum()]
    at_start = next((at for at in starts if title.startswith(word, at)), None)
    if at_start is not None:
        return WORD + _CLOSE * (1 - at_start / len(title))
    if place > 0:
        return INSIDE + _CLOSE * (1 - place / len(title))
    places = _spread(word, title)
    if not places:
        return None
    return SPREAD + _CLOSE * len(word) / (places[-1] - places[0] + 1)


def _spread(word: str, title: str) -> Sequence[int]:
    """Return where the letters of a word stand one after the other, or () if they do not."""
    places: list[int] = []
    for letter in word:
        place = title.find(letter, places[-1] + 1 if places else 0)
        if place < 0:
            return ()
        places.append(place)
    return places
