"""What must not leave this computer in a report: keys, logins, addresses, names of people.

Pure. Errs on the side of hiding; what was hidden keeps a mark that names its kind.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LEAST_NAME = 3
_COMMON = {"root", "user", "admin", "administrator", "home", "users", "localhost"}
_MARK = re.compile(r"<(key|login|mail|name|address)>")
# Names are hidden first, so a mark may stand where a character of a secret stood.
_KEY = r"(?:<name>|[A-Za-z0-9_\-])"
_WORD = (
    r"(?<![\w-])[\w-]*(?:authorization|token|password|passwd|passphrase|secret|api[-_]?key)"
    r"\\?['\"]?[ \t]*[:=][ \t]*"
)
_FOLDER = r"[^/\\\s:\"]+"


def _hide_ipv6(found: re.Match[str]) -> str:
    """Hide what is an IPv6 address; a colon behind it belongs to the sentence."""
    text = found[0]
    tail = ":" if text.endswith(":") and not text.endswith("::") else ""
    try:
        ipaddress.IPv6Address(text.removesuffix(tail).partition("%")[0])
    except ValueError:
        return text
    has_digit = any(letter.isdigit() for letter in text)  # else a name of C++, like feed::add
    return f"<address>{tail}" if has_digit else text


_PATTERNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # A password may hold "@", and "/" too where a colon says that it is one.
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)(?:[^\s/@:]*:[^\s\"']+|[^\s/]+)@", re.I),
        r"\1<login>@",
    ),
    (
        re.compile(r"(?<![\w.+@-])(?:<name>|[\w.+-])+:(?![\\/])[^\s\"']+@(?=<name>|[\w\[])"),
        "<login>@",
    ),
    (re.compile(rf"\b(?:(?:hf|sk|ft)[-_]|gh[pousr]_|github_pat_|AIza){_KEY}{{8,}}"), "<key>"),
    (
        re.compile(r"([?&](?:[\w-]*[_-])?(?:key|sig|signature|credential)=)[^\s&'\"]+", re.I),
        r"\1<key>",
    ),
    (re.compile(r"\bbearer\s+(?!<key>)(?:<name>|[\w.~+/=-]){8,}", re.I), "Bearer <key>"),
    (re.compile(rf"({_WORD}(\\?['\"]))(?:(?!\2)(?:\\.|.))+", re.I), r"\1<key>"),
    (
        re.compile(
            r"(\bauthorization[ \t]*[:=][ \t]*)(?!(?:bearer|basic)\b)[\w-]+[ \t]+[^\n]+", re.I
        ),
        r"\1<key>",
    ),
    (
        re.compile(
            rf"({_WORD})(?!bearer\s+<key>|\\['\"])(?:(?:bearer|basic)[ \t]+)?[^\s'\",;]+", re.I
        ),
        r"\1<key>",
    ),
    (
        re.compile(
            r"(?<![\w.+-])(?:<name>|[\w.+-])+@(?:<name>|[\w-])+\.(?:<name>|[\w.])*(?:<name>|\w)"
        ),
        "<mail>",
    ),
    (
        # A name of two or three words ends at the next folder.
        re.compile(
            rf"(\b[A-Z]:[\\/]{{1,2}}Users[\\/]{{1,2}})"
            rf"(?:{_FOLDER}(?: {_FOLDER}){{1,2}}(?=[\\/])|{_FOLDER})",
            re.I,
        ),
        r"\1<name>",
    ),
    (re.compile(rf"(/home/|/Users/){_FOLDER}", re.I), r"\1<name>"),
    (re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), "<address>"),
    (
        # Global, local to a link or a site, multicast: all begin with four digits.
        re.compile(
            r"(?<![\w:.])(?:[23][0-9a-f]{3}|f[c-f][0-9a-f]{2})(?::[0-9a-f]{0,4}){2,8}"
            r"(?:%[\w.-]*\w)?(?!\w)",
            re.I,
        ),
        _hide_ipv6,
    ),
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
    for name in sorted(names, key=len, reverse=True):
        if len(name) >= _LEAST_NAME and name.casefold() not in _COMMON:
            text = re.sub(rf"(?<![\w<]){re.escape(name)}(?![\w>])", "<name>", text, flags=re.I)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return Redacted(text, tuple(found.span() for found in _MARK.finditer(text)))
