"""Bytes in any chunks to whole lines, and messages to lines. Pure; knows no streams.

Called by `engine.pipe.stdio` and by `app.services.engine_process`.
"""

from engine.protocol.errors import InvalidRequest

MAX_LINE_BYTES = 8 * 1024 * 1024


class LineFramer:
    """Cut a byte stream into lines, whatever the chunks.

    A line longer than `max_line_bytes` is dropped to its end and reported once as
    `InvalidRequest`; what follows is read normally.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | InvalidRequest]:
        """Add bytes; return the lines that became whole, without line ends, blank ones left out."""
        out: list[bytes | InvalidRequest] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            line = self._take(piece, out)
            self._parts, self._size, self._skipping = [], 0, False
            if line is not None and line.strip():
                out.append(line.rstrip(b"\r"))
        self._hold(rest, out)
        return out

    def close(self) -> bytes:
        """Return the unfinished last line at the end of the stream (b"" if none)."""
        line = b"" if self._skipping else b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return line.strip()

    def _take(self, piece: bytes, out: list[bytes | InvalidRequest]) -> bytes | None:
        self._hold(piece, out)
        return None if self._skipping else b"".join(self._parts)

    def _hold(self, piece: bytes, out: list[bytes | InvalidRequest]) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self._max:
            self._skipping = True
            self._parts = []
            out.append(
                InvalidRequest(
                    f"A line is longer than {self._max} bytes.",
                    "Pass files and images by path instead of inside a message.",
                )
            )
            return
        self._parts.append(piece)
