"""Tiny seeded Hugging Face checkpoints (qwen3_moe; bf16 or FP8 with 128 x 128 blocks), for tests.

They look like published ones: several shards, an index, config, generation config, and a byte-level
ChatML tokenizer that can say anything. `write_checkpoint` writes one, `convert_checkpoint` makes an
FTW folder of it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from engine.checkpoint.convert import Recipe, convert
from engine.checkpoint.source import SourceCheckpoint
from engine.models.registry import get_family

Quant = Literal["bf16", "fp8_block"]
GROUP = 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
VOCAB_SIZE = len(SPECIAL) + 256
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of a tiny model: nothing a power of two where code might rely on it.

    Both H and I are no multiples of the FP8 block, so that edge blocks are partial.
    """

    num_layers: int = 2
    hidden: int = 160
    moe_intermediate: int = 48
    num_experts: int = 5
    top_k: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    vocab_size: int = VOCAB_SIZE
    dense_layers: tuple[int, ...] = ()  # layers without experts
    dense_intermediate: int = 96
    tie_embeddings: bool = False
    max_context: int = 512


TINY = TinyShape()


def tiny_config(shape: TinyShape = TINY, quant: Quant = "bf16") -> dict[str, Any]:
    """Return the checkpoint's config.json."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.top_k,
        "moe_intermediate_size": shape.moe_intermediate,
        "intermediate_size": shape.dense_intermediate,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(shape.dense_layers),
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tie_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if quant == "fp8_block":
        config["quantization_config"] = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [GROUP, GROUP],
        }
    return config


def quantize_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return e4m3 codes and float32 scales of 128 x 128 blocks, as published checkpoints do."""
    rows, columns = weight.shape
    down, across = -(-rows // GROUP), -(-columns // GROUP)
    padded = torch.zeros(down * GROUP, across * GROUP)
    padded[:rows, :columns] = weight
    largest = padded.view(down, GROUP, across, GROUP).abs().amax(dim=(1, 3))
    scale = (largest / 448.0).clamp_min(1e-12)
    wide = scale.repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)[:rows, :columns]
    return (weight / wide).to(torch.float8_e4m3fn), scale


def tiny_tensors(
    shape: TinyShape = TINY, quant: Quant = "bf16", seed: int = 0
) -> dict[str, torch.Tensor]:
    """Return every tensor of the checkpoint by its published name, in the order of the layers."""
    draw = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}

    def add(name: str, *size: int, quantized: bool = False, around: float = 0.0) -> None:
        # Over several binades, so that wrong orders and wrong scales show.
        binade = torch.randint(-3, 2, (size[0],) + (1,) * (len(size) - 1), generator=draw)
        width = size[-1] ** -0.5 if len(size) > 1 else 0.1
        value = around + torch.randn(size, generator=draw) * width * torch.exp2(binade.float())
        if quantized and quant == "fp8_block":
            tensors[name], tensors[name + "_scale_inv"] = quantize_blocks(value)
        else:
            tensors[name] = value.to(torch.bfloat16)

    def add_mlp(prefix: str, rows: int) -> None:
        add(f"{prefix}.gate_proj.weight", rows, shape.hidden, quantized=True)
        add(f"{prefix}.up_proj.weight", rows, shape.hidden, quantized=True)
        add(f"{prefix}.down_proj.weight", shape.hidden, rows, quantized=True)

    add("model.embed_tokens.weight", shape.vocab_size, shape.hidden)
    for layer_id in range(shape.num_layers):
        layer = f"model.layers.{layer_id}"
        add(f"{layer}.input_layernorm.weight", shape.hidden, around=1.0)
        add(f"{layer}.post_attention_layernorm.weight", shape.hidden, around=1.0)
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            add(f"{layer}.self_attn.{part}_proj.weight", rows, shape.hidden, quantized=True)
        add(f"{layer}.self_attn.o_proj.weight", shape.hidden, queries, quantized=True)
        add(f"{layer}.self_attn.q_norm.weight", shape.head_dim, around=1.0)
        add(f"{layer}.self_attn.k_norm.weight", shape.head_dim, around=1.0)
        if layer_id in shape.dense_layers:
            add_mlp(f"{layer}.mlp", shape.dense_intermediate)
            continue
        add(f"{layer}.mlp.gate.weight", shape.num_experts, shape.hidden)
        for expert_id in range(shape.num_experts):
            add_mlp(f"{layer}.mlp.experts.{expert_id}", shape.moe_intermediate)
    add("model.norm.weight", shape.hidden, around=1.0)
    if not shape.tie_embeddings:
        add("lm_head.weight", shape.vocab_size, shape.hidden)
    return tensors


def write_checkpoint(
    folder: Path,
    shape: TinyShape = TINY,
    quant: Quant = "bf16",
    seed: int = 0,
    shards: int = 3,
    change: Callable[[dict[str, torch.Tensor]], object] = lambda tensors: None,
) -> Path:
    """Write a checkpoint folder and return it; `change` may edit the tensors before that.

    With `shards` = 1 there is one `model.safetensors` and no index.
    """
    tensors = tiny_tensors(shape, quant, seed)
    change(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    write_shards(folder, tensors, shards)
    write_json(folder / "config.json", tiny_config(shape, quant))
    write_json(
        folder / "generation_config.json",
        {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "eos_token_id": 2},
    )
    write_tokenizer(folder)
    return folder


def write_shards(folder: Path, tensors: Mapping[str, torch.Tensor], shards: int) -> None:
    """Spread the tensors over shards, in order, with an index if there is more than one."""
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        part = names[len(names) * shard // shards : len(names) * (shard + 1) // shards]
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def write_tokenizer(folder: Path) -> None:
    """Write a byte-level tokenizer without merges (one token per byte) and a ChatML template."""
    letters = byte_letters()
    vocab = {letter: len(SPECIAL) + byte for byte, letter in enumerate(letters)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level | {"use_regex": False},
        "post_processor": None,
        "decoder": byte_level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": dict(zip(SPECIAL, range(len(SPECIAL)), strict=True)) | vocab,
            "merges": [],
        },
    }
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )


def byte_letters() -> list[str]:
    """Return the printable letter that byte-level tokenizers use for each of the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    moved = {byte: chr(0x100 + index) for index, byte in enumerate(others)}
    return [moved.get(byte, chr(byte)) for byte in range(256)]


def write_json(file: Path, value: object) -> None:
    """Write readable JSON."""
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


def recipe_for(source: SourceCheckpoint) -> Recipe:
    """Return how to convert this source, by its registered family."""
    family = get_family(source.model_type)
    spec = family.read_config(source.config)
    return Recipe.of(spec, family.weight_map(spec))


def convert_checkpoint(folder: Path, target: Path) -> Path:
    """Convert a checkpoint folder to an FTW folder and return that."""
    source = SourceCheckpoint(folder)
    convert(source, target, recipe_for(source), lambda *_: None, lambda: False)
    return target
