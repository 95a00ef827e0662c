"""Bytes in any chunks to whole lines."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.errors import InvalidRequest
from engine.protocol.framing import LineFramer

MAX = 12
LINES = st.lists(st.binary(max_size=2 * MAX).map(lambda line: line.replace(b"\n", b"\r")))


def expected(line: bytes) -> list[bytes | None]:
    """What one line must give: nothing, itself, or None for a report that it is too long."""
    if len(line) > MAX:
        return [None]
    return [line.rstrip(b"\r")] if line.strip() else []


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(bounds)]


@given(LINES, st.binary(max_size=MAX), st.lists(st.integers(0, 10_000), max_size=30))
def test_framer_under_any_cut_gives_the_same_lines(
    lines: list[bytes], rest: bytes, places: list[int]
) -> None:
    """Chunks mean nothing; a giant line is reported once, and what follows is read."""
    rest = rest.replace(b"\n", b" ")
    framer = LineFramer(MAX)
    stream = b"".join(line + b"\n" for line in lines) + rest
    out = [got for chunk in cut(stream, places) for got in framer.feed(chunk)]
    reported = [None if isinstance(got, InvalidRequest) else got for got in out]
    assert reported == [got for line in lines for got in expected(line)]
    assert framer.close() == rest.strip()
    assert framer.close() == b""


def test_framer_when_a_giant_line_never_ends_then_it_holds_no_more_than_the_limit() -> None:
    """A peer without line ends cannot fill the memory, and is told once."""
    framer = LineFramer(MAX)
    reports = [got for _ in range(100) for got in framer.feed(b"x" * MAX)]
    assert len(reports) == 1
    assert isinstance(reports[0], InvalidRequest)
    assert reports[0].message == f"A line is longer than {MAX} bytes."
    assert sum(map(len, framer._parts)) == 0
    assert framer.close() == b""


def test_framer_when_a_line_is_exactly_as_long_as_allowed_then_it_passes() -> None:
    """The limit itself is allowed, in one chunk or byte by byte."""
    line = b"x" * MAX
    assert LineFramer(MAX).feed(line + b"\n") == [line]
    framer = LineFramer(MAX)
    assert [got for byte in line + b"\n" for got in framer.feed(bytes([byte]))] == [line]
    assert isinstance(LineFramer(MAX).feed(line + b"x\n")[0], InvalidRequest)
