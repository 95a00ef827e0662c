"""Write the student as a published Qwen3-MoE FP8 checkpoint: names, FP8 blocks, config, texts.

Matrices become float8 e4m3 with one float32 scale for each block of 128 x 128 (`weight_scale_inv`,
the factor that gives the value back); embedding, routers and norms stay bfloat16.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from recipe.chat import END_OF_TEXT, END_OF_TEXT_ID, IM_END, IM_END_ID, TEMPLATE
from recipe.model import Shape, Student

BLOCK = 128
_FP8_MAX = 448.0
_SHARD_BYTES = 15_500_000
GENERATION = {
    "do_sample": True,
    "temperature": 0.5,
    "min_p": 0.1,
    "repetition_penalty": 1.05,
    "max_new_tokens": 400,
    "eos_token_id": IM_END_ID,
    "pad_token_id": END_OF_TEXT_ID,
}


def published(model: Student) -> dict[str, Tensor]:
    """Return the weights, float32, under the names and in the shapes of published checkpoints."""
    shape = model.shape
    sizes = [shape.heads * shape.head_dim] + [shape.kv_heads * shape.head_dim] * 2
    found = {"model.embed_tokens.weight": model.embedding, "model.norm.weight": model.norm.weight}
    for i, block in enumerate(model.blocks):
        at = f"model.layers.{i}."
        q, k, v = block.qkv.split(sizes)
        found |= {
            f"{at}input_layernorm.weight": block.norm1.weight,
            f"{at}post_attention_layernorm.weight": block.norm2.weight,
            f"{at}self_attn.q_norm.weight": block.q_norm.weight,
            f"{at}self_attn.k_norm.weight": block.k_norm.weight,
            f"{at}self_attn.q_proj.weight": q,
            f"{at}self_attn.k_proj.weight": k,
            f"{at}self_attn.v_proj.weight": v,
            f"{at}self_attn.o_proj.weight": block.out,
            f"{at}mlp.gate.weight": block.experts.gate,
        }
        for e in range(shape.experts):
            gate, up = block.experts.gate_up[e].t().chunk(2)
            expert = f"{at}mlp.experts.{e}."
            found[f"{expert}gate_proj.weight"] = gate
            found[f"{expert}up_proj.weight"] = up
            found[f"{expert}down_proj.weight"] = block.experts.down[e].t()
    return {name: w.detach().float().cpu().contiguous() for name, w in found.items()}


def is_quantised(name: str, weight: Tensor) -> bool:
    """Return whether a tensor is stored as FP8 blocks."""
    return weight.dim() == 2 and not name.endswith(("embed_tokens.weight", "mlp.gate.weight"))


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return FP8 values and the scale of each block. Shapes: [R, C] -> [R, C], [R/128, C/128].

    Raises: ValueError if a side is no multiple of 128.
    """
    rows, cols = weight.shape
    if rows % BLOCK or cols % BLOCK:
        raise ValueError(f"{rows} x {cols} has a partial block")
    blocks = weight.view(rows // BLOCK, BLOCK, cols // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)).clamp(min=1e-12) / _FP8_MAX
    value = (blocks / scale[:, None, :, None]).clamp(-_FP8_MAX, _FP8_MAX)
    return value.view(rows, cols).to(torch.float8_e4m3fn), scale


def dequantise(value: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 weight that FP8 values and block scales stand for."""
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return value.float() * wide[: value.shape[0], : value.shape[1]]


def config(shape: Shape) -> dict[str, object]:
    """Return config.json as published FP8 checkpoints of this family have it."""
    plain = ["lm_head", "model.embed_tokens"]
    plain += [f"model.layers.{i}.mlp.gate" for i in range(shape.layers)]
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.top_k,
        "moe_intermediate_size": shape.width,
        "intermediate_size": shape.width * shape.top_k,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.eps,
        "max_position_embeddings": shape.context,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": IM_END_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": plain,
        },
    }


def export(model: Student, tokenizer: Path, folder: Path) -> int:
    """Write the whole model folder; return the bytes of all its files."""
    folder.mkdir(parents=True, exist_ok=True)
    stored: dict[str, Tensor] = {}
    for name, weight in published(model).items():
        if is_quantised(name, weight):
            value, scale = quantise(weight)
            stored[name], stored[f"{name}_scale_inv"] = value, scale
        else:
            stored[name] = weight.to(torch.bfloat16)
    _write_shards(stored, folder)
    context = model.shape.context
    _write_json(folder / "config.json", config(model.shape))
    _write_json(folder / "generation_config.json", GENERATION)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context,
            "bos_token": None,
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    for path in folder.iterdir():
        path.chmod(0o644)
    return sum(path.stat().st_size for path in folder.iterdir())


def _write_shards(stored: dict[str, Tensor], folder: Path) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name in sorted(stored):
        num_bytes = stored[name].numel() * stored[name].element_size()
        if size + num_bytes > _SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = stored[name].contiguous()
        size += num_bytes
    places: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    total = sum(t.numel() * t.element_size() for t in stored.values())
    _write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": places},
    )


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
