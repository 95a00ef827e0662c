"""Code in colours: pygments tokens as formats per line, worked off in small turns.

A long listing is coloured while the window goes on; nothing here runs longer than some
milliseconds at a time. Colours come from the theme's syntax tokens.
"""

import time
from collections.abc import Iterator

from pygments import lex
from pygments.lexers import get_lexer_by_name
from pygments.token import Token
from pygments.util import ClassNotFound
from PySide6.QtCore import QTimer
from PySide6.QtGui import QSyntaxHighlighter, QTextCharFormat, QTextDocument

from app.theme import syntax

TURN_S = 0.006
MAX_CHARS = 400_000  # beyond, a listing stays plain

_KINDS = (
    (Token.Keyword, "keyword"),
    (Token.Operator.Word, "keyword"),
    (Token.Name.Tag, "keyword"),
    (Token.Literal.String, "string"),
    (Token.Literal.Number, "number"),
    (Token.Comment, "comment"),
    (Token.Name.Function, "function"),
    (Token.Name.Class, "function"),
    (Token.Name.Builtin, "function"),
    (Token.Name.Decorator, "function"),
    (Token.Name.Attribute, "number"),
)
Spans = list[tuple[int, int, str]]  # start, length, kind; of one line


def spans_of(code: str, language: str) -> Iterator[Spans]:
    """Yield the coloured spans of each line in order; nothing if the language is unknown."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return
    spans: Spans = []
    column = 0
    for token, text in lex(code, lexer):
        kind = next((name for base, name in _KINDS if token in base), "")
        for number, piece in enumerate(text.split("\n")):
            if number:
                yield spans
                spans, column = [], 0
            length = len(piece.encode("utf-16-le")) // 2  # Qt counts UTF-16 units
            if kind and length:
                spans.append((column, length, kind))
            column += length
    yield spans


class CodeColors(QSyntaxHighlighter):
    """Colours a document by precomputed spans. `start` begins anew, `retheme` keeps the spans."""

    def __init__(self, document: QTextDocument) -> None:
        super().__init__(document)
        self._lines: list[Spans] = []
        self._source: Iterator[Spans] | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._turn)

    def start(self, code: str, language: str) -> None:
        """Colour the document, whose text is `code`, in turns of the event loop."""
        self._lines = []
        self._source = spans_of(code, language) if language and len(code) <= MAX_CHARS else None
        if self._source is not None:
            self._timer.start()

    @property
    def is_done(self) -> bool:
        """Whether all lines are coloured."""
        return self._source is None

    def retheme(self) -> None:
        """Take the colours of the present theme."""
        if self._lines:
            self.rehighlight()

    def highlightBlock(self, _text: str) -> None:
        """Colour one line from what is known of it."""
        number = self.currentBlock().blockNumber()
        if number < len(self._lines):
            for start, length, kind in self._lines[number]:
                form = QTextCharFormat()
                form.setForeground(syntax(kind))
                self.setFormat(start, length, form)

    def _turn(self) -> None:
        """Work off lines for a few milliseconds."""
        if self._source is None:
            return
        end = time.monotonic() + TURN_S
        first = len(self._lines)
        for spans in self._source:
            self._lines.append(spans)
            if time.monotonic() > end:
                self._timer.start()
                break
        else:
            self._source = None
        block = self.document().findBlockByNumber(first)
        while block.isValid() and block.blockNumber() < len(self._lines):
            if self._lines[block.blockNumber()]:
                self.rehighlightBlock(block)
            block = block.next()
