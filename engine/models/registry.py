"""Which file knows which `model_type`: one dict literal, one line per family.

Modules are named, not imported, so that a start costs only the family it needs; the frozen build
lists the same names as hidden imports. Called by `engine.loader` and `engine.jobs.convert`.
"""

from importlib import import_module
from typing import cast

from engine.models.base import ModelFamily
from engine.protocol.errors import UnsupportedCheckpoint

FAMILIES: dict[str, str] = {
    "qwen3_moe": "engine.models.qwen3_moe",
}
STATE_IN_PAGES = frozenset({"qwen3_moe"})
"""Families whose pages hold all that a sequence leaves behind, so that a prompt may begin with the
pages of another. One with recurrent state is not among them."""


def get_family(model_type: str) -> ModelFamily:
    """Return the family of a config's `model_type`.

    Raises: UnsupportedCheckpoint listing the supported ones.
    """
    module = FAMILIES.get(model_type)
    if module is None:
        supported = ", ".join(sorted(FAMILIES))
        raise UnsupportedCheckpoint(
            f"model_type is {model_type!r}, which this version does not know.",
            f"Supported: {supported}.",
        )
    return cast("ModelFamily", import_module(module))
