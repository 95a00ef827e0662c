"""The table of features: every row has tests that exist, or says why there is none."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

TABLE = tomllib.loads(Path(__file__).with_name("features.toml").read_text("utf-8"))


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions of a file; nothing is imported."""
    tree = ast.parse((REPOSITORY / file).read_text("utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def faults(row: dict[str, object]) -> list[str]:
    """What is wrong with a row."""
    tests, why_not = row.get("tests", []), row.get("why_not", "")
    if bool(tests) == bool(why_not):
        return ["either tests or a reason"]
    found = [f"unknown key {key}" for key in row.keys() - {"tests", "why_not", "lacks"}]
    for test in tests:
        file, _, name = test.partition("::")
        if not (REPOSITORY / file).is_file() or name not in functions(file):
            found.append(f"no such test: {test}")
    return found


@pytest.mark.parametrize("name", TABLE)
def test_row_then_its_tests_exist_or_the_reason_stands_there(name: str) -> None:
    """A test that was renamed or removed leaves no gap unseen."""
    assert faults(TABLE[name]) == []


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"tests": [], "why_not": ""},
        {"tests": ["tests/app/test_features.py::faults"], "why_not": "x"},
        {"tests": ["tests/app/test_features.py::nothing"]},
        {"tests": ["tests/app/no_such_file.py::test_x"]},
        {"why_not": "x", "test": []},
    ],
)
def test_row_when_it_says_nothing_or_names_what_is_not_there_then_found(row: dict) -> None:
    """The check itself can fail."""
    assert faults(row)
