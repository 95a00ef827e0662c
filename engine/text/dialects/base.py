"""What a dialect must offer: the marks it uses, and a splitter of raw output.

Rendering is the checkpoint's own template (`engine.text.template`); a dialect only says how output
is to be read. Dialects are chosen from template and vocabulary, never from a folder's name.
"""

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply. Text and reasoning are never empty; a tool call comes whole."""

    kind: Literal["text", "reasoning", "tool_call"]
    text: str  # of a tool call: its arguments as JSON text
    name: str = ""
    call_id: str = ""


class Splitter(Protocol):
    """Sorts the raw text of one reply into pieces."""

    def push(self, text: str) -> list[Piece]:
        """Add raw text; return the pieces that became certain."""
        ...

    def close(self) -> list[Piece]:
        """Return what is left at the end of the reply."""
        ...


class Dialect(Protocol):
    """How a family writes reasoning and tool calls."""

    name: str
    marks: tuple[str, ...]  # control tokens that the splitter must see
    anchors: tuple[str, ...]  # control tokens at which a conversation is likely to be resumed

    def splitter(self, prompt_tail: str) -> Splitter:
        """Return a splitter for one reply; `prompt_tail` is the end of the rendered prompt."""
        ...

    def reasoning_text(self, text: str) -> str:
        """Return reasoning as it stands in the raw output, to continue a reply."""
        ...
