"""One parity runner for every family: transformers in float32 against ours, on the same weights.

A family's test gives a transformers config and calls `assert_parity`. The checkpoint is written
with published names (bf16, or FP8 blocks), dequantised into transformers, and converted to FTW for
ours. Compared: one-shot prefill, chunked prefill, decode, each with the experts all on the device,
all in host memory, and mixed.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from engine.cache.kv import KvPool
from engine.checkpoint.ftw import FtwReader
from engine.forward import PAGE_TOKENS, ForwardBatch
from engine.models.base import Model, Parts
from engine.models.registry import get_family
from engine.moe.cache import ExpertCache
from engine.moe.executor import MoeExecutor
from engine.moe.pool import ExpertPool
from engine.protocol.messages import MissPolicy
from engine.runner.model_runner import ModelRunner
from kernels.device.base import Device
from kernels.device.registry import open_device
from tests.support.checkpoints import convert_checkpoint, quantize_blocks, write_json

disable_progress_bar()

Stored = Literal["bf16", "fp8_block"]


class Tolerance(NamedTuple):
    """Bounds on logits whose spread is about 1, and why they are what they are."""

    rtol: float
    atol: float
    reason: str


# The one table of parity tolerances, by dtype of activations.
TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float32: Tolerance(
        1e-4,
        1e-4,
        "same weights, same formulas, float32 throughout: only the order of sums differs "
        "(seen: below 1e-5 on logits up to 5)",
    ),
    torch.bfloat16: Tolerance(
        2e-2,
        1e-1,
        "activations are rounded to 8 bits after each step, the reference's are not (seen: 0.05)",
    ),
}

ALL_HIT, NONE_HIT, MIXED, FILLED = "all on the device", "all in host memory", "mixed", "filled"
PLACEMENTS: dict[str, tuple[MissPolicy, float]] = {
    ALL_HIT: (MissPolicy.SPLIT, 1.0),
    NONE_HIT: (MissPolicy.CPU_ONLY, 0.0),
    MIXED: (MissPolicy.SPLIT, 0.5),
    FILLED: (MissPolicy.FILL_ONLY, 0.0),
}
"""Policy, and share of all experts that have a slot (at least one)."""

SERVED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ALL_HIT: (("hits",), ("fills", "cpu")),
    NONE_HIT: (("cpu",), ("hits", "fills")),
    MIXED: (("hits", "fills", "cpu"), ()),
    FILLED: (("fills",), ("cpu",)),
}
"""How decode's routes must have been served, and how never: else a placement tests nothing."""


@dataclass
class Native:
    """Our engine around one FTW folder, without scheduler: logits of token lists.

    Pages are handed out from the top and in a scattered order, so that no test passes because
    pages happen to lie in a row.
    """

    model: Model
    kv: KvPool
    experts: MoeExecutor
    device: Device
    tokens: list[int] = field(default_factory=list)

    def page(self, index: int) -> int:
        """Return the page of a sequence's `index`-th 16 tokens."""
        return (self.kv.num_pages - 1 - 3 * index) % self.kv.num_pages

    def run(self, tokens: Sequence[int], phase: Literal["prefill", "decode"]) -> Tensor:
        """Append tokens in one forward. Returns the logits of each, [T, V]."""
        start, end = len(self.tokens), len(self.tokens) + len(tokens)
        self.tokens += tokens
        table = [self.page(i) for i in range(-(-end // PAGE_TOKENS))]
        slots = [table[p // PAGE_TOKENS] * PAGE_TOKENS + p % PAGE_TOKENS for p in range(start, end)]
        packed = torch.tensor(
            [list(tokens), list(range(start, end)), slots], device=self.device.torch_device
        )
        with torch.inference_mode():
            return self.model.forward(
                ForwardBatch(
                    phase=phase,
                    token_ids=packed[0],
                    positions=packed[1],
                    kv_slots=packed[2],
                    page_tables=torch.tensor([table], device=self.device.torch_device),
                    context_lens=(end,),
                    logit_rows=tuple(range(len(tokens))),
                )
            )

    def logits(self, tokens: Sequence[int], chunks: Sequence[int]) -> Tensor:
        """Run a new sequence as prompt chunks of these sizes, then decode what is left."""
        self.tokens = []
        parts, start = [], 0
        for size in chunks:
            parts.append(self.run(tokens[start : start + size], "prefill"))
            start += size
        parts += [self.run([token], "decode") for token in tokens[start:]]
        return torch.cat(parts)

    def runner(self, max_rows: int) -> ModelRunner:
        """Return a runner over the same model and pages."""
        return ModelRunner(self.model, self.kv, self.device, max_rows)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """Continue a prompt by its likeliest tokens."""
        self.tokens = []
        out = [int(self.run(prompt, "prefill")[-1].argmax())]
        while len(out) < count:
            out.append(int(self.run([out[-1]], "decode")[-1].argmax()))
        return out


@contextmanager
def open_native(
    folder: Path,
    placement: str = ALL_HIT,
    dtype: torch.dtype = torch.float32,
    device_name: str = "cpu",
) -> Iterator[Native]:
    """Load an FTW folder as the loader does, with experts placed as asked."""
    policy, share = PLACEMENTS[placement]
    reader = FtwReader(folder)
    family = get_family(reader.model_type)
    spec = family.read_config(reader.config)
    device = open_device(device_name)
    buffer = device.host_buffer(reader.pool_bytes)
    pool = ExpertPool(reader.layout, reader.num_moe_layers, reader.num_experts, buffer)
    reader.read_pool(pool.storage, lambda *_: None, lambda: False)
    cache = ExpertCache(pool, device, max(1, int(pool.num_records * share)))
    experts = MoeExecutor(pool, cache, policy, None, device)
    pages = -(-spec.max_context // PAGE_TOKENS)
    pages += pages % 3 == 0  # the walk in `Native.page` visits every page then
    kv = KvPool(spec.num_layers, spec.num_kv_heads, spec.head_dim, dtype, device, pages, pages)
    parts = Parts(device.torch_device, dtype, kv, experts)
    try:
        yield Native(family.build(spec, reader.weight, parts), kv, experts, device)
    finally:
        experts.close()
        kv.close()
        buffer.close()
        device.close()


def write_random(config: PretrainedConfig, folder: Path, stored: Stored, seed: int = 0) -> Path:
    """Write a seeded random checkpoint of a transformers config, as publishers would.

    Every weight is drawn anew, routing biases and norms included, so that a missing one shows.
    """
    model = AutoModelForCausalLM.from_config(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            noise = torch.randn(value.shape, generator=draw)
            is_norm = value.ndim == 1 and "norm" in name
            value.copy_(1 + 0.2 * noise if is_norm else noise * (4.0 / value.shape[-1]) ** 0.5 / 2)
    model.to(torch.bfloat16).save_pretrained(folder)
    if stored == "fp8_block":
        _store_as_fp8(folder)
    return folder


def _store_as_fp8(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in list(tensors):
        if name.endswith("_proj.weight"):
            codes, scale = quantize_blocks(tensors[name].float())
            tensors[name], tensors[name + "_scale_inv"] = codes, scale
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    write_json(folder / "config.json", config)


def reference_model(source: Path, scratch: Path) -> PreTrainedModel:
    """Load a published folder into transformers in float32, dequantised by our own few lines."""
    tensors: dict[str, Tensor] = {}
    for shard in sorted(source.glob("*.safetensors")):
        tensors |= load_file(shard)
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        wide = value.float()
        scale = tensors.get(name + "_scale_inv")
        if scale is not None:
            blocks = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            wide = wide * blocks[: wide.shape[0], : wide.shape[1]]
        plain[name] = wide
    config = json.loads((source / "config.json").read_text("utf-8"))
    config.pop("quantization_config", None)
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"
    scratch.mkdir()
    write_json(scratch / "config.json", config)
    save_file(plain, scratch / "model.safetensors", metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(
        scratch, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def reference_logits(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return transformers' logits of every token, [T, V]."""
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    return logits


def random_tokens(count: int, vocab_size: int, seed: int = 1) -> list[int]:
    """Return seeded token ids."""
    draw = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(vocab_size, (count,), generator=draw).tolist()
    return ids


def close(got: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Compare logits by the table."""
    rtol, atol, reason = TOLERANCES[dtype]
    torch.testing.assert_close(
        got, expected, rtol=rtol, atol=atol, msg=lambda text: f"{text}\nAllowed because: {reason}"
    )


class Prepared(NamedTuple):
    """A checkpoint, converted for ours and loaded into transformers."""

    reference: PreTrainedModel
    converted: Path


def prepare(config: PretrainedConfig, folder: Path, stored: Stored = "bf16") -> Prepared:
    """Write a random checkpoint of `config` below `folder`, for both sides."""
    source = write_random(config, folder / "source", stored)
    converted = convert_checkpoint(source, folder / "converted")
    return Prepared(reference_model(source, folder / "plain"), converted)


def assert_parity(config: PretrainedConfig, folder: Path, stored: Stored = "bf16") -> None:
    """Compare every way to run a prompt, for every placement of the experts.

    47 tokens: the prompt ends inside a page, and so does each chunk.
    """
    reference, converted = prepare(config, folder, stored)
    tokens = random_tokens(47, config.vocab_size)
    expected = reference_logits(reference, tokens)
    assert expected.std() > 0.3, "logits are too flat to tell anything"
    for placement in PLACEMENTS:
        with open_native(converted, placement) as native:
            for chunks in ((47,), (5, 16, 1, 25), (20,)):
                close(native.logits(tokens, chunks), expected)
            must, never = SERVED[placement]
            counters = native.experts.counters()
            assert all(getattr(counters, kind) > 0 for kind in must), counters
            assert all(getattr(counters, kind) == 0 for kind in never), counters
