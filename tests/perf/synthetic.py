"""Writes a synthetic model as a model folder: `python -m tests.perf.synthetic FOLDER`.

Straight into the product's own format, on all cores, without a second copy in memory; about what
the disk or the RAM-backed folder can take. With `--in-memory` the bank of experts stays a hole of
the right size: `tests.perf.memory_engine` then makes the records in the engine's own pool, for
models that do not fit twice. What the model is, says `tests.perf.synthetic_weights`.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import xxhash

from engine.checkpoint.dtypes import dtype_name
from engine.checkpoint.files import byte_view, check_space, disk_of
from engine.checkpoint.index import (
    INDEX_NAME,
    Bank,
    DataFile,
    Index,
    LayoutFacts,
    Role,
    SideFile,
    Source,
    TensorExtent,
    align,
    encode_index,
)
from engine.checkpoint.writer import BANK_FILE, TENSOR_FILE, Written
from engine.memory.budget import check_host
from engine.protocol.errors import EngineError
from engine.system import host_memory, usable_cores
from tests.perf.synthetic_weights import GROUP, SEED, TINY, Shape, SyntheticWeights, run_all

SPARE_BYTES = 64 << 20  # tokenizer, index, file system
NO_DIGEST = "0" * 16
TEMPLATE = "{% for message in messages %}{{ message['content'] + ' ' }}{% endfor %}"
QWEN3_EOS = 151_645


def main(arguments: list[str] | None = None) -> int:
    """Make the folder; returns 1 with a sentence on stderr where there is no room."""
    options = _parser().parse_args(arguments)
    shape = replace(TINY if options.tiny else Shape(), encoding=options.encoding)
    asked = {
        name: value
        for name in ("layers", "experts", "hidden", "intermediate", "vocab")
        if (value := getattr(options, name))
    }
    shape = replace(shape, **asked)
    start = time.perf_counter()
    try:
        write_folder(
            options.folder,
            shape,
            seed=options.seed,
            threads=options.threads or usable_cores(),
            in_memory=options.in_memory,
        )
    except EngineError as problem:
        print(f"{problem.message} {problem.hint}", file=sys.stderr)
        return 1
    took = time.perf_counter() - start
    stored = shape.dense_bytes + (0 if options.in_memory else shape.pool_bytes)
    print(
        f"{options.folder}: {shape.layers} layers x {shape.experts} experts, {shape.encoding}, "
        f"{stored / 1e9:.2f} GB in {took:.1f} s, {stored / took / 1e9:.2f} GB/s"
    )
    return 0


def write_folder(
    folder: Path, shape: Shape, seed: int = SEED, threads: int = 1, in_memory: bool = False
) -> Path:
    """Write a model folder; one that is there already is replaced. Returns it.

    Raises: DiskFull or, for a folder in memory, BudgetError, with both figures, if there is no
        room.
    """
    hidden_folder = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(hidden_folder, ignore_errors=True)
    hidden_folder.mkdir(parents=True)
    try:
        need = shape.dense_bytes + (0 if in_memory else shape.pool_bytes) + SPARE_BYTES
        check_space(hidden_folder, need)
        if is_in_memory(hidden_folder):  # whose own limit may be above what the machine has
            check_host(need, *reversed(host_memory()))
        weights = SyntheticWeights(shape, seed, threads)
        digests = _write_bank(hidden_folder / BANK_FILE, weights, threads, in_memory)
        tensors, tensor_bytes = _write_tensors(hidden_folder / TENSOR_FILE, weights)
        side_files = _write_side_files(hidden_folder, weights, in_memory)
        files = (DataFile(name=BANK_FILE, num_bytes=shape.pool_bytes),)
        files += (DataFile(name=TENSOR_FILE, num_bytes=tensor_bytes),)
        written = Written(files, digests, tensors, side_files)
        index = _index(folder.name, weights, written, in_memory)
        (hidden_folder / INDEX_NAME).write_bytes(encode_index(index))
        shutil.rmtree(folder, ignore_errors=True)
        hidden_folder.rename(folder)
    except BaseException:
        shutil.rmtree(hidden_folder, ignore_errors=True)
        raise
    return folder


def is_in_memory(folder: Path) -> bool:
    """Return whether a folder's files lie in main memory (Linux)."""
    mount = str(disk_of(folder))
    kinds = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
    return kinds.get(mount) in ("tmpfs", "ramfs")


def _write_bank(
    path: Path, weights: SyntheticWeights, threads: int, in_memory: bool
) -> tuple[str, ...]:
    """Write all experts and return their digests; a hole and no digests if `in_memory`.

    The file is mapped: writes of several threads to one file would wait for each other.
    """
    shape = weights.shape
    digests = [NO_DIGEST] * shape.num_records
    with path.open("xb") as file:
        os.truncate(file.fileno(), shape.pool_bytes)
    if in_memory:
        return tuple(digests)
    source = weights.experts()
    bank = np.memmap(path, np.uint8, "r+", shape=(shape.num_records, shape.layout.record_bytes))

    def fill(record: int) -> None:
        source.fill(record, bank[record])
        digests[record] = xxhash.xxh3_64_hexdigest(bank[record].data)

    run_all(fill, range(shape.num_records), threads)
    bank.flush()
    return tuple(digests)


def _write_tensors(path: Path, weights: SyntheticWeights) -> tuple[tuple[TensorExtent, ...], int]:
    """Write everything but the experts. Returns the extents and the file's size."""
    extents = []
    with path.open("xb") as file:
        for name, tensor in _dense_tensors(weights):
            offset = align(file.tell())
            file.seek(offset)
            raw = byte_view(tensor.reshape(-1).view(torch.uint8))
            file.write(raw)
            is_scale = name.endswith("_scale_inv")
            role: Role = "scale" if is_scale else "dense"
            has_scale = tensor.dtype == torch.float8_e4m3fn
            extents.append(
                TensorExtent(
                    name=name,
                    role=role,
                    dtype=dtype_name(tensor.dtype),
                    shape=tuple(tensor.shape),
                    file=1,
                    offset=offset,
                    num_bytes=len(raw),
                    xxh3=xxhash.xxh3_64_hexdigest(raw),
                    scale=f"{name}_scale_inv" if has_scale else "",
                )
            )
        return tuple(extents), file.tell()


def _dense_tensors(weights: SyntheticWeights) -> Iterator[tuple[str, torch.Tensor]]:
    embedding, head = weights.embedding_and_head()
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", head
    yield "model.norm.weight", torch.ones(weights.shape.hidden, dtype=torch.bfloat16)
    for layer in range(weights.shape.layers):
        for name, tensor in weights.layer(layer).items():
            yield f"model.layers.{layer}.{name}", tensor


def _write_side_files(
    folder: Path, weights: SyntheticWeights, in_memory: bool
) -> tuple[SideFile, ...]:
    """Write config, generation config and a tokenizer in which id 7 is the word "t7"."""
    words = {f"t{token}": token for token in range(weights.shape.vocab)}
    eos = _eos(weights.shape)
    files: dict[str, dict[str, Any]] = {
        "config.json": _config(weights, in_memory),
        "generation_config.json": {"do_sample": False, "eos_token_id": eos},
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
        },
        "tokenizer_config.json": {"eos_token": f"t{eos}", "chat_template": TEMPLATE},
    }
    out = []
    for name, content in files.items():
        raw = json.dumps(content).encode()
        (folder / name).write_bytes(raw)
        digest = xxhash.xxh3_64_hexdigest(raw)
        out.append(SideFile(name=name, num_bytes=len(raw), xxh3=digest))
    return tuple(out)


def _index(name: str, weights: SyntheticWeights, written: Written, in_memory: bool) -> Index:
    shape = weights.shape
    return Index(
        name=name,
        model_type="qwen3_moe",
        quant=shape.encoding,
        total_bytes=sum(file.num_bytes for file in written.files),
        source=Source(name="synthetic", fingerprint=f"{weights.seed}"),
        config=_config(weights, in_memory),
        files=written.files,
        bank=Bank(
            file=0,
            offset=0,
            layer_ids=tuple(range(shape.layers)),
            num_experts=shape.experts,
            layout=LayoutFacts.of(shape.layout),
            record_xxh3=written.record_xxh3,
        ),
        tensors=written.tensors,
        side_files=written.side_files,
    )


def _config(weights: SyntheticWeights, in_memory: bool) -> dict[str, Any]:
    """Return config.json; "synthetic" is what makes the same weights again."""
    shape = weights.shape
    eos = _eos(shape)
    config: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "bos_token_id": eos,
        "decoder_sparse_step": 1,
        "eos_token_id": eos,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": 3 * shape.hidden,
        "max_position_embeddings": shape.max_context,
        "mlp_only_layers": [],
        "moe_intermediate_size": shape.intermediate,
        "norm_topk_prob": True,
        "num_attention_heads": shape.heads,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.top_k,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": shape.vocab,
        "synthetic": {"seed": weights.seed, "shape": asdict(shape), "in_memory": in_memory},
    }
    if shape.encoding == "fp8_block":
        config["quantization_config"] = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [GROUP, GROUP],
        }
    return config


def _eos(shape: Shape) -> int:
    return min(QWEN3_EOS, shape.vocab - 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="is replaced if it is there")
    parser.add_argument("--layers", type=int, help="24 if not given; the real model has 48")
    parser.add_argument("--experts", type=int)
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--intermediate", type=int)
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--encoding", choices=["bf16", "fp8_block"], default="bf16")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=0, help="0 = all cores")
    parser.add_argument("--tiny", action="store_true", help="begin with the shape of the tests")
    parser.add_argument("--in-memory", action="store_true", help="leave a hole for the experts")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
