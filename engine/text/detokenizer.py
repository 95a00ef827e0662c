"""Token ids to whole characters, one id at a time. Emoji and CJK are never broken.

Knows no chat format. Used by `engine.text.chat`, one per reply.
"""

import codecs
from collections.abc import Collection

from engine.text.tokenizer import Tokenizer

_WINDOW = 8  # ids that can influence the next one's text where tokens are no bytes


class Detokenizer:
    """Incremental decoding: the pieces joined equal the whole text decoded at once.

    Control tokens give no text, except those in `shown`, which a dialect needs to see.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Collection[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = {
            tokenizer.specials[text]: text for text in shown if text in tokenizer.specials
        }
        self._hidden = set(tokenizer.specials.values()) - set(self._shown)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._window: list[int] = []
        self._emitted = ""

    def push(self, token_id: int) -> str:
        """Add one id; return the characters that became whole, maybe none."""
        if token_id in self._hidden:
            return ""
        if token_id in self._shown:
            return self._flush_window() + self._shown[token_id]
        if self._tokenizer.is_byte_level:
            added = self._tokenizer.added_text(token_id)
            data = self._tokenizer.token_bytes(token_id) if added is None else added.encode()
            return self._utf8.decode(data)
        return self._push_window(token_id)

    def close(self) -> str:
        """Return what is still held; half a character at the end is dropped, not shown broken."""
        self._utf8.reset()
        return self._flush_window()

    def _push_window(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if text.endswith("\ufffd"):
            return ""
        new = text[len(self._emitted) :]
        self._emitted = text
        if len(self._window) > 2 * _WINDOW:
            self._window = self._window[-_WINDOW:]
            self._emitted = self._tokenizer.decode(self._window)
        return new

    def _flush_window(self) -> str:
        text = self._tokenizer.decode(self._window).rstrip("\ufffd") if self._window else ""
        new = text[len(self._emitted) :]
        self._window, self._emitted = [], ""
        return new
