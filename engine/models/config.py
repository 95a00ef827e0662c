"""Reading a checkpoint's config loudly: every value is asked for, checked, or refused by name.

Families share this; it knows no family. A wrong guess here would be a model that runs and talks
nonsense, so nothing that changes the maths is skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.registry import METHODS, PLAIN

FP8_BLOCK_STEP = 16  # a block border never cuts a unit of the record layout


@dataclass(frozen=True, slots=True)
class Quant:
    """How a checkpoint's weights are stored: a name of `engine.quant.registry`, and its block."""

    name: str
    group: int = 0


class ConfigReader:
    """Typed questions to one config dict; every answer that is not understood raises.

    Raises (all methods): UnsupportedCheckpoint naming key and value.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
        return self._config.get(key) is not None

    def refuse(self, key: str, value: object, need: str) -> UnsupportedCheckpoint:
        """Return the error that names key, value and what would be understood."""
        return UnsupportedCheckpoint(f"{key} is {value!r} in config.json; {need}.")

    def size(self, *keys: str, default: int | None = None) -> int:
        """Return a whole number >= 1, found under the first of `keys` that is there."""
        return self._number(keys, 1, default)

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number >= 0."""
        return self._number((key,), 0, default)

    def positive(self, key: str, default: float) -> float:
        """Return a number > 0."""
        value = self._config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.refuse(key, value, "a number above 0 is needed")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, value, "true or false is needed")
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        """Return token ids given as null, one number, or a list."""
        value = self._config.get(key)
        if value is None:
            return ()
        many = list(value) if _is_list(value) else [value]
        if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in many):
            raise self.refuse(key, value, "token ids are needed")
        return tuple(dict.fromkeys(many))

    def layer_ids(self, key: str, num_layers: int) -> frozenset[int]:
        """Return layer ids given as null or a list, each below `num_layers`."""
        value = self._config.get(key)
        if value is None:
            return frozenset()
        if not _is_list(value) or any(
            isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < num_layers
            for item in value
        ):
            raise self.refuse(key, value, f"layer ids below {num_layers} are needed")
        return frozenset(value)

    def only(self, allowed: Mapping[str, tuple[object, ...]]) -> None:
        """Raise unless each key is absent, null, or has one of its allowed values.

        For keys that change the maths in ways that a family does not compute.
        """
        for key, values in allowed.items():
            value = self._config.get(key)
            if value is None:
                continue
            if not any(type(value) is type(known) and value == known for known in values):
                words = " or ".join(repr(known) for known in values) or "null"
                raise self.refuse(key, value, f"only {words} is supported")

    def layer_types(self, allowed: str) -> None:
        """Raise unless every entry of `layer_types`, if given, is `allowed`."""
        value = self._config.get("layer_types")
        if value is not None and (not _is_list(value) or any(item != allowed for item in value)):
            raise self.refuse("layer_types", value, f"only {allowed!r} is supported")

    def rope_theta(self, default: float) -> float:
        """Return the base of a plain rotary embedding.

        Understands both spellings: `rope_theta` with `rope_scaling` null or "default", and the
        `rope_parameters` of transformers 5. Every kind of scaling is refused, and so are two
        spellings that contradict each other.
        """
        found: dict[str, float] = {}
        if self.has("rope_theta"):
            found["rope_theta"] = self.positive("rope_theta", default)
        for key in ("rope_scaling", "rope_parameters"):
            value = self._config.get(key)
            if value is None:
                continue
            self._check_plain_rope(key, value)
            if value.get("rope_theta") is not None:
                found[key] = ConfigReader(value).positive("rope_theta", default)
        if len(set(found.values())) > 1:
            raise self.refuse("rope_theta", found, "the values must agree")
        return next(iter(found.values()), default)

    def _check_plain_rope(self, key: str, value: object) -> None:
        plain = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
        if not isinstance(value, Mapping) or set(value) - plain:
            raise self.refuse(key, value, "only the default rotary embedding is supported")
        kinds = {value.get("rope_type"), value.get("type")} - {None}
        if kinds - {"default"} or value.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise self.refuse(key, value, "only the default rotary embedding is supported")

    def quant(self) -> Quant:
        """Return how the weights are stored: bfloat16, or e4m3 in square blocks with scales."""
        stored = ("bfloat16",)
        self.only({"torch_dtype": stored, "dtype": stored, "compression_config": ()})
        value = self._config.get("quantization_config")
        if value is None:
            return Quant(PLAIN)
        known = tuple(METHODS)
        if not isinstance(value, Mapping) or value.get("quant_method") not in known:
            method = value.get("quant_method") if isinstance(value, Mapping) else value
            need = f"only {' or '.join(map(repr, known))} is supported"
            raise self.refuse("quantization_config.quant_method", method, need)
        inner = ConfigReader(value)
        inner.only({"fmt": ("e4m3",), "activation_scheme": ("dynamic",), "scale_fmt": ("float",)})
        return Quant(
            METHODS[value["quant_method"]], self._block_side(value.get("weight_block_size"))
        )

    def _block_side(self, block: object) -> int:
        if isinstance(block, list | tuple) and len(block) == 2 and block[0] == block[1]:
            side = block[0]
            if type(side) is int and side > 0 and side % FP8_BLOCK_STEP == 0:
                return side
        need = f"a square block with a multiple of {FP8_BLOCK_STEP} as its side is needed"
        raise self.refuse("quantization_config.weight_block_size", block, need)

    def _number(self, keys: Sequence[str], least: int, default: int | None) -> int:
        for key in keys:
            value = self._config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise self.refuse(key, value, f"a whole number from {least} is needed")
            return value
        if default is None:
            raise UnsupportedCheckpoint(f"config.json does not say {' or '.join(keys)}.")
        return default


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)
