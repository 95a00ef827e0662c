"""Sampling options are checked before anything is computed."""

import ast
import math

import msgspec
import pytest

from engine.protocol.data import Sampling
from engine.protocol.errors import InvalidRequest
from tests.conftest import REPOSITORY

RANGES = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 5.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "max_tokens": (1, 1_000_000),
}


def sampling(**changes: object) -> Sampling:
    return msgspec.structs.replace(Sampling(), **changes)


@pytest.mark.parametrize("field", RANGES)
def test_check_when_a_field_leaves_its_range_then_field_value_and_range_are_named(
    field: str,
) -> None:
    """Both ends belong to the range; one step beyond does not, and neither does NaN."""
    low, high = RANGES[field]
    for value in (low, high):
        sampling(**{field: value}).check()
    step = 1 if isinstance(low, int) else 1e-9
    for value in (low - step, high + step, math.nan, math.inf):
        with pytest.raises(InvalidRequest) as caught:
            sampling(**{field: value}).check()
        assert caught.value.message == f"{field} is {value}; it must lie between {low} and {high}."


def test_check_when_all_is_default_or_unbounded_then_nothing_is_said() -> None:
    """Every numeric field but the seed has a range, so none is forgotten when one is added."""
    Sampling().check()
    sampling(seed=-(2**60), stop=("\n", "END"), ignore_eos=True).check()
    numbers = {f.name for f in msgspec.structs.fields(Sampling) if f.type in (int, float)}
    assert numbers == set(RANGES)


def test_check_when_a_stop_string_is_empty_then_refused() -> None:
    """It would stop every reply before its first letter."""
    with pytest.raises(InvalidRequest, match="stop string is empty"):
        sampling(stop=("END", "")).check()


@pytest.mark.parametrize("field", Sampling.__struct_fields__)
def test_option_when_it_is_in_the_protocol_then_somebody_reads_it(field: str) -> None:
    """Case A-14: nothing that can be asked for is taken and forgotten."""
    steps = ("service", "scheduler", "runner")
    files = [file for step in steps for file in (REPOSITORY / "engine" / step).glob("*.py")]
    read = {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    assert field in read
