"""Which tensors of a source go where, settled by names and shapes before a byte is written.

Knows the family only by its `NameMap`. What has no role becomes auxiliary; what must be there and
is not, is named. Called by `engine.checkpoint.convert`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.checkpoint.dtypes import dtype_name
from engine.checkpoint.safetensors import StoredTensor
from engine.protocol.errors import CorruptCheckpoint, UnsupportedCheckpoint
from engine.quant.base import QuantFormat
from kernels.layouts import RecordLayout

PARTS = ("gate", "up", "down")
SCALE_DTYPES = {"F32", "BF16", "F16"}
_COMPLETE = "Download the model again, or choose a variant that is complete."


class NameMap(Protocol):
    """A family's checkpoint names; `engine.models.base.WeightMap` is one."""

    @property
    def dense(self) -> tuple[str, ...]:
        """Every dense weight that must be there."""
        ...

    @property
    def expert(self) -> re.Pattern[str]:
        """Pattern of expert tensors with groups layer and expert."""
        ...

    @property
    def scale_suffix(self) -> str:
        """What a weight's scale is called: name + suffix."""
        ...

    def expert_name(self, name: str) -> tuple[int, int, str, bool] | None:
        """Return (layer, expert, part, is scale), or None."""
        ...


@dataclass(frozen=True, slots=True)
class Inventory:
    """Roles by tensor name.

    Attributes:
        experts: per record, in record order: part or part + "_scale" -> tensor.
        dense: (weight, its scale or "").
        aux: tensors without a role.
    """

    experts: tuple[dict[str, str], ...]
    dense: tuple[tuple[str, str], ...]
    aux: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the model must have."""

    quant: QuantFormat
    layout: RecordLayout
    layer_ids: tuple[int, ...]
    num_experts: int
    names: NameMap


def take_inventory(tensors: Mapping[str, StoredTensor], model: str, wanted: Wanted) -> Inventory:
    """Give every tensor a role and check that nothing is missing and every shape is right.

    Raises: CorruptCheckpoint naming tensor and model if one is missing or has the wrong shape;
        UnsupportedCheckpoint if one is stored in a dtype that its role does not allow.
    """
    experts = _expert_tensors(tensors, wanted)
    dense, missing = _dense_tensors(tensors, wanted)
    missing += _missing_experts(experts, wanted)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise CorruptCheckpoint(f"{model} lacks the tensor {missing[0]}{more}.", _COMPLETE)
    for record in experts:
        _check_expert(record, tensors, wanted)
    for weight, scale in dense:
        _check_dense(weight, scale, tensors, wanted)
    used = {name for record in experts for name in record.values()}
    used |= {name for pair in dense for name in pair}
    return Inventory(experts, dense, tuple(name for name in tensors if name not in used))


def _expert_tensors(
    tensors: Mapping[str, StoredTensor], wanted: Wanted
) -> tuple[dict[str, str], ...]:
    """Sort expert tensors into records; experts beyond the model's own have no role."""
    row_of = {layer: row for row, layer in enumerate(wanted.layer_ids)}
    records: tuple[dict[str, str], ...] = tuple(
        {} for _ in range(len(wanted.layer_ids) * wanted.num_experts)
    )
    for name in tensors:
        place = wanted.names.expert_name(name)
        if place is None:
            continue
        layer_id, expert_id, part, is_scale = place
        if is_scale and not tensors[name].num_bytes:
            continue
        if layer_id in row_of and expert_id < wanted.num_experts:
            record = records[row_of[layer_id] * wanted.num_experts + expert_id]
            record[part + "_scale" if is_scale else part] = name
    return records


def _roles(wanted: Wanted) -> tuple[str, ...]:
    if wanted.quant.scale_shape(1, 1) is None:
        return PARTS
    return (*PARTS, *(f"{part}_scale" for part in PARTS))


def _missing_experts(records: tuple[dict[str, str], ...], wanted: Wanted) -> list[str]:
    """Name what is missing as the checkpoint would name it, after the pattern of a sibling."""
    roles = _roles(wanted)
    siblings = {role: next((r[role] for r in records if role in r), None) for role in roles}
    missing: list[str] = []
    for row, record in enumerate(records):
        layer, expert_id = divmod(row, wanted.num_experts)
        for role in roles:
            if role not in record:
                missing.append(_name_like(siblings[role], wanted, layer, expert_id, role))
    return missing


def _name_like(sibling: str | None, wanted: Wanted, layer: int, expert_id: int, role: str) -> str:
    layer_id = wanted.layer_ids[layer]
    found = wanted.names.expert.fullmatch(sibling) if sibling else None
    if sibling is None or found is None:
        return f"'{role.replace('_', ' ')}' of expert {expert_id} in layer {layer_id}"
    new = {found.span("layer"): str(layer_id), found.span("expert"): str(expert_id)}
    for (start, end), text in sorted(new.items(), reverse=True):
        sibling = sibling[:start] + text + sibling[end:]
    return sibling


def _dense_tensors(
    tensors: Mapping[str, StoredTensor], wanted: Wanted
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Pair dense weights with their scales; also returns the names that are missing."""
    quantized = dtype_name(wanted.quant.stored_dtype)
    has_scales = wanted.quant.scale_shape(1, 1) is not None
    pairs: list[tuple[str, str]] = []
    missing: list[str] = []
    for name in wanted.names.dense:
        scale = name + wanted.names.scale_suffix
        if name not in tensors:
            missing.append(name)
            continue
        if scale not in tensors or not tensors[scale].num_bytes:  # empty ones occur (M-05)
            if has_scales and tensors[name].dtype == quantized:
                missing.append(scale)
            scale = ""
        pairs.append((name, scale))
    return tuple(pairs), missing


def _check_expert(
    record: dict[str, str], tensors: Mapping[str, StoredTensor], wanted: Wanted
) -> None:
    layout = wanted.layout
    weights = {dtype_name(wanted.quant.stored_dtype)}
    for role, name in record.items():
        part = role.removesuffix("_scale")
        shape = (layout.intermediate, layout.hidden)
        if part == "down":
            shape = (layout.hidden, layout.intermediate)
        if role == part:
            _check(tensors[name], weights, shape)
            continue
        scale_shape = wanted.quant.scale_shape(*shape)
        if scale_shape is None:
            raise UnsupportedCheckpoint(
                f"{name} is a scale, but weights of format '{wanted.quant.name}' have none.",
                "Check quantization_config in config.json.",
            )
        _check(tensors[name], SCALE_DTYPES, scale_shape)


def _check_dense(
    weight: str, scale: str, tensors: Mapping[str, StoredTensor], wanted: Wanted
) -> None:
    plain = {"BF16", "F16", "F32"}
    stored = tensors[weight]
    allowed = plain | {dtype_name(wanted.quant.stored_dtype)}
    _check(stored, allowed, stored.shape)
    if not scale:
        return
    shape = None
    if len(stored.shape) == 2:
        shape = wanted.quant.scale_shape(stored.shape[0], stored.shape[1])
    if shape is None:
        raise UnsupportedCheckpoint(f"{weight} has scales that format '{wanted.quant.name}' lacks.")
    _check(tensors[scale], SCALE_DTYPES, shape)


def _check(tensor: StoredTensor, allowed: set[str], shape: tuple[int, ...]) -> None:
    if tensor.dtype not in allowed:
        raise UnsupportedCheckpoint(
            f"{tensor.name} is stored as {tensor.dtype}; {' or '.join(sorted(allowed))} is needed.",
            "Choose another variant of the model.",
        )
    if tensor.shape != shape:
        raise CorruptCheckpoint(
            f"{tensor.name} has shape {list(tensor.shape)} instead of {list(shape)}.", _COMPLETE
        )
