r"""Markdown text to blocks, at once or while it streams. No Qt, no HTML, no resources.

Raw HTML is text. Images become links to them. `$...$`, `\(...\)`, `$$...$$` and `\[...\]`
become readable text. Called by the message body widget.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from app.widgets.chat.blocks import (
    Block,
    Code,
    Items,
    Math,
    Paragraph,
    Quote,
    Rule,
    Run,
    Runs,
    Table,
)
from app.widgets.chat.math_text import readable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_URL = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]}]")
_DISPLAY = re.compile(r"\A\s*(?:\$\$(.+?)\$\$|\\\[(.+?)\\\])\s*\Z", re.DOTALL)
_MATH = re.compile(
    r"\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$(.+?)\$\$|\$(?=[^\s$])([^$\n]*?[^\s$\\])\$(?!\d)"
)
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$", re.MULTILINE)


def parser() -> "MarkdownIt":
    """Return a parser: CommonMark with tables and strike-through, raw HTML off."""
    from markdown_it import MarkdownIt  # with the first reply; an empty chat needs none

    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 24})
    md.enable(["table", "strikethrough"])
    md.inline.ruler.before("escape", "math", _math_rule)
    return md


def parse(text: str, md: "MarkdownIt | None" = None) -> tuple[Block, ...]:
    """Return the blocks of a whole text."""
    return blocks_from((md or parser()).parse(text))


def plain_blocks(text: str) -> tuple[Block, ...]:
    """Return a person's text: as typed, except that fenced code is code."""
    blocks: list[Block] = []
    lines: list[str] = []
    fence, language = "", ""

    def close(as_code: bool) -> None:
        body = "\n".join(lines) if as_code else "\n".join(lines).strip("\n")
        lines.clear()
        if as_code:
            blocks.append(Code(body, language))
        elif body.strip():
            blocks.append(Paragraph((Run(body),)))

    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not fence and match:
            close(as_code=False)
            fence, language = match[1], _language(match[2])
        elif fence and match and match[1].startswith(fence) and not match[2].strip():
            close(as_code=True)
            fence = ""
        else:
            lines.append(line)
    close(as_code=bool(fence))
    return tuple(blocks)


class _Reader:
    """Walks the flat token list of markdown-it."""

    def __init__(self, tokens: "Sequence[Token]") -> None:
        self._tokens, self._at = tokens, 0

    def blocks(self, until: str = "") -> tuple[Block, ...]:
        found: list[Block] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.type == until:
                break
            block = self._block(token)
            if block is not None:
                found.append(block)
        return tuple(found)

    def _block(self, token: "Token") -> Block | None:
        match token.type:
            case "paragraph_open" | "heading_open":
                return self._paragraph(token)
            case "fence" | "code_block":
                return Code(token.content.removesuffix("\n"), _language(token.info))
            case "bullet_list_open":
                return Items(self._items("bullet_list_close"))
            case "ordered_list_open":
                start = token.attrGet("start")
                return Items(self._items("ordered_list_close"), 1 if start is None else int(start))
            case "blockquote_open":
                return Quote(self.blocks("blockquote_close"))
            case "table_open":
                return self._table()
            case "hr":
                return Rule()
            case _:
                return None

    def _paragraph(self, token: "Token") -> Block:
        inline = self._tokens[self._at]
        self._at += 2  # the inline token and the closing one
        if token.type == "heading_open":
            return Paragraph(_runs(inline), int(token.tag[1]))
        display = _DISPLAY.match(inline.content)
        if display:
            return Math(readable(display[1] or display[2]))
        return Paragraph(_runs(inline))

    def _items(self, end: str) -> tuple[tuple[Block, ...], ...]:
        items: list[tuple[Block, ...]] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.type == end:
                break
            items.append(self.blocks("list_item_close"))
        return tuple(items)

    def _table(self) -> Table:
        rows: list[list[Runs]] = []
        aligns: list[Literal["left", "center", "right"]] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(_runs(token))
            elif token.type == "th_open":
                aligns.append(_align(str(token.attrGet("style") or "")))
        head, *body = rows or [[]]
        return Table(tuple(head), tuple(tuple(row) for row in body), tuple(aligns))


def blocks_from(tokens: "Sequence[Token]") -> tuple[Block, ...]:
    """Return the blocks of markdown-it's tokens."""
    return _Reader(tokens).blocks()


def _align(style: str) -> Literal["left", "center", "right"]:
    return "center" if "center" in style else "right" if "right" in style else "left"


def _language(info: str) -> str:
    words = info.split()
    return words[0] if words else ""


def _runs(inline: "Token") -> Runs:
    """Return the runs of one inline token, neighbours in the same style merged."""
    runs: list[Run] = []
    bold = italic = strike = 0
    href = ""
    for token in inline.children or ():
        match token.type:
            case "strong_open" | "strong_close":
                bold += token.nesting
            case "em_open" | "em_close":
                italic += token.nesting
            case "s_open" | "s_close":
                strike += token.nesting
            case "link_open":
                href = str(token.attrGet("href") or "")
            case "link_close":
                href = ""
            case "image":
                source = str(token.attrGet("src") or "")
                runs.append(Run(token.content or source, href=source))
            case "softbreak" | "hardbreak":
                runs.append(Run("\n"))
            case "code_inline":
                runs.append(Run(token.content, bool(bold), code=True, href=href))
            case "math":
                runs.append(Run(token.content, bool(bold), italic=True, href=href))
            case _:
                style = (bool(bold), bool(italic), bool(strike))
                runs += _linked(Run(token.content, *style, href=href))
    return _merged(runs)


def _linked(run: Run) -> list[Run]:
    """Make bare addresses in a text run links."""
    if run.href or "http" not in run.text:
        return [run]
    pieces: list[Run] = []
    end = 0
    style = (run.bold, run.italic, run.strike)
    for match in _URL.finditer(run.text):
        pieces.append(Run(run.text[end : match.start()], *style))
        pieces.append(Run(match[0], *style, href=match[0]))
        end = match.end()
    pieces.append(Run(run.text[end:], *style))
    return pieces


def _merged(runs: Sequence[Run]) -> Runs:
    merged: list[Run] = []
    for run in runs:
        if not run.text:
            continue
        last = merged[-1] if merged else None
        if last is not None and _style(last) == _style(run) and not run.code:
            merged[-1] = Run(last.text + run.text, *_style(last))
        else:
            merged.append(run)
    return tuple(merged)


def _style(run: Run) -> tuple[bool, bool, bool, bool, str]:
    return (run.bold, run.italic, run.strike, run.code, run.href)


def _math_rule(state: "StateInline", silent: bool) -> bool:
    """Inline rule of markdown-it: a formula becomes one token of readable text."""
    if state.src[state.pos] not in "$\\":
        return False
    match = _MATH.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token = state.push("math", "", 0)
        token.content = readable(next(group for group in match.groups() if group is not None))
    state.pos = match.end()
    return True
