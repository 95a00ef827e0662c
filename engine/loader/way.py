"""How a model will run on a device: by captured steps, or layer by layer; and what that costs.

Decided from index and config, before a weight is read. Called by `engine.loader.open`.
"""

from dataclasses import dataclass

import torch

from engine.checkpoint.dtypes import DTYPES
from engine.checkpoint.ftw import FtwReader
from engine.loader.captured import (
    KV_DTYPE,
    CapturedPlan,
    Encodings,
    max_captured_slots,
    plan_captured,
    scratch_bytes,
)
from engine.loader.plan import FLOAT_BYTES
from engine.models.base import DecodeWeights, ModelFamily
from engine.models.spec import ModelSpec
from kernels.weights import DenseWeight

PLAIN_DTYPE = torch.float32  # of activations and KV where layers run one by one


@dataclass(frozen=True, slots=True)
class Way:
    """One of the two ways.

    Attributes:
        captured: the plan of captured steps; None = layer by layer.
        reason: why steps are not captured, as half a sentence; "" if they are.
        dtype: of activations and KV.
        dense_bytes: dense weights on the device.
        scratch_bytes: buffers of captured steps.
    """

    captured: CapturedPlan | None
    reason: str
    dtype: torch.dtype
    dense_bytes: int
    scratch_bytes: int = 0


def choose_way(
    reader: FtwReader, family: ModelFamily, spec: ModelSpec, obstacle: str, max_rows: int
) -> Way:
    """Choose; `obstacle` says what the device lacks for captured steps, "" if nothing."""
    try:
        if obstacle:
            raise ValueError(obstacle)
        weights = family.decode_weights(spec, lambda name: _described(reader, name))
        if weights is None:
            raise ValueError("this model has layers without experts")
        slots = max_captured_slots(reader.num_records)
        plan = plan_captured(spec, reader.layout, _encodings(weights), slots, max_rows)
    except ValueError as problem:
        return Way(None, str(problem), PLAIN_DTYPE, FLOAT_BYTES * reader.dense_values)
    return Way(plan, "", KV_DTYPE, reader.dense_bytes, scratch_bytes(plan))


def _described(reader: FtwReader, name: str) -> DenseWeight:
    """Return a weight without its values: sizes and encoding only."""
    extent = next(one for one in reader.index.tensors if one.name == name)
    values = torch.empty(extent.shape, dtype=DTYPES.get(extent.dtype), device="meta")
    if not extent.scale:
        return DenseWeight(values)
    group = reader.layout.group
    blocks = [-(-side // group) for side in extent.shape]
    return DenseWeight(values, torch.empty(blocks, device="meta"), group)


def _encodings(weights: DecodeWeights) -> Encodings:
    """Return how each role is stored. Raises ValueError where layers differ."""
    projections = {
        one.encoding for layer in weights.layers for one in (layer.q, layer.k, layer.v, layer.o)
    }
    routers = {layer.router.encoding for layer in weights.layers}
    groups = {
        one.group
        for layer in weights.layers
        for one in (layer.q, layer.k, layer.v, layer.o, weights.head)
        if one.group
    }
    if len(projections) > 1 or len(routers) > 1 or len(groups) > 1:
        raise ValueError("its layers are stored in different ways")
    return Encodings(
        projections=projections.pop(),
        head=weights.head.encoding,
        embedding=weights.embedding.encoding,
        router=routers.pop(),
        group=groups.pop() if groups else 0,
    )
