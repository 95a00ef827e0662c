"""Every message survives the wire; what is no message is refused in a sentence."""

import json
import typing
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol import messages as m
from engine.protocol.errors import (
    BudgetError,
    Cancelled,
    CorruptCheckpoint,
    DeviceError,
    DiskFull,
    EngineError,
    ErrorCode,
    ExitCode,
    FileAccess,
    GatedModel,
    InternalError,
    InvalidRequest,
    NetworkError,
    NotOnHub,
    ProtocolError,
    TokenNeeded,
    UnsupportedCheckpoint,
)

info = msgspec.inspect
COMMANDS: tuple[type[m.Command], ...] = typing.get_args(m.Command)
EVENTS: tuple[type[m.Event], ...] = typing.get_args(m.Event)
ERRORS = (
    InvalidRequest,
    UnsupportedCheckpoint,
    CorruptCheckpoint,
    BudgetError,
    DiskFull,
    FileAccess,
    Cancelled,
    NetworkError,
    TokenNeeded,
    GatedModel,
    NotOnHub,
    DeviceError,
    ProtocolError,
    InternalError,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**53), 2**53)
PLAIN = st.none() | st.booleans() | INTS | st.text(max_size=9)
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4
)


def values(kind: info.Type) -> st.SearchStrategy[object]:
    """Return any value of a field's type."""
    match kind:
        case info.StructType():
            fields = {field.name: values(field.type) for field in kind.fields}
            return st.builds(kind.cls, **fields)
        case info.UnionType():
            return st.one_of(*map(values, kind.types))
        case info.VarTupleType():
            return st.lists(values(kind.item_type), max_size=3).map(tuple)
        case info.DictType():
            return st.dictionaries(st.text(max_size=9), values(kind.value_type), max_size=3)
        case info.EnumType():
            return st.sampled_from(list(kind.cls))
        case info.LiteralType():
            return st.sampled_from(kind.values)
    simple: dict[type[info.Type], st.SearchStrategy[object]] = {
        info.NoneType: st.none(),
        info.BoolType: st.booleans(),
        info.IntType: INTS,
        info.FloatType: FLOATS,
        info.StrType: st.text(max_size=9),
        info.AnyType: ANYTHING,
    }
    return simple[type(kind)]


@pytest.mark.parametrize(
    ("message", "decode"),
    [(c, m.decode_command) for c in COMMANDS] + [(e, m.decode_event) for e in EVENTS],
    ids=lambda value: value.__name__,
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_message_when_sent_then_arrives_the_same(
    message: type, decode: Callable[[bytes], object], data: st.DataObject
) -> None:
    """One line, and the same struct at the other end, also with fields from a newer peer."""
    sent = data.draw(values(info.type_info(message)))
    line = m.encode(sent)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == sent
    newer = json.loads(line) | {"a_later_field": [1, {"x": None}]}
    assert decode(json.dumps(newer).encode()) == sent


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"no_such","id":"1"}', "no_such"),
        (b'{"id":"1"}', "missing required field `type`"),
        (b'{"type":"unload"}', "missing required field `id`"),
        (b'{"type":"unload","id":3}', "Expected `str`, got `int`"),
        (b'{"type":"ready"}', "ready"),
        (b"[1]", "Expected `object`"),
        (b"hello", "malformed"),
        (b"", "truncated"),
        (b'{"type":"unload","id":"\xff"}', "UTF-8"),
    ],
)
def test_command_when_it_is_none_then_refused_with_the_reason(line: bytes, reason: str) -> None:
    """Unknown type, missing or wrong field, an event, no object, no JSON, no text."""
    with pytest.raises(InvalidRequest, match=reason) as caught:
        m.decode_command(line)
    assert caught.value.message.startswith("Not a command: ")
    assert caught.value.message.endswith(".")


def test_event_when_it_is_a_command_then_refused() -> None:
    """The two directions do not mix."""
    with pytest.raises(InvalidRequest, match="Not an event"):
        m.decode_event(m.encode(m.Shutdown()))


@pytest.mark.parametrize("error", ERRORS)
def test_error_when_it_becomes_an_event_then_keeps_code_sentence_and_hint(
    error: type[EngineError],
) -> None:
    """Each kind has a code of its own; the command's id wins over the exception's."""
    problem = error("needs 9.1 GiB, 7.6 GiB free", "Close other programs.", request_id="r")
    event = m.error_event(problem)
    assert (event.code, event.message) == (error.code, str(problem))
    assert (event.hint, event.id) == ("Close other programs.", "r")
    assert m.error_event(problem, "c").id == "c"


def test_errors_when_listed_then_every_code_has_one() -> None:
    """The set is closed: no code without an exception, none twice; 0 is no failure."""
    assert sorted(error.code for error in ERRORS) == sorted(ErrorCode)
    assert sorted(ExitCode) == [0, 1, 2, 3, 4, 5]
