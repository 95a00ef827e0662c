"""Every public fault report of the list has a test, or a sentence that says why it has none.

One file a kind, one table an id: `symptom` in our words, `tests` as "file::name", and `why_not` for
what no test of ours can show. The ids are those of the list and are never renumbered.
"""

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

HERE = Path(__file__).parent
IDS = {
    "engine": "E-02 E-04 E-05 E-06 E-08 E-09 E-11 E-13 E-14 E-16 E-17 E-18",
    "convert": "C-01 C-02 C-03 C-05 C-07 C-08 C-10 C-12",
    "download": "D-02 D-04 D-05 D-07 D-08 D-10 D-11 D-13 D-15 D-16 D-17 D-19 D-20 D-21",
    "gui": "G-01 G-03 G-04 G-05 G-07 G-09 G-10 G-12 G-13 G-15 G-16 G-17 G-18 G-20 G-22",
    "packaging": "P-01 P-03 P-05 P-07 P-08 P-10 P-11 P-13 P-14",
    "api": "A-01 A-02 A-04 A-05 A-08 A-11 A-13 A-14 A-15 A-17 A-18 A-19 A-20",
    "memory": "M-01 M-02 M-05 M-06 M-07 M-09 M-10 M-12 M-14 M-16 M-17 M-18 M-20 M-22 M-23 M-24",
}
WISHES = [f"W-{number:02}" for number in range(1, 16)]
CASES = [(kind, case_id) for kind, ids in IDS.items() for case_id in ids.split()]


@functools.cache
def entries(kind: str) -> dict[str, dict[str, Any]]:
    """The tables of a kind."""
    return tomllib.loads((HERE / f"{kind}.toml").read_text(encoding="utf-8"))


@functools.cache
def docstrings(file: str) -> dict[str, str]:
    """Names and docstrings of a file's tests, read and not imported; none if there is no file."""
    path = REPOSITORY / file
    if not path.is_file():
        return {}
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("kind", IDS)
def test_list_of_a_kind_then_it_has_exactly_its_ids(kind: str) -> None:
    """Nothing is left out, and nothing is invented."""
    assert list(entries(kind)) == IDS[kind].split()


@pytest.mark.parametrize(("kind", "case_id"), CASES)
def test_case_then_its_tests_exist_and_cite_it_or_a_sentence_says_why_not(
    kind: str, case_id: str
) -> None:
    """A renamed or removed test shows here, as does one that is about something else."""
    entry = entries(kind)[case_id]
    assert set(entry) <= {"symptom", "tests", "why_not"}
    assert re.fullmatch(r"[A-Z].*\.", entry.get("symptom", "None."))
    assert entry.get("tests") or entry.get("why_not")
    assert re.fullmatch(r"[A-Z].*\.", entry.get("why_not", "None."))
    for test in entry.get("tests", ()):
        file, _, name = test.partition("::")
        assert name in docstrings(file), test
        whole_file = (REPOSITORY / file).read_text(encoding="utf-8")
        assert case_id in docstrings(file)[name] or case_id in whole_file, test


@pytest.mark.parametrize("wish_id", WISHES)
def test_wish_then_it_is_answered_somewhere_or_a_sentence_says_why_not(wish_id: str) -> None:
    """What people ask for most: the files and tests that answer it."""
    entry = entries("wishes")[wish_id]
    assert list(entries("wishes")) == WISHES
    assert set(entry) <= {"wish", "where", "why_not"}
    assert re.fullmatch(r"[A-Z].*\.", entry["wish"])
    assert entry.get("where") or entry.get("why_not")
    for place in entry.get("where", ()):
        file, _, name = place.partition("::")
        assert (REPOSITORY / file).is_file(), place
        assert not name or name in docstrings(file), place
