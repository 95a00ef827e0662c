"""Every line of a registry leads somewhere; every message has a reader."""

import ast
import functools
import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.jobs.registry import JOBS
from engine.models.registry import FAMILIES
from engine.protocol import messages
from engine.quant.registry import FORMATS
from engine.text.dialects.registry import DIALECTS
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    "line",
    sorted({*JOBS.values(), *FAMILIES.values(), *FORMATS.values(), *DIALECTS.values()}),
)
def test_registry_line_leads_somewhere(line: str) -> None:
    """A registry names modules, or `module:name`, that exist."""
    module, _, name = line.partition(":")
    assert hasattr(importlib.import_module(module), name or "__doc__")


def nodes_of(folder: str) -> Iterator[ast.AST]:
    for path in (REPOSITORY / folder).rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def word(node: ast.AST) -> str:
    """The name that an expression ends in: X of `X` and of `messages.X`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def used(folder: str) -> frozenset[str]:
    """Names that code below a folder uses; an import alone is no use."""
    return frozenset(map(word, nodes_of(folder)))


@functools.cache
def called(folder: str) -> frozenset[str]:
    """Names that code below a folder calls: for messages, where they are made."""
    return frozenset(word(node.func) for node in nodes_of(folder) if isinstance(node, ast.Call))


@pytest.mark.parametrize("command", typing.get_args(messages.Command), ids=lambda c: c.__name__)
def test_command_is_served_and_sent(command: type) -> None:
    """Each command has a handler in the service and is made somewhere in the app."""
    assert command.__name__ in used("engine/service")
    assert command.__name__ in called("app/services")


@pytest.mark.parametrize("event", typing.get_args(messages.Event), ids=lambda e: e.__name__)
def test_event_is_emitted_and_consumed(event: type) -> None:
    """Each event is made somewhere in the engine and read somewhere in the app."""
    assert event.__name__ in called("engine")
    assert event.__name__ in used("app/services")


def test_tags_are_unique_and_stable() -> None:
    """A recording of today is readable tomorrow: tags are part of the wire, never renamed."""
    tags = {
        cls.__struct_config__.tag
        for union in (messages.Command, messages.Event)
        for cls in typing.get_args(union)
    }
    assert tags >= {"hello", "load", "generate", "cancel", "resize", "ready", "delta", "finished"}
    assert len(tags) == len(typing.get_args(messages.Command)) + len(
        typing.get_args(messages.Event)
    )


def strings_in(path: Path) -> set[str]:
    """String constants of a module's code; docstrings say things, they do nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {c.value for c in constants if isinstance(c.value, str) and c not in prose}


@pytest.mark.parametrize("name", FORMATS)
def test_naming_one_quant_format_touches_few_files(name: str) -> None:
    """A format is one file, its registry line and its encoding; not a word spread everywhere."""
    hits = [
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("engine", "kernels")
        for path in (REPOSITORY / folder).rglob("*.py")
        if any(name in text for text in strings_in(path))
    ]
    assert sorted(hits) == sorted(
        [f"engine/quant/{name}.py", "engine/quant/registry.py", "kernels/layouts.py"]
    )


def test_every_public_module_says_what_it_is() -> None:
    """The first line of each module tells a reader what it is for."""
    silent = [
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("app", "engine", "kernels")
        for path in (REPOSITORY / folder).rglob("*.py")
        if not inspect.cleandoc(path.read_text(encoding="utf-8")).startswith(('"""', 'r"""'))
    ]
    assert silent == []
