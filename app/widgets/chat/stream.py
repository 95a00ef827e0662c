"""Markdown that grows: blocks that can no longer change are handed out once, the last one often.

Only the text from the last open block on is parsed again. An open code fence is not parsed at all
but read line by line, so that a long listing costs no more per token at its end than at its start
(case G-13). No Qt.
"""

import re
from typing import TYPE_CHECKING

from app.widgets.chat.blocks import Block, Code
from app.widgets.chat.markdown import blocks_from, parser

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# A last line that may yet become a list, heading, fence or rule is not shown before it is clear.
_UNCLEAR = re.compile(r"\A\s{0,3}(?:[-=*_#`~>+]{1,3}|[|:\- ]+|\d{1,3}[.)]?)\s*\Z")


class _Fence:
    """An open code block: its closing mark, and the lines so far."""

    def __init__(self, token: "Token") -> None:
        mark = token.markup
        self.closing = re.compile(rf"\A {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*\Z")
        self.mark = mark[0]
        self.language = token.info.split()[0] if token.info.split() else ""
        self.lines: list[str] = []


class MarkdownStream:
    """Cuts a growing text into closed blocks and open ones.

    `feed` takes the whole text so far, which must begin with what was fed before; `open_blocks`
    is the rest that may change with the next call.
    """

    def __init__(self, md: "MarkdownIt | None" = None) -> None:
        self._md = md or parser()
        self._length = 0
        self._tail = ""  # not closed yet; inside a fence, its unfinished last line
        self._fence: _Fence | None = None
        self._indent = 0
        self.open_blocks: tuple[Block, ...] = ()

    def feed(self, text: str, is_done: bool = False) -> tuple[Block, ...]:
        """Take the text so far. Returns the blocks closed by it, in order."""
        self._tail += text[self._length :]
        self._length = len(text)
        closed: list[Block] = []
        while self._fence is not None:
            block = self._read_fence(self._fence, is_done)
            if block is None:
                return tuple(closed)
            closed.append(block)
        closed += self._read_blocks(is_done)
        if self._fence is not None:  # the text may hold the end of the fence already
            closed += self.feed(text, is_done)
        return tuple(closed)

    def _read_fence(self, fence: _Fence, is_done: bool) -> Code | None:
        """Move whole lines into the open fence. Returns the block if it has ended."""
        *lines, rest = self._tail.split("\n")
        for number, line in enumerate(lines):
            if fence.closing.match(line):
                self._tail = "\n".join([*lines[number + 1 :], rest])
                self._fence = None
                return Code("\n".join(fence.lines), fence.language)
            fence.lines.append(self._dedented(line))
        self._tail = rest
        if is_done:
            self._fence, self._tail = None, ""
            is_code = bool(rest.strip()) and not fence.closing.match(rest)
            last = [self._dedented(rest)] if is_code else []
            return Code("\n".join(fence.lines + last), fence.language)
        maybe_end = rest.strip() and not rest.strip().strip(fence.mark)
        shown = fence.lines if maybe_end or not rest else [*fence.lines, self._dedented(rest)]
        self.open_blocks = (Code("\n".join(shown), fence.language, is_closed=False),)
        return None

    def _dedented(self, line: str) -> str:
        """Drop the indentation of the opening fence."""
        spaces = min(self._indent, len(line) - len(line.lstrip(" ")))
        return line[spaces:]

    def _read_blocks(self, is_done: bool) -> tuple[Block, ...]:
        """Parse the tail; all but its last block are closed once that one's first line is whole."""
        tokens = self._md.parse(self._tail if is_done else self._shown())
        if is_done:
            self._tail, self.open_blocks = "", ()
            return blocks_from(tokens)
        whole_lines = self._tail.count("\n")
        starts = [
            index
            for index, token in enumerate(tokens)
            if token.level == 0 and token.nesting >= 0 and token.map is not None
        ]
        sure = [index for index in starts if (tokens[index].map or [0])[0] < whole_lines]
        cut = sure[-1] if sure else 0
        if not sure:
            self.open_blocks = blocks_from(tokens)
            return ()
        last, line = tokens[cut], (tokens[cut].map or [0])[0]
        rest = self._tail.split("\n", line)[line]
        if last.type == "fence" and self._is_open(last, rest):
            self._begin_fence(last, rest)
        else:
            self._tail = rest
            self.open_blocks = blocks_from(tokens[cut:])
        return blocks_from(tokens[:cut])

    def _shown(self) -> str:
        """Return the tail without a last line that could mean anything yet."""
        head, _, last = self._tail.rpartition("\n")
        return f"{head}\n" if head and _UNCLEAR.match(last) else self._tail

    @staticmethod
    def _is_open(token: "Token", source: str) -> bool:
        """Whether a fence token has its opening line only, or no closing one."""
        closing = _Fence(token).closing
        return not any(closing.match(line) for line in source.split("\n")[1:])

    def _begin_fence(self, token: "Token", source: str) -> None:
        opening, _, rest = source.partition("\n")
        self._indent = len(opening) - len(opening.lstrip(" "))
        self._fence = _Fence(token)
        self._tail = rest
        self.open_blocks = (Code("", self._fence.language, is_closed=False),)
