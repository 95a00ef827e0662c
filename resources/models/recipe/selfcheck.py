"""Try on the real device, within a minute or so, everything that a CPU cannot try.

Each check stands alone and reports; none stops the others. Nothing of the teacher is needed.
"""

import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from recipe import export, judge, sampler, teacher, train
from recipe import sampler_kernels as kernels
from recipe.chat import Turn
from recipe.corpus import Corpus, train_tokenizer
from recipe.model import TOY, Shape

Log = Callable[[str], None]


def run(device: torch.device, seconds: float, log: Log, toy: bool = False) -> list[str]:
    """Run all checks; return the names of the failed ones."""
    failed: list[str] = []
    checks = (check_kernels, check_sampler, check_training)
    for check in checks:
        start = time.perf_counter()
        try:
            log(f"{check.__name__}: {check(device, seconds, toy, log)}")
        except Exception:  # noqa: BLE001  the report is the purpose
            failed.append(check.__name__)
            log(f"{check.__name__} FAILED\n{traceback.format_exc()}")
        log(f"  {time.perf_counter() - start:.1f} s")
    return failed


def check_kernels(device: torch.device, _seconds: float, _toy: bool, _log: Log) -> str:
    """Compare each Triton kernel with its plain form on random input."""
    if device.type != "cuda":
        return "skipped, no accelerator"
    torch.manual_seed(0)
    rows, capacity, dtype = 97, 200, torch.bfloat16
    qkv = torch.randn(rows, 15 * 64, device=device, dtype=dtype)
    cache = torch.randn(2, rows, 3, capacity, 64, device=device, dtype=dtype)
    twin = cache.clone()
    position = torch.randint(0, capacity, (rows,), device=device)
    rotary = sampler.rotary(capacity).to(device)
    ours = kernels.attend(qkv, cache, position, rotary)
    plain = kernels.attend_plain(qkv, twin, position, rotary)
    found = {"attend": _error(ours, plain), "cache": _error(cache, twin)}
    x, delta = torch.randn(2, rows, 576, device=device, dtype=dtype)
    weight, same = torch.rand(576, device=device, dtype=dtype), x.clone()
    found["norm"] = _error(
        kernels.add_norm(x, delta, weight), kernels.add_norm_plain(same, delta, weight)
    )
    gate_up = torch.randn(rows, 3072, device=device, dtype=dtype)
    found["gate"] = _error(kernels.gate(gate_up), kernels.gate_plain(gate_up))
    logits = torch.randn(rows, 49_152, device=device, dtype=dtype) * 3
    dice = torch.rand(rows, device=device)
    ids, scores = kernels.sample(logits, dice, 0.7, 0.1)
    other, expected = kernels.sample_plain(logits, dice, 0.7, 0.1)
    agree = (ids == other).float().mean().item()
    found["scores"] = (scores - expected)[ids == other].abs().max().item()
    if max(found.values()) > 0.02 or agree < 0.97:
        raise ArithmeticError(f"{found}, same tokens {agree}")
    return (
        f"relative errors { ({k: round(v, 5) for k, v in found.items()}) }, same tokens {agree:.3f}"
    )


def _error(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def check_sampler(device: torch.device, _seconds: float, toy: bool, log: Log) -> str:
    """Sample from random weights of the teacher's sizes; the figure is the steady rate."""
    fast, rows = device.type == "cuda", 8 if toy else 6144
    dtype = torch.bfloat16 if fast else torch.float32

    def weight(*size: int) -> torch.Tensor:
        return torch.randn(*size, device=device, dtype=dtype) * 0.02

    layers = tuple(
        teacher.TeacherLayer(
            weight(576),
            weight(960, 576),
            weight(576, 576),
            weight(576),
            weight(3072, 576),
            weight(576, 1536),
        )
        for _ in range(teacher.NUM_LAYERS)
    )
    weights = teacher.TeacherWeights(weight(teacher.VOCAB, 576), layers, weight(576))
    prompts = [[1, 2, 3, 4, 10 + i % 7, 30] for i in range(400_000 if fast else 20)]
    limit = [150] * len(prompts) if fast else [20] * len(prompts)
    options = sampler.SamplerOptions(rows, 384, fast=fast, ring_steps=256 if fast else 4)
    table = sampler.prompt_table(prompts, limit, 384, device)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        start = time.perf_counter()
        steps = sampler.Sampler(weights, table, options).run(8 if fast else 1, Path(folder), log)
        rate = steps * rows / (time.perf_counter() - start)
    return f"{steps} steps, {rate:.0f} tokens/s with start"


def check_training(device: torch.device, seconds: float, toy: bool, log: Log) -> str:
    """Train on random text, store, load, export, reply."""
    shape = TOY if toy else Shape()
    random = np.random.default_rng(0)
    size = 60_000 if toy else 3_000_000
    tokens = random.integers(7, shape.vocab, size).astype(np.uint16)
    corpus = Corpus(tokens, np.arange(0, size, 100), np.ones(size, bool))
    options = train.TrainOptions(seconds, 4, 128) if toy else train.TrainOptions(seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainer = train.Trainer(shape, corpus, options, device)
        result = trainer.run(folder / "model.pt", lambda _: 0.0, log)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        model = train.load(folder / "model.pt", dtype, device)
        tokenizer = train_tokenizer(["hello there, how are you"] * 3, 300)
        tokenizer.save(str(folder / "tokenizer.json"))
        told = judge.replies(model, tokenizer, [[Turn("user", "hello")]] * 3, longest=8)
        num_bytes = export.export(model, folder / "tokenizer.json", folder / "model")
    speed = result["tokens"] / result["seconds"] / 1e6
    return f"{speed:.2f} M tokens/s, export {num_bytes}, {len(told)} replies"
