"""No reasoning, no tool calls: everything is text."""

from engine.text.dialects.base import Piece


class PlainSplitter:
    """Passes text through."""

    def push(self, text: str) -> list[Piece]:
        """Return the text as one piece."""
        return [Piece("text", text)] if text else []

    def close(self) -> list[Piece]:
        """Nothing is ever held."""
        return []


class Plain:
    """The dialect of models without marks."""

    name = "plain"
    marks: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()

    def splitter(self, prompt_tail: str) -> PlainSplitter:
        """Return a splitter that passes text through."""
        del prompt_tail
        return PlainSplitter()

    def reasoning_text(self, text: str) -> str:
        """Reasoning has no place in this dialect."""
        del text
        return ""


DIALECT = Plain()
