"""Dialects by name, and the choice by facts of template and vocabulary."""

import importlib
from collections.abc import Collection

from engine.text.dialects.base import Dialect

DIALECTS: dict[str, str] = {
    "hermes": "engine.text.dialects.hermes",
    "plain": "engine.text.dialects.plain",
}


def get_dialect(name: str) -> Dialect:
    """Return the dialect called `name`. Raises KeyError if there is none."""
    dialect: Dialect = importlib.import_module(DIALECTS[name]).DIALECT
    return dialect


def choose_dialect(template: str, specials: Collection[str]) -> Dialect:
    """Return the dialect whose marks the template or the vocabulary knows."""
    known = (*specials, template)
    if any("<tool_call>" in word or "<think>" in word for word in known):
        return get_dialect("hermes")
    return get_dialect("plain")
