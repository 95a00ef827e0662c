"""Qwen3 MoE (`Qwen3MoeForCausalLM`): the plain family that others are compared with.

Grouped-query attention with RMSNorm on each head of q and k, rotary embedding in halves, softmax
over all experts before top-k, no shared expert. Layers without experts (`mlp_only_layers`,
`decoder_sparse_step`) are ordinary gated MLPs. Names are those of published checkpoints.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from engine.forward import ForwardBatch
from engine.layers.attention import Attention, AttentionInputs, AttentionWeights
from engine.layers.embedding import Embedding, Head, pick_rows
from engine.layers.mlp import GatedMlp, MlpWeights
from engine.layers.moe import MoeLayer
from engine.layers.norm import RmsNorm
from engine.layers.rotary import Rotary
from engine.models.base import DecodeLayer, DecodeWeights, Parts, WeightMap
from engine.models.config import ConfigReader
from engine.models.spec import ModelSpec, RouterSpec
from engine.moe.router import Router
from kernels.weights import DenseWeight

# Keys that would change the maths, with the values that this file computes.
_ONLY: dict[str, tuple[object, ...]] = {
    "model_type": ("qwen3_moe",),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "use_sliding_window": (False,),
    "partial_rotary_factor": (1, 1.0),
    "dual_chunk_attention_config": (),
    "shared_expert_intermediate_size": (0,),
}

_EXPERT = re.compile(
    r"model\.layers\.(?P<layer>\d+)\.mlp\.experts\.(?P<expert>\d+)"
    r"\.(?P<part>gate_proj|up_proj|down_proj)\.weight(?P<scale>_scale_inv)?"
)
_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}

_EMBEDDING = "model.embed_tokens.weight"
_FINAL_NORM = "model.norm.weight"
_HEAD = "lm_head.weight"
_NORMS = ("input_layernorm", "post_attention_layernorm")
_ATTENTION = tuple(f"self_attn.{part}" for part in AttentionWeights._fields)
_ROUTER = "mlp.gate"
_DENSE_MLP = tuple(f"mlp.{part}" for part in _PARTS)


def read_config(config: dict[str, Any]) -> ModelSpec:
    """Return what the checkpoint is; defaults are those of transformers' `Qwen3MoeConfig`.

    Raises: UnsupportedCheckpoint naming the key and value that is missing or not understood.
    """
    read = ConfigReader(config)
    read.only(_ONLY)
    read.layer_types("full_attention")
    num_layers = read.size("num_hidden_layers")
    hidden = read.size("hidden_size")
    num_heads = read.size("num_attention_heads")
    num_kv_heads = read.size("num_key_value_heads")
    if num_heads % num_kv_heads:
        raise read.refuse("num_key_value_heads", num_kv_heads, f"it must divide {num_heads}")
    head_dim = read.size("head_dim", default=hidden // num_heads)
    if head_dim % 2:
        raise read.refuse("head_dim", head_dim, "an even number is needed")
    moe_layers = _moe_layers(read, num_layers)
    has_dense = len(moe_layers) < num_layers
    quant = read.quant()
    return ModelSpec(
        model_type="qwen3_moe",
        num_layers=num_layers,
        hidden=hidden,
        vocab_size=read.size("vocab_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        moe_intermediate=read.size("moe_intermediate_size"),
        moe_layers=moe_layers,
        dense_intermediate=read.size("intermediate_size", default=None if has_dense else 0),
        router=_router(read),
        rms_eps=read.positive("rms_norm_eps", 1e-6),
        rope_theta=read.rope_theta(10_000.0),
        max_context=read.size("max_position_embeddings", default=32_768),
        tie_embeddings=read.flag("tie_word_embeddings", default=False),
        eos_ids=read.ids("eos_token_id"),
        quant=quant.name,
        quant_group=quant.group,
    )


def _router(read: ConfigReader) -> RouterSpec:
    # transformers 5 writes num_local_experts, published checkpoints num_experts.
    num_experts = read.size("num_experts", "num_local_experts")
    top_k = read.size("num_experts_per_tok")
    if top_k > num_experts:
        raise read.refuse("num_experts_per_tok", top_k, f"there are {num_experts} experts")
    return RouterSpec(num_experts, top_k, normalise=read.flag("norm_topk_prob", default=False))


def _moe_layers(read: ConfigReader, num_layers: int) -> tuple[int, ...]:
    dense = read.layer_ids("mlp_only_layers", num_layers)
    step = read.size("decoder_sparse_step", default=1)
    layers = tuple(i for i in range(num_layers) if i not in dense and (i + 1) % step == 0)
    if not layers:
        raise read.refuse("mlp_only_layers", sorted(dense), "no layer with experts is left")
    return layers


def weight_map(spec: ModelSpec) -> WeightMap:
    """Return the names of a published checkpoint."""
    names = [_EMBEDDING, _FINAL_NORM] if spec.tie_embeddings else [_EMBEDDING, _FINAL_NORM, _HEAD]
    for layer_id in range(spec.num_layers):
        mlp = (_ROUTER,) if layer_id in spec.moe_layers else _DENSE_MLP
        names += [_in_layer(layer_id, part) for part in (*_NORMS, *_ATTENTION, *mlp)]
    return WeightMap(dense=tuple(names), expert=_EXPERT, parts=_PARTS)


def build(spec: ModelSpec, weight: Callable[[str], DenseWeight], parts: Parts) -> "Qwen3Moe":
    """Build the model; `weight(name)` gives a dense weight as it is stored.

    Raises: ValueError if the KV pool is of another dtype than the activations.
    """
    if parts.kv.dtype != parts.dtype:
        raise ValueError(f"KV of {parts.kv.dtype} beside activations of {parts.dtype}")
    place = (parts.device, parts.dtype)
    layers = [_build_layer(spec, layer_id, weight, parts) for layer_id in range(spec.num_layers)]
    table = weight(_EMBEDDING)
    head = Head(table if spec.tie_embeddings else weight(_HEAD), *place)
    final_norm = RmsNorm(weight(_FINAL_NORM), spec.rms_eps, *place)
    return Qwen3Moe(spec, parts, Embedding(table, *place), layers, final_norm, head)


def decode_weights(spec: ModelSpec, weight: Callable[[str], DenseWeight]) -> DecodeWeights | None:
    """Return the weights by role; None if a layer has no experts."""
    if len(spec.moe_layers) != spec.num_layers:
        return None
    names = (
        "input_layernorm",
        *(f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm")),
        "self_attn.o_proj",
        "post_attention_layernorm",
        _ROUTER,
    )
    layers = tuple(
        DecodeLayer(*(weight(_in_layer(layer_id, name)) for name in names))
        for layer_id in range(spec.num_layers)
    )
    embedding = weight(_EMBEDDING)
    head = embedding if spec.tie_embeddings else weight(_HEAD)
    return DecodeWeights(embedding, layers, weight(_FINAL_NORM), head)


class DecoderLayer(NamedTuple):
    """One layer: each half norms the residual stream, computes, and adds to it."""

    attention: Attention
    mlp: MoeLayer | GatedMlp


class Qwen3Moe:
    """The model, ready to run; see `engine.models.base.Model`."""

    def __init__(
        self,
        spec: ModelSpec,
        parts: Parts,
        embedding: Embedding,
        layers: Sequence[DecoderLayer],
        final_norm: RmsNorm,
        head: Head,
    ) -> None:
        self.spec = spec
        self._kv, self._dtype, self._experts = parts.kv, parts.dtype, parts.experts
        self._rotary = Rotary(spec.head_dim, spec.rope_theta, parts.device)
        self._embedding, self._layers = embedding, tuple(layers)
        self._final_norm, self._head = final_norm, head

    def forward(self, batch: ForwardBatch) -> Tensor:
        """Run one forward. Shapes: T tokens -> logits [len(batch.logit_rows), V] float32."""
        if batch.phase == "prefill":
            top_k = self.spec.router.top_k
            self._experts.start(batch.num_tokens, top_k, batch.ends_prompt)
        inputs = AttentionInputs.of(batch, self._kv, self._rotary, self._dtype)
        hidden = self._embedding(batch.token_ids)
        for layer in self._layers:
            layer.attention(hidden, inputs)
            layer.mlp(hidden, batch.phase)
        return self._head(self._final_norm(pick_rows(hidden, batch.logit_rows)))


def _build_layer(
    spec: ModelSpec, layer_id: int, weight: Callable[[str], DenseWeight], parts: Parts
) -> DecoderLayer:
    def part(name: str) -> DenseWeight:
        return weight(_in_layer(layer_id, name))

    eps, place = spec.rms_eps, (parts.device, parts.dtype)
    input_norm, post_norm = (part(name) for name in _NORMS)
    attention = AttentionWeights(*(part(name) for name in _ATTENTION))
    mlp: MoeLayer | GatedMlp
    if layer_id in spec.moe_layers:
        router = Router(spec.router, post_norm, eps, part(_ROUTER), *place)
        mlp = MoeLayer(spec.moe_layers.index(layer_id), router, parts.experts)
    else:
        weights = MlpWeights(*(part(name) for name in _DENSE_MLP))
        mlp = GatedMlp(RmsNorm(post_norm, eps, *place), weights, *place)
    attends = Attention(
        layer_id, input_norm, attention, eps, parts.kv, parts.device, parts.attention_tile
    )
    return DecoderLayer(attends, mlp)


def _in_layer(layer_id: int, part: str) -> str:
    return f"model.layers.{layer_id}.{part}.weight"
