"""`tr`: English text in, the person's language out, and the way back.

A `Phrase` is a str, so Qt and formatting take it as it is; it also remembers its key and values, so
that it can be said again in another language.
"""

from app.wording.language import lookup


class Phrase(str):
    """Translated text that remembers what it says.

    Attributes:
        key: the English template.
        values: what fills its placeholders; may hold phrases again.
    """

    __slots__ = ("key", "values")

    key: str
    values: dict[str, object]


def tr(text: str, /, **values: object) -> Phrase:
    """Return `text` in the language in use, with `{name}` filled from `values`.

    Raises:
        KeyError: a placeholder has no value.
    """
    return _say(lookup(text), text, values)


def tr_count(one: str, many: str, count: int, /, **values: object) -> Phrase:
    """Return `one` or `many` by `count`, which fills `{count}` with thousands separated.

    Catalogues hold both keys; a language without plural gives both the same text.
    """
    key = one if count == 1 else many
    return _say(lookup(key), key, {"count": f"{count:,}"} | values)


def again(text: str) -> str:
    """Say a phrase in the language in use now; other text is returned as it is."""
    if not isinstance(text, Phrase):
        return text
    return _say(lookup(text.key), text.key, text.values)


def _say(template: str, key: str, values: dict[str, object]) -> Phrase:
    spoken = {k: again(v) if isinstance(v, Phrase) else v for k, v in values.items()}
    phrase = Phrase(template.format_map(spoken) if values else template)
    phrase.key, phrase.values = key, values
    return phrase
