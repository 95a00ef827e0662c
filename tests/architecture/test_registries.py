"""Every line of a registry leads somewhere; every message has a reader."""

import importlib
import inspect
import typing
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


def words_of(*folders: str) -> str:
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("command", typing.get_args(messages.Command), ids=lambda c: c.__name__)
def test_command_is_served_and_sent(command: type) -> None:
    """Each command has a handler in the engine and a sender in the app."""
    served = words_of("engine/service.py", "engine/pipe") + words_of("engine")
    assert f"{command.__name__}(" in served or f"{command.__name__} " in served
    assert command.__name__ in words_of("app/services")


@pytest.mark.parametrize("event", typing.get_args(messages.Event), ids=lambda e: e.__name__)
def test_event_is_emitted_and_consumed(event: type) -> None:
    """Each event is made somewhere in the engine and read somewhere in the app."""
    assert f"{event.__name__}(" in words_of("engine")
    assert event.__name__ in words_of("app/services")


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


def test_naming_one_quant_format_touches_few_files() -> None:
    """A format is one file, one registry line, one encoding; not a word spread everywhere."""
    hits: list[Path] = [
        path
        for folder in ("engine", "kernels")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "fp8_block" in path.read_text(encoding="utf-8")
    ]
    names = [path.relative_to(REPOSITORY).as_posix() for path in hits]
    assert len(names) <= 6, names


def test_every_public_module_says_what_it_is() -> None:
    """The first line of each module tells a reader what it is for."""
    silent = [
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("app", "engine", "kernels")
        for path in (REPOSITORY / folder).rglob("*.py")
        if not inspect.cleandoc(path.read_text(encoding="utf-8")).startswith(('"""', 'r"""'))
    ]
    assert silent == []
