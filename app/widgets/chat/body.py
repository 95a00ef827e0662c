"""The blocks of one message as widgets. Closed blocks are made once; only the open one changes."""

import time
from collections.abc import Sequence

from PySide6.QtCore import QTimer
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme import area, color, follow, painter, px
from app.widgets import Card, Line, hbox, vbox
from app.widgets.chat.blocks import Block, Code, Items, Quote, Table, is_flow
from app.widgets.chat.code import CodeBlock
from app.widgets.chat.markdown import plain_blocks
from app.widgets.chat.prose import Prose
from app.widgets.chat.rich import flow_html, table_html, with_caret
from app.widgets.chat.stream import MarkdownStream
from app.widgets.labels import Label

GAP = 9
REST = 4  # after a rendering that took t, nothing is rendered for REST x t


class Flow(Prose):
    """Paragraphs, headings, formulas, lists and quotes that are text alone."""

    def __init__(self, blocks: Sequence[Block], ink: str = "text", is_open: bool = False) -> None:
        self._blocks, self._ink, self._is_open = tuple(blocks), ink, is_open
        super().__init__(self._html)

    def set_blocks(self, blocks: Sequence[Block], is_open: bool = False) -> None:
        """Show others."""
        if (tuple(blocks), is_open) != (self._blocks, self._is_open):
            self._blocks, self._is_open = tuple(blocks), is_open
            self.retheme()

    def _html(self) -> str:
        html = flow_html(self._blocks, self._ink)
        return with_caret(html) if self._is_open else html


class QuoteBox(QWidget):
    """Quoted blocks behind a line."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.setLayout(vbox(*(widget_of(b, "text2") for b in blocks), gap=GAP, pad=(14, 0, 0, 0)))
        follow(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the line at the left."""
        p, whole = painter(self), area(self)
        p.fillRect(0, 0, 2, round(whole.height()), color("control"))


class ItemsBox(QWidget):
    """A list whose items hold more than text."""

    def __init__(self, block: Items, ink: str) -> None:
        super().__init__()
        rows = []
        for number, item in enumerate(block.items):
            mark = "•" if block.start is None else f"{block.start + number}."
            parts = vbox(*(widget_of(inner, ink) for inner in item), gap=6)
            label = Label(mark, "read", ink)
            label.setMinimumWidth(px(18))
            rows.append(hbox(vbox(label, None, gap=0), (parts, 1), gap=6, pad=(8, 0, 0, 0)))
        self.setLayout(vbox(*rows, gap=5))


def widget_of(block: Block, ink: str = "text") -> QWidget:
    """Return the widget that draws a block."""
    if is_flow(block) and not isinstance(block, Quote):
        return Flow([block], ink)
    match block:
        case Code():
            return CodeBlock(block)
        case Quote(blocks=blocks):
            return QuoteBox(blocks)
        case Items():
            return ItemsBox(block, ink)
        case Table():
            return Prose(lambda: table_html(block))
        case _:
            return Line()


class MessageBody(QWidget):
    """All blocks of a message, below each other."""

    def __init__(self) -> None:
        super().__init__()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._stream: MarkdownStream | None = None
        self._text = ""
        self._open: list[QWidget] = []  # widgets of the open blocks
        self._pending: str | None = None
        self._not_before = 0.0
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self._catch_up)
        follow(self.rezoom)

    def rezoom(self) -> None:
        """Take the gap from the present zoom."""
        self._column.setSpacing(px(GAP))

    @property
    def widgets(self) -> list[QWidget]:
        """The block widgets in order."""
        items = (self._column.itemAt(i) for i in range(self._column.count()))
        return [w for item in items if item is not None and (w := item.widget()) is not None]

    def reset(self) -> None:
        """Show nothing, as when new."""
        self._later.stop()
        self._pending, self._not_before = None, 0.0
        self._clear()
        self._text = ""

    def set_plain(self, text: str) -> None:
        """Show a person's text as typed."""
        if text != self._text:
            self._clear()
            self._text = text
            for block in plain_blocks(text):
                self._column.addWidget(widget_of(block))

    def set_markdown(self, text: str, is_done: bool) -> None:
        """Show a reply; while it grows, call again with the whole text so far.

        Rendering takes at most a fifth of the time: a call too soon is caught up on later.
        """
        if text == self._text and not is_done:
            return
        now = time.monotonic()
        if not is_done and now < self._not_before:
            self._pending = text
            if not self._later.isActive():
                self._later.start(max(1, round((self._not_before - now) * 1000)))
            return
        self._render(text, is_done)
        done = time.monotonic()
        self._not_before = done + REST * (done - now)

    def _catch_up(self) -> None:
        text, self._pending = self._pending, None
        if text is not None:
            self.set_markdown(text, is_done=False)

    def _render(self, text: str, is_done: bool) -> None:
        self._pending = None
        if self._stream is None and is_done and text == self._text:
            return
        if self._stream is None or not text.startswith(self._text):
            self._clear()
            self._stream = MarkdownStream()
        self._text = text
        for block in self._stream.feed(text, is_done):
            self._close(block)
        self._show_open(self._stream.open_blocks)
        if is_done:
            self._stream = None

    def _clear(self) -> None:
        for widget in self.widgets:
            self._drop(widget)
        self._open.clear()
        self._stream = None

    def _drop(self, widget: QWidget) -> None:
        self._column.removeWidget(widget)
        widget.hide()
        widget.deleteLater()

    def _close(self, block: Block) -> None:
        """Freeze a block: into the first open widget if it is of the same kind."""
        if self._open and _update(self._open[0], block, is_open=False):
            self._open.pop(0)
            return
        for widget in self._open:
            self._drop(widget)
        self._open.clear()
        self._column.addWidget(widget_of(block))

    def _show_open(self, blocks: Sequence[Block]) -> None:
        """Bring the open widgets in line with the open blocks; the last one has the caret."""
        for place, block in enumerate(blocks):
            is_last = place == len(blocks) - 1
            if place < len(self._open) and _update(self._open[place], block, is_open=is_last):
                continue
            for widget in self._open[place:]:
                self._drop(widget)
            del self._open[place:]
            made = widget_of(block)
            _update(made, block, is_open=is_last)
            self._open.append(made)
            self._column.addWidget(made)
        for widget in self._open[len(blocks) :]:
            self._drop(widget)
        del self._open[len(blocks) :]


def _update(widget: QWidget, block: Block, is_open: bool) -> bool:
    """Show `block` in a widget that is of its kind. Returns False if it is not."""
    if isinstance(widget, Flow) and is_flow(block) and not isinstance(block, Quote):
        widget.set_blocks([block], is_open)
        return True
    if isinstance(widget, CodeBlock) and isinstance(block, Code):
        widget.set_block(block)
        return True
    if type(widget) is Prose and isinstance(block, Table):
        widget.set_make(lambda: table_html(block))
        return True
    return False


def user_card(*parts: QWidget) -> Card:
    """Return the surface that a person's files and text stand on."""
    pad = (14, 11, 14, 8)  # a line has its free room below: so the words stand in the middle
    return Card(vbox(*parts, gap=GAP, pad=pad), radius=8)
