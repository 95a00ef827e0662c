"""Quant formats by name: a plain dict of lazily imported classes, one line per format."""

from importlib import import_module

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.base import QuantFormat

FORMATS: dict[str, str] = {
    "fp8_block": "engine.quant.fp8_block:Fp8Block",
    "bf16": "engine.quant.bf16:Bf16",
}
PLAIN = "bf16"
"""The format of a checkpoint whose config names no quantisation."""

METHODS: dict[str, str] = {"fp8": "fp8_block"}
"""`quant_method` in a config's `quantization_config` -> format."""


def get_format(name: str, group: int = 0) -> QuantFormat:
    """Return the format `name` for scale blocks of side `group` (0 = the format's own side).

    Raises: UnsupportedCheckpoint naming the known formats.
    """
    place = FORMATS.get(name)
    if place is None:
        known = ", ".join(sorted(FORMATS))
        raise UnsupportedCheckpoint(
            f"The weight format '{name}' is not known.", f"Known formats: {known}."
        )
    module, _, attribute = place.partition(":")
    made: QuantFormat = getattr(import_module(module), attribute)(group)
    return made
