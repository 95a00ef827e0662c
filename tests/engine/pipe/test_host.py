"""A whole session over real pipes with a service double: fuzz, bad lines, ends."""

import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pipe.host import Host
from engine.pipe.stdio import Writer
from engine.protocol.errors import ErrorCode, ProtocolError
from engine.protocol.framing import MAX_LINE_BYTES
from engine.protocol.messages import (
    Cancel,
    Error,
    GetStatus,
    Heartbeat,
    Hello,
    Ready,
    TokenDelta,
    decode_event,
    encode,
)


class EchoService:
    """Writes commands down; ends at the end of commands."""

    def __init__(self, emit):
        self.emit = emit
        self.commands = []
        self.problem = None
        self._over = threading.Event()

    def handle(self, command):
        if isinstance(command, Cancel) and command.id == "explode":
            raise ValueError("boom")
        self.commands.append(command)
        if isinstance(command, Hello):
            self.emit(Ready())

    def end_of_commands(self):
        self._over.set()

    def fail(self, problem):
        self.problem = problem
        self._over.set()

    def run(self):
        assert self._over.wait(20)
        if self.problem is not None:
            raise self.problem


def converse(chunks, heartbeat_s=60.0):
    """Send chunks, return (service, events, what run raised)."""
    commands_out, commands_in = os.pipe()
    events_out, events_in = os.pipe()
    made = []

    def make(emit):
        made.append(EchoService(emit))
        return made[0]

    host = Host(make, heartbeat_s, commands_out, events_in)
    raised = []

    def run():
        try:
            host.run()
        except ProtocolError as problem:
            raised.append(problem)
        finally:
            os.close(events_in)

    thread = threading.Thread(target=run)
    thread.start()
    read = []
    reader = threading.Thread(target=lambda: read.append(_read_all(events_out)))
    reader.start()
    for chunk in chunks:
        while chunk:
            chunk = chunk[os.write(commands_in, chunk) :]
    os.close(commands_in)
    thread.join(20)
    reader.join(20)
    os.close(commands_out)
    os.close(events_out)
    return made[0], [decode_event(line) for line in read[0].splitlines()], raised


def _read_all(fd):
    out = b""
    while chunk := os.read(fd, 65536):
        out += chunk
    return out


COMMANDS = [Hello(), *(Cancel(id=f"é{n}") for n in range(4)), GetStatus(id="s")]


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=12), crlf=st.booleans())
def test_commands_under_any_cuts_arrive_in_order(cuts, crlf):
    """The pipe may split anywhere, even inside a character."""
    data = b"".join(encode(command) for command in COMMANDS)
    data = data.replace(b"\n", b"\r\n") if crlf else data
    places = sorted({min(cut, len(data)) for cut in cuts})
    chunks = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    service, events, raised = converse(chunks)
    assert service.commands == COMMANDS
    assert not raised
    assert [event for event in events if not isinstance(event, Heartbeat)] == [Ready()]


@pytest.mark.parametrize(
    "bad",
    [
        b"{half",
        b"[]",
        b'"text"',
        b"null",
        b'{"type":"no_such"}',
        b'{"type":"load"}',
        b'{"type":"generate","id":"x","messages":5}',
        b"\xff\xfe\x00",
        b'{"type":"hello","protocol_version":"one"}',
    ],
)
def test_bad_line_is_answered_and_the_session_goes_on(bad):
    """Bad JSON, unknown types and wrong fields cost nothing but an Error."""
    service, events, _ = converse([bad + b"\n", encode(Cancel(id="after"))])
    assert service.commands == [Cancel(id="after")]
    assert [event.code for event in events if isinstance(event, Error)] == [
        ErrorCode.INVALID_REQUEST
    ]


def test_giant_line_is_answered_once_and_skipped():
    """Over 8 MiB: dropped while it arrives, not kept."""
    giant = [b'{"type":"'] + [b"x" * 65536] * (MAX_LINE_BYTES // 65536 + 2) + [b"\n"]
    service, events, _ = converse([*giant, encode(Cancel(id="after"))])
    assert service.commands == [Cancel(id="after")]
    assert len([event for event in events if isinstance(event, Error)]) == 1


def test_last_line_without_line_end_counts():
    """A file typed by a person may lack it."""
    service, _, _ = converse([encode(Cancel(id="last")).rstrip()])
    assert service.commands == [Cancel(id="last")]


def test_unknown_fields_are_ignored():
    """A newer app of the same version may send more."""
    service, _, _ = converse([b'{"type":"cancel","id":"a","new":1}\n'])
    assert service.commands == [Cancel(id="a")]


def test_handler_that_breaks_is_answered_as_internal():
    """One command must not end the session."""
    service, events, _ = converse([encode(Cancel(id="explode")), encode(Cancel(id="after"))])
    assert service.commands == [Cancel(id="after")]
    assert ErrorCode.INTERNAL in [event.code for event in events if isinstance(event, Error)]


def test_hello_of_another_version_ends_the_session_with_one_sentence():
    """The only line that may end it."""
    _, events, raised = converse([encode(Hello(protocol_version=7))])
    assert len(raised) == 1
    errors = [event for event in events if isinstance(event, Error)]
    assert [error.code for error in errors] == [ErrorCode.PROTOCOL]
    assert "7" in errors[0].message
    assert "1" in errors[0].message


def test_writer_whose_reader_is_gone_calls_the_hard_exit():
    """Nobody listens: the engine must not go on computing."""
    out, into = os.pipe()
    os.close(out)
    broken = threading.Event()
    writer = Writer(into, broken.set)
    writer.start()
    writer.emit(Heartbeat(uptime_s=1))
    assert broken.wait(10)
    writer.close()
    os.close(into)


def test_writer_with_a_slow_reader_stalls_nobody_and_loses_no_text():
    """The pipe is full; tokens go on, and all of them arrive later."""
    out, into = os.pipe()
    writer = Writer(into)
    writer.start()
    piece = "0123456789" * 10
    for _ in range(5000):  # 500 KB into a pipe that holds 64 KiB: returns at once
        writer.emit(TokenDelta(id="a", text=piece))
    read = []
    reader = threading.Thread(target=lambda: read.append(_read_all(out)))
    reader.start()
    assert writer.close(20)
    os.close(into)
    reader.join(20)
    os.close(out)
    events = [decode_event(line) for line in read[0].splitlines()]
    assert "".join(event.text for event in events) == piece * 5000
    assert sum(event.num_tokens for event in events) == 5000
    assert len(events) < 5000  # they merged
