"""Reasoning and tool calls in the raw output, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.dialects.base import Piece
from engine.text.dialects.hermes import Hermes, HermesSplitter
from tests.engine.text.pieces import joined

RAW = (
    "<think>\nLet me\nsee.\n</think>\n\nSure: 客单价 <b>\n<tool_call>\n"
    '{"name": "add", "arguments": {"a": 1}}\n</tool_call>\nDone'
)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_hermes_splitter_under_any_cut_gives_the_same_pieces(sizes: list[int]) -> None:
    """Marks may be split anywhere."""
    splitter, pieces, at = HermesSplitter(), [], 0
    for size in sizes:
        pieces += splitter.push(RAW[at : at + size])
        at += size
    pieces += splitter.push(RAW[at:]) + splitter.close()
    assert all(piece.text for piece in pieces)
    assert joined(pieces) == [
        Piece("reasoning", "Let me\nsee."),
        Piece("text", "Sure: 客单价 <b>\n"),
        Piece("tool_call", '{"a": 1}', "add", "call_1"),
        Piece("text", "Done"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        '<tool_call>{"name": "add", "argu',
        "<tool_call>not json</tool_call>",
        "<tool_call>[1]</tool_call>",
    ],
)
def test_hermes_splitter_when_a_call_is_broken_then_it_is_text(raw: str) -> None:
    """A cut-off tool call is shown, not lost and not an error (case A-08)."""
    splitter = HermesSplitter()
    assert joined(splitter.push(raw) + splitter.close()) == [Piece("text", raw)]


def test_hermes_when_reasoning_is_put_back_then_it_is_read_as_reasoning() -> None:
    """A reply that is continued starts from the raw text that it was."""
    splitter = Hermes().splitter("<|im_start|>assistant\n")
    pieces = splitter.push(Hermes().reasoning_text("Hm.") + "Yes.") + splitter.close()
    assert joined(pieces) == [Piece("reasoning", "Hm."), Piece("text", "Yes.")]
    assert Hermes().reasoning_text("") == ""
