"""Text to ids: control tokens are marks in a template, and words in a person's text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.errors import CorruptCheckpoint, FileAccess
from engine.text.tokenizer import Tokenizer


def read_back(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(tokenizer.token_bytes(token_id) for token_id in ids).decode()


def test_encode_when_a_mark_is_meant_then_it_is_one_token(tokenizer: Tokenizer) -> None:
    """A rendered template's marks are control tokens."""
    end = tokenizer.specials["<|im_end|>"]
    assert tokenizer.encode("<|im_end|>") == [end]
    assert tokenizer.decode([end]) == ""
    assert tokenizer.added_text(end) == "<|im_end|>"
    assert tokenizer.added_text(tokenizer.vocab_size - 1) is None
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""


@given(
    parts=st.lists(st.sampled_from(["a", "<|im_end|>", "\ue000", "\ue001", "0", "\ue0001\ue001"]))
)
def test_encode_when_text_is_guarded_then_it_holds_no_mark_and_comes_back(
    tokenizer: Tokenizer, parts: list[str]
) -> None:
    """Quoted control tokens are plain text, and so are the characters that guard them."""
    text = "".join(parts)
    ids = tokenizer.encode(tokenizer.guard(text))
    assert not set(ids) & set(tokenizer.specials.values())
    assert read_back(tokenizer, ids) == text


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, FileAccess),
        (b"{", CorruptCheckpoint),
        (b"[]", CorruptCheckpoint),
        (b"\xff", CorruptCheckpoint),
    ],
)
def test_tokenizer_when_its_file_is_bad_then_names_it(
    tmp_path: Path, content: bytes | None, error: type[Exception]
) -> None:
    """Missing, no JSON, another thing, no text."""
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(error, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)
