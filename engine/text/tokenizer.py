"""Text to token ids and back to bytes, from a checkpoint's `tokenizer.json`.

Knows nothing of chats or models. Used by `engine.text.chat` and `engine.text.detokenizer`.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer as RustTokenizer

from engine.text.files import damaged, read_text

# Private-use characters around the number of a special token that stands in a person's text.
_OPEN, _CLOSE = "\ue000", "\ue001"


class Tokenizer:
    """A checkpoint's tokenizer.

    Attributes:
        specials: control tokens by their text, e.g. {"<|im_end|>": 2}.
        vocab_size: ids are 0 .. vocab_size - 1.
    """

    def __init__(self, folder: Path) -> None:
        """Read `folder/tokenizer.json`.

        Raises: FileAccess if it is missing, CorruptCheckpoint if it cannot be read.
        """
        path = folder / "tokenizer.json"
        text = read_text(path)
        try:
            self._rust = RustTokenizer.from_str(text)
        except Exception as problem:  # the Rust library raises nothing narrower
            raise damaged(path, problem) from problem
        facts = json.loads(text)
        added = facts.get("added_tokens") or []
        self.specials: dict[str, int] = {t["content"]: t["id"] for t in added if t.get("special")}
        self._added: dict[int, str] = {t["id"]: t["content"] for t in added}
        self.vocab_size: int = self._rust.get_vocab_size(with_added_tokens=True)
        self.is_byte_level = _has_byte_level_decoder(facts.get("decoder"))
        self._byte_of = _byte_level_table() if self.is_byte_level else {}
        self._by_length = sorted(self.specials, key=len, reverse=True)

    def encode(self, text: str) -> list[int]:
        """Return ids of text in which control tokens are meant as such (a rendered template)."""
        ids: list[int] = []
        for piece, is_literal in _split_guarded(text, self._by_length):
            self._rust.encode_special_tokens = is_literal
            ids.extend(self._rust.encode(piece, add_special_tokens=False).ids)
        self._rust.encode_special_tokens = False
        return ids

    def guard(self, text: str) -> str:
        """Mark control tokens inside a person's text, so that `encode` takes them as plain text.

        Without this, a message that quotes `<|im_end|>` would end its own turn.
        """
        text = text.replace(_OPEN, f"{_OPEN}{_CLOSE}")
        for number, special in enumerate(self._by_length):
            if special in text:
                text = text.replace(special, f"{_OPEN}{number}{_CLOSE}")
        return text

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, control tokens left out."""
        return str(self._rust.decode(ids, skip_special_tokens=True))

    def added_text(self, token_id: int) -> str | None:
        """Return the text of an added token, None for an ordinary one."""
        return self._added.get(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one ordinary token. Only where `is_byte_level`; b"" if unknown."""
        piece = self._rust.id_to_token(token_id)
        if piece is None:
            return b""
        return bytes(self._byte_of[c] for c in piece if c in self._byte_of)


def _split_guarded(text: str, specials: list[str]) -> list[tuple[str, bool]]:
    """Cut at guard marks: (piece, is it a control token meant literally)."""
    out: list[tuple[str, bool]] = []
    head, *rest = text.split(_OPEN)
    if head:
        out.append((head, False))
    for part in rest:
        number, mark, tail = part.partition(_CLOSE)
        if mark and not number:  # a person's own private-use character
            out.append((_OPEN + tail, False))
        elif mark and number.isdecimal() and int(number) < len(specials):
            out.append((specials[int(number)], True))
            if tail:
                out.append((tail, False))
        else:  # unguarded text: a template's own
            out.append((_OPEN + part, False))
    return out


def _has_byte_level_decoder(decoder: dict[str, object] | None) -> bool:
    if not decoder:
        return False
    if decoder.get("type") == "ByteLevel":
        return True
    parts = decoder.get("decoders")
    return isinstance(parts, list) and any(_has_byte_level_decoder(part) for part in parts)


def _byte_level_table() -> dict[str, int]:
    """Return the byte of each character in a byte-level vocabulary.

    Printable Latin-1 stands for itself; the other bytes were given, in order, the code points from
    256 on. Source: the byte-level BPE convention of GPT-2.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table
