"""Ids to whole characters, one at a time."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer


@given(text=st.text(max_size=60))
def test_detokenizer_by_pieces_equals_whole(tokenizer: Tokenizer, text: str) -> None:
    """No emoji or CJK character is ever broken (cases A-11, C-12)."""
    ids = tokenizer.encode(tokenizer.guard(text))
    reader = Detokenizer(tokenizer)
    pieces = [reader.push(token_id) for token_id in ids] + [reader.close()]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_detokenizer_when_reply_ends_inside_a_character_then_drops_it(
    tokenizer: Tokenizer,
) -> None:
    """Half an emoji at the end is not shown as a replacement mark."""
    ids = tokenizer.encode("ok 👨")
    reader = Detokenizer(tokenizer)
    text = "".join(reader.push(token_id) for token_id in ids[:-1]) + reader.close()
    assert text == "ok "


def test_detokenizer_when_a_token_is_a_mark_then_only_shown_ones_are_text(
    tokenizer: Tokenizer,
) -> None:
    """Control tokens say nothing to a person; a dialect sees the ones it asks for."""
    end = tokenizer.specials["<|im_end|>"]
    assert Detokenizer(tokenizer).push(end) == ""
    assert Detokenizer(tokenizer, ["<|im_end|>", "<none>"]).push(end) == "<|im_end|>"


def test_detokenizer_of_a_sentencepiece_vocabulary_equals_whole(tmp_path: Path) -> None:
    """Tokenizers that are not byte-level are read through a window."""
    tokenizer = byte_fallback_tokenizer(tmp_path)
    assert not tokenizer.is_byte_level
    for text in ("a b é", "aa 客 b", "b 👨‍👩 a", "a 客 b " * 9):
        ids = tokenizer.encode(text)
        reader = Detokenizer(tokenizer)
        assert "".join([*(reader.push(i) for i in ids), reader.close()]) == tokenizer.decode(ids)


def byte_fallback_tokenizer(folder: Path) -> Tokenizer:
    """Return a tiny tokenizer in the manner of SentencePiece: marks for spaces, bytes as tokens."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "a": 257, "b": 258}
    facts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [],
            "byte_fallback": True,
            "fuse_unk": False,
            "ignore_merges": False,
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(facts), encoding="utf-8")
    return Tokenizer(folder)
