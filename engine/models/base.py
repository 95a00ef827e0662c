"""What a model family must offer. Knows no dtype, no packing, no residency.

Called by `engine.loader` and by `engine.jobs.convert` (names only).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.models.spec import ModelSpec

if TYPE_CHECKING:
    import torch

    from engine.cache.kv import KvPool
    from engine.forward import ForwardBatch
    from engine.layers.moe import Experts
    from kernels.weights import DenseWeight


class ExpertName(NamedTuple):
    """Where a checkpoint tensor belongs inside the expert bank."""

    layer_id: int
    expert_id: int
    part: str  # "gate", "up", "down"
    is_scale: bool


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Checkpoint names of one family.

    Attributes:
        dense: every dense weight that must be there, by checkpoint name (without scales).
        expert: pattern with groups layer, expert, part and (optional) scale.
        parts: checkpoint's word -> "gate" | "up" | "down".
        scale_suffix: what a dense weight's scale tensor is called: name + suffix.
    """

    dense: tuple[str, ...]
    expert: re.Pattern[str]
    parts: dict[str, str]
    scale_suffix: str = "_scale_inv"

    def expert_name(self, name: str) -> ExpertName | None:
        """Return the place of an expert tensor, or None if `name` is none."""
        found = self.expert.fullmatch(name)
        if found is None:
            return None
        return ExpertName(
            int(found["layer"]),
            int(found["expert"]),
            self.parts[found["part"]],
            bool(found["scale"]),
        )


class DecodeLayer(NamedTuple):
    """One layer's weights outside its experts, by role; see `DecodeWeights`."""

    input_norm: "DenseWeight"
    q: "DenseWeight"
    k: "DenseWeight"
    v: "DenseWeight"
    q_norm: "DenseWeight"
    k_norm: "DenseWeight"
    o: "DenseWeight"
    post_norm: "DenseWeight"
    router: "DenseWeight"


class DecodeWeights(NamedTuple):
    """The weights of a plain decoder whose layers all have experts, for captured steps.

    Attention with a norm on each head of q and k, rotary in halves, softmax top-k routing.
    """

    embedding: "DenseWeight"
    layers: tuple[DecodeLayer, ...]
    final_norm: "DenseWeight"
    head: "DenseWeight"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a model needs beside its weights, built by the loader."""

    device: "torch.device"
    dtype: "torch.dtype"  # of activations
    kv: "KvPool"
    experts: "Experts"
    attention_tile: int = 0  # tokens of a prompt chunk that attention takes at once; 0 = all


class Model(Protocol):
    """A model that can do one forward."""

    spec: ModelSpec

    def forward(self, batch: "ForwardBatch") -> "torch.Tensor":
        """Run one forward.

        Shapes: batch of T tokens -> logits [len(batch.logit_rows), V] float32.
        """
        ...


class ModelFamily(Protocol):
    """One file under `engine/models`: config in, names out, model built."""

    def read_config(self, config: dict[str, Any]) -> ModelSpec:
        """Raises UnsupportedCheckpoint naming key and value."""
        ...

    def weight_map(self, spec: ModelSpec) -> WeightMap:
        """Return the checkpoint names of this family."""
        ...

    def decode_weights(
        self, spec: ModelSpec, weight: Callable[[str], "DenseWeight"]
    ) -> DecodeWeights | None:
        """Return the weights by role; None if this model is none that steps are captured of."""
        ...

    def build(self, spec: ModelSpec, weight: Callable[[str], "DenseWeight"], parts: Parts) -> Model:
        """Build the model; `weight(name)` gives a dense weight as it is stored."""
        ...
