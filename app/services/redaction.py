"""What must not leave this computer in a report: keys, logins, addresses, names of people.

Pure. Errs on the side of hiding; what was hidden keeps a mark that names its kind.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_NAME = 3
_COMMON = {"root", "user", "admin", "administrator", "home", "users", "localhost"}
_MARK = re.compile(r"<(key|login|mail|name|address)>")
_PATTERNS = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@<>]+@", re.I), r"\1<login>@"),
    (re.compile(r"\b(?:hf|sk|ft)[-_][A-Za-z0-9_\-]{8,}"), "<key>"),
    (re.compile(r"\bbearer\s+(?!<key>)[\w.~+/=-]{8,}", re.I), "Bearer <key>"),
    (
        re.compile(
            r"\b(authorization|token|password|secret|api[-_]?key)\b(['\"]?\s*[:=]\s*['\"]?)"
            r"(?:(?:bearer|basic)\s+)?(?!(?:bearer\s+)?<key>)[^\s'\",;]+",
            re.I,
        ),
        r"\1\2<key>",
    ),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.]*\w"), "<mail>"),
    (
        re.compile(r"(/home/|/Users/|\b[A-Z]:\\{1,2}Users\\{1,2})(?!<name>)[^/\\\s:]+", re.I),
        r"\1<name>",
    ),
    (re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), "<address>"),
)


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what must not leave.

    Attributes:
        text: with a mark in each place.
        marks: where the marks stand, (start, end).
    """

    text: str
    marks: tuple[tuple[int, int], ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many places of each kind were hidden: key, login, mail, name, address."""
        return dict(Counter(self.text[start + 1 : end - 1] for start, end in self.marks))


def redact(text: str, names: Sequence[str] = ()) -> Redacted:
    """Hide what must not leave.

    Args:
        text: as it would be copied.
        names: of the person and the computer; hidden wherever they stand as a word. Very short ones
            and those that everybody has are left.
    """
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    for name in names:
        if len(name) >= _LEAST_NAME and name.casefold() not in _COMMON:
            text = re.sub(rf"(?<![\w<]){re.escape(name)}(?![\w>])", "<name>", text, flags=re.I)
    return Redacted(text, tuple(found.span() for found in _MARK.finditer(text)))
