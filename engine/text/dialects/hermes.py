"""Qwen3 and Hermes: `<think>..</think>`, and JSON in `<tool_call>..</tool_call>`.

Marks may arrive in any pieces. A tool call that is cut off or is no JSON comes back as text, so
that nothing the model wrote is lost (case A-08).
"""

import json
from typing import Literal

from engine.text.dialects.base import Piece
from engine.text.stops import longest_tail_that_begins

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"

_State = Literal["text", "reasoning", "call"]
# What may end each state, anything else being content; and what each mark begins.
_ENDS: dict[_State, tuple[str, ...]] = {
    "text": (THINK, CALL),
    "reasoning": (END_THINK,),
    "call": (END_CALL,),
}
_BEGINS: dict[str, _State] = {
    THINK: "reasoning",
    END_THINK: "text",
    CALL: "call",
    END_CALL: "text",
}


class HermesSplitter:
    """State machine over raw text: text, reasoning or inside a call."""

    def __init__(self, *, starts_thinking: bool = False) -> None:
        self._state: _State = "reasoning" if starts_thinking else "text"
        self._held = ""
        self._trim = starts_thinking  # leading line breaks after a mark are layout, not content
        self._num_calls = 0

    def push(self, text: str) -> list[Piece]:
        """Add raw text; return the pieces that became certain."""
        self._held += text
        out: list[Piece] = []
        while True:
            at, mark = self._next_mark()
            if mark is None:
                break
            content, self._held = self._held[:at], self._held[at + len(mark) :]
            self._leave(content, mark, out)
        if self._state != "call":
            keep = longest_tail_that_begins(self._held, _ENDS[self._state])
            cut = len(self._held) - keep
            if self._state == "reasoning":  # line breaks before the end mark are layout
                cut = len(self._held[:cut].rstrip("\n"))
            self._emit(self._held[:cut], out)
            self._held = self._held[cut:]
        return out

    def close(self) -> list[Piece]:
        """Return what is held; an unfinished call comes back as text."""
        out: list[Piece] = []
        rest, self._held = self._held, ""
        if self._state == "call":
            self._state = "text"
            rest = CALL + rest
        self._emit(rest, out)
        return out

    def _next_mark(self) -> tuple[int, str | None]:
        found = [(self._held.find(mark), mark) for mark in _ENDS[self._state]]
        found = [(at, mark) for at, mark in found if at >= 0]
        return min(found) if found else (0, None)

    def _leave(self, content: str, mark: str, out: list[Piece]) -> None:
        if mark == END_CALL:
            out.append(self._call(content))
        else:
            self._emit(content.rstrip("\n") if mark == END_THINK else content, out)
        self._state = _BEGINS[mark]
        self._trim = True

    def _emit(self, content: str, out: list[Piece]) -> None:
        if self._trim:
            content = content.lstrip("\r\n")
        if content:
            self._trim = False
            out.append(Piece("reasoning" if self._state == "reasoning" else "text", content))

    def _call(self, body: str) -> Piece:
        try:
            call = json.loads(body)
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            return Piece("text", f"{CALL}{body}{END_CALL}")
        self._num_calls += 1
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        return Piece("tool_call", text, str(name), f"call_{self._num_calls}")


class Hermes:
    """The dialect of Qwen3, Hermes and the built-in model."""

    name = "hermes"
    marks = (THINK, END_THINK, CALL, END_CALL)
    anchors = ("<|im_end|>", END_THINK, CALL, END_CALL)

    def splitter(self, prompt_tail: str) -> HermesSplitter:
        """Return a splitter; a prompt that ends with an open think mark starts inside it."""
        return HermesSplitter(starts_thinking=prompt_tail.rstrip().endswith(THINK))

    def reasoning_text(self, text: str) -> str:
        """Return reasoning with its marks."""
        return f"{THINK}\n{text}\n{END_THINK}\n\n" if text else ""


DIALECT = Hermes()
