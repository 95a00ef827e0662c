"""Stop strings in a stream: text up to the first stop string, nothing of it or after it."""


class StopFilter:
    """Let text through, holding back only what could still become a stop string.

    Attributes:
        stopped: a stop string was seen; everything later is swallowed.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Add text; return what is certainly before any stop string."""
        if self.stopped:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            out, self._held = self._held[: min(found)], ""
            return out
        keep = longest_tail_that_begins(self._held, self._stops)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def close(self) -> str:
        """Return what was held back: the reply ended before it became a stop string."""
        out, self._held = self._held, ""
        return out


def longest_tail_that_begins(text: str, words: tuple[str, ...]) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of a word."""
    longest = 0
    for word in words:
        for size in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:size]):
                longest = size
                break
    return longest
