"""A dialect is chosen by what template and vocabulary know."""

import pytest

from engine.text.dialects.base import Piece
from engine.text.dialects.registry import DIALECTS, choose_dialect, get_dialect


@pytest.mark.parametrize("name", DIALECTS)
def test_registry_when_asked_then_every_line_knows_its_name(name: str) -> None:
    """Each line imports and is what it is called."""
    assert get_dialect(name).name == name


def test_choose_when_marks_are_known_then_hermes_else_plain() -> None:
    """From the template, or from the vocabulary; a folder's name says nothing."""
    assert choose_dialect("{{ '<tool_call>' }}", ()).name == "hermes"
    assert choose_dialect("", ("<|im_end|>", "<think>")).name == "hermes"
    plain = choose_dialect("{{ messages }}", ("<|im_end|>",))
    assert plain.name == "plain"
    splitter = plain.splitter("<think>")
    assert splitter.push("<think>a") == [Piece("text", "<think>a")]
    assert splitter.push("") == splitter.close() == []
    assert plain.reasoning_text("a") == ""
