"""What a checkpoint is: sizes and rules, read once from its config. No tensors."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How experts are chosen and weighted.

    `score` softmax: over all E logits, then top-k; `normalise`: the k weights are divided by their
    sum; `scale` multiplies them at the end.
    """

    num_experts: int
    top_k: int
    score: Literal["softmax"] = "softmax"
    normalise: bool = True
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Facts of a checkpoint. Built by a family's `read_config`.

    Raises (in read_config): UnsupportedCheckpoint naming the key that has an unknown value.
    """

    model_type: str
    num_layers: int
    hidden: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    moe_intermediate: int
    moe_layers: tuple[int, ...]  # layer ids that have experts
    dense_intermediate: int  # of layers without experts
    router: RouterSpec
    rms_eps: float
    rope_theta: float
    max_context: int
    tie_embeddings: bool
    eos_ids: tuple[int, ...]
    quant: str  # name in engine.quant.registry: "bf16", "fp8_block"
    quant_group: int = 0
