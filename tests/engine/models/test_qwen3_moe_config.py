"""Reading a qwen3_moe config: what is understood, and that everything else is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.models.base import ExpertName
from engine.models.registry import FAMILIES, get_family
from engine.models.spec import ModelSpec, RouterSpec
from engine.protocol.errors import UnsupportedCheckpoint

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": 1000,
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "intermediate_size": 64,
}


def read(**changes: Any) -> ModelSpec:
    return get_family("qwen3_moe").read_config({**CONFIG, **changes})


def test_get_family_when_unknown_then_the_supported_are_listed() -> None:
    """A person learns what would work."""
    with pytest.raises(UnsupportedCheckpoint, match="'llama'") as caught:
        get_family("llama")
    assert all(name in caught.value.hint for name in FAMILIES)


def test_get_family_when_known_then_every_line_imports() -> None:
    """A registry line that does not import would only show when someone loads that model."""
    for name in FAMILIES:
        family = get_family(name)
        assert callable(family.read_config)
        assert callable(family.weight_map)
        assert callable(family.build)


def test_read_config_when_plain_then_defaults_are_those_of_transformers() -> None:
    """norm_topk_prob defaults to False, though published checkpoints set it."""
    spec = read()
    assert spec.router == RouterSpec(7, 3, "softmax", normalise=False)
    assert (spec.head_dim, spec.rope_theta, spec.rms_eps) == (16, 10_000.0, 1e-6)
    assert (spec.max_context, spec.tie_embeddings, spec.eos_ids) == (32_768, False, ())
    assert (spec.quant, spec.quant_group) == ("bf16", 0)
    assert spec.moe_layers == (0, 1, 2, 3)


def test_read_config_when_built_in_then_fp8(builtin_model: Path) -> None:
    """The built-in model's own config."""
    config = json.loads((builtin_model / "config.json").read_text("utf-8"))
    spec = get_family("qwen3_moe").read_config(config)
    assert (spec.quant, spec.quant_group) == ("fp8_block", 128)
    assert spec.router == RouterSpec(24, 3, "softmax", normalise=True)
    assert (spec.tie_embeddings, spec.eos_ids) == (True, (2,))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mlp_only_layers": [0, 2]}, (1, 3)),
        ({"decoder_sparse_step": 2}, (1, 3)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, (1,)),
        ({"mlp_only_layers": None}, (0, 1, 2, 3)),
    ],
)
def test_read_config_when_some_layers_are_dense_then_expert_layers_are_named(
    changes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    """Both keys together decide, as in transformers."""
    assert read(**changes).moe_layers == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 5e6, "rope_scaling": None},
        {"rope_theta": 5_000_000, "rope_scaling": {"rope_type": "default"}},
        {"rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}},
        {"rope_theta": 5e6, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}},
    ],
)
def test_read_config_when_rope_is_spelled_either_way_then_the_same(changes: dict[str, Any]) -> None:
    """transformers 5 moved the base into rope_parameters."""
    assert read(**changes).rope_theta == 5e6


def test_read_config_when_written_by_transformers_5_then_experts_are_counted() -> None:
    """transformers 5 writes num_local_experts."""
    config = {**CONFIG, "num_local_experts": 7}
    del config["num_experts"]
    assert get_family("qwen3_moe").read_config(config).router.num_experts == 7


@pytest.mark.parametrize(("given", "expected"), [(None, ()), (5, (5,)), ([5, 6, 5], (5, 6))])
def test_read_config_when_eos_is_any_form_then_a_tuple(given: object, expected: object) -> None:
    """Null, a number or a list."""
    assert read(eos_token_id=given).eos_ids == expected


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "qwen3_next"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("use_sliding_window", True),
        ("layer_types", ["full_attention", "sliding_attention"] * 2),
        ("partial_rotary_factor", 0.5),
        ("dual_chunk_attention_config", {"chunk_size": 262144}),
        ("shared_expert_intermediate_size", 48),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_scaling", {"type": "linear", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "default", "factor": 2.0}),
        ("rope_scaling", "yarn"),
        ("rope_parameters", {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.25}),
        ("rope_parameters", {"full_attention": {"rope_theta": 1e4}}),
        ("rope_theta", -1.0),
        ("rope_theta", "10000"),
        ("torch_dtype", "float16"),
        ("dtype", "float32"),
        ("compression_config", {"format": "pack"}),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("quantization_config", {"quant_method": ["fp8"]}),
        ("quantization_config", {"quant_method": "fp8"}),
        ("quantization_config", {"quant_method": "fp8", "weight_block_size": [128, 64]}),
        ("quantization_config", {"quant_method": "fp8", "weight_block_size": [8, 8]}),
        ("quantization_config", {**FP8, "fmt": "e5m2"}),
        ("quantization_config", {**FP8, "activation_scheme": "static"}),
        ("quantization_config", {**FP8, "scale_fmt": "ue8m0"}),
        ("norm_topk_prob", 1),
        ("tie_word_embeddings", "yes"),
        ("num_experts_per_tok", 8),
        ("num_experts_per_tok", 0),
        ("num_experts", True),
        ("num_key_value_heads", 4),
        ("head_dim", 15),
        ("hidden_size", "96"),
        ("hidden_size", 96.0),
        ("rms_norm_eps", 0.0),
        ("mlp_only_layers", [4]),
        ("mlp_only_layers", [0, 1, 2, 3]),
        ("mlp_only_layers", 2),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [1, -1]),
    ],
)
def test_read_config_when_a_value_changes_the_maths_then_refused_by_name(
    key: str, value: object
) -> None:
    """A guess would be a model that runs and talks nonsense."""
    with pytest.raises(UnsupportedCheckpoint) as caught:
        read(**{key: value})
    inner = ("fmt", "activation_scheme", "scale_fmt")
    assert key in caught.value.message or any(word in caught.value.message for word in inner)


def test_read_config_when_rope_spellings_disagree_then_refused() -> None:
    """Two answers to one question are none."""
    with pytest.raises(UnsupportedCheckpoint, match="must agree"):
        read(rope_theta=1e6, rope_parameters={"rope_theta": 1e4, "rope_type": "default"})


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_experts", "num_experts_per_tok"])
def test_read_config_when_a_size_is_missing_then_it_is_named(key: str) -> None:
    """Sizes have no defaults."""
    with pytest.raises(UnsupportedCheckpoint, match=key):
        read(**{key: None})


def test_weight_map_when_layers_differ_then_each_has_its_names() -> None:
    """A dense layer has an MLP, an expert layer a router."""
    family, spec = get_family("qwen3_moe"), read(mlp_only_layers=[1])
    names = family.weight_map(spec).dense
    assert "lm_head.weight" in names
    assert "model.layers.0.mlp.gate.weight" in names
    assert "model.layers.1.mlp.gate_proj.weight" in names
    assert "model.layers.1.mlp.gate.weight" not in names
    assert len(set(names)) == len(names) == 3 + 4 * 8 + 3 * 1 + 3


def test_weight_map_when_embeddings_are_tied_then_no_head() -> None:
    """The head is the table."""
    family, spec = get_family("qwen3_moe"), read(tie_word_embeddings=True)
    assert "lm_head.weight" not in family.weight_map(spec).dense


def test_weight_map_when_a_name_is_an_experts_then_its_place() -> None:
    """Expert tensors and their scales are told from everything else."""
    names = get_family("qwen3_moe").weight_map(read())
    stem = "model.layers.3.mlp.experts.12"
    assert names.expert_name(f"{stem}.up_proj.weight") == ExpertName(3, 12, "up", False)
    assert names.expert_name(f"{stem}.down_proj.weight_scale_inv") == ExpertName(
        3, 12, "down", True
    )
    assert names.expert_name("model.layers.3.mlp.gate.weight") is None
    assert names.expert_name(f"{stem}.up_proj.weight_scale") is None


def test_weight_map_when_built_in_then_it_covers_the_checkpoint(builtin_model: Path) -> None:
    """Every tensor of the published layout has a role, and every name is there."""
    family = get_family("qwen3_moe")
    spec = family.read_config(json.loads((builtin_model / "config.json").read_text("utf-8")))
    names = family.weight_map(spec)
    index = json.loads((builtin_model / "model.safetensors.index.json").read_text("utf-8"))
    stored = set(index["weight_map"])
    dense = {name for name in stored if names.expert_name(name) is None}
    scales = {name for name in dense if name.endswith(names.scale_suffix)}
    assert dense - scales == set(names.dense)
    assert len(stored - dense) == spec.num_layers * spec.router.num_experts * 3 * 2
