"""Batched sampling from the teacher without gaps: a finished row takes the next prompt at once.

All state lies on the device and one step has fixed shapes, so that a step is one graph replay.
What the rows produce goes to a ring of `ring_steps` steps, which is stored as .npy files; stage
`collect` cuts them into documents. Prompts share their first tokens (the system turn), whose keys
and values are computed once and stay in the cache.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recipe import sampler_kernels as kernels
from recipe.device import captured, wait
from recipe.streams import FORCED
from recipe.teacher import (
    END_ID,
    HEAD_DIM,
    HIDDEN,
    NUM_KV_HEADS,
    NUM_LAYERS,
    ROPE_THETA,
    TeacherWeights,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How to sample. `capacity`: cache positions; `fast`: the Triton kernels."""

    num_rows: int
    capacity: int
    temperature: float = 0.6
    min_p: float = 0.1
    fast: bool = True
    ring_steps: int = 256


class PromptTable(NamedTuple):
    """Prompts on the device: tokens [N, longest] int32, lengths [N], length limits [N]."""

    tokens: Tensor
    lengths: Tensor
    limits: Tensor
    shared: int


def prompt_table(
    prompts: Sequence[Sequence[int]], max_new: Sequence[int], capacity: int, device: torch.device
) -> PromptTable:
    """Return the table of prompts; `max_new` bounds each reply.

    Raises: ValueError if a prompt leaves fewer than 16 positions for its reply.
    """
    lengths = np.array([len(p) for p in prompts])
    if lengths.max() > capacity - 16:
        raise ValueError(f"a prompt has {lengths.max()} tokens, the cache {capacity} positions")
    tokens = np.zeros((len(prompts), lengths.max()), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    same = (tokens == tokens[0]).all(0)
    shared = int(np.argmin(same)) if not same.all() else len(same) - 1
    shared = min(shared, int(lengths.min()) - 1)
    limits = np.minimum(lengths + np.array(max_new), capacity)
    return PromptTable(
        torch.from_numpy(tokens).to(device),
        torch.from_numpy(lengths).to(device),
        torch.from_numpy(limits).to(device),
        shared,
    )


class Sampler:
    """The teacher's decode loop over a table of prompts."""

    def __init__(
        self, weights: TeacherWeights, table: PromptTable, options: SamplerOptions
    ) -> None:
        device, dtype = weights.embedding.device, weights.embedding.dtype
        rows, self._options = options.num_rows, options
        self._weights, self._table, self._device = weights, table, device
        self._cache = torch.zeros(
            NUM_LAYERS, 2, rows, NUM_KV_HEADS, options.capacity, HEAD_DIM,
            device=device, dtype=dtype,
        )  # fmt: skip
        self._rotary = rotary(options.capacity).to(device)
        self._none = torch.zeros(rows, HIDDEN, device=device, dtype=dtype)
        self._prompt = torch.arange(rows, device=device) % len(table.lengths)
        self._position = torch.zeros(rows, dtype=torch.int64, device=device)
        self._token = table.tokens[self._prompt, 0].long()
        self._next = torch.full((), rows, dtype=torch.int64, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        ring = (options.ring_steps, rows)
        self._ring_tokens = torch.zeros(ring, dtype=torch.int32, device=device)
        self._ring_prompts = torch.zeros(ring, dtype=torch.int32, device=device)
        self._ring_scores = torch.zeros(ring, dtype=torch.float16, device=device)
        self._attend = kernels.attend if options.fast else kernels.attend_plain
        self._add_norm = kernels.add_norm if options.fast else kernels.add_norm_plain
        self._gate = kernels.gate if options.fast else kernels.gate_plain
        self._sample = kernels.sample if options.fast else kernels.sample_plain

    def step(self) -> None:
        """Compute one token of every row and choose what each row does next."""
        options, table = self._options, self._table
        dice = torch.rand(options.num_rows, device=self._device)
        drawn, scores = self._sample(self._logits(), dice, options.temperature, options.min_p)
        position, prompt = self._position + 1, self._prompt
        forced = position < table.lengths[prompt]
        width = table.tokens.shape[1] - 1
        given = table.tokens[prompt, position.clamp(max=width)].long()
        token = torch.where(forced, given, drawn)
        done = ~forced & ((token == END_ID) | (position + 1 >= table.limits[prompt]))
        line = self._at % options.ring_steps
        marked = torch.where(forced, FORCED, token).int()
        self._ring_tokens.index_copy_(0, line, marked[None])
        self._ring_prompts.index_copy_(0, line, prompt.int()[None])
        self._ring_scores.index_copy_(0, line, scores.half()[None])
        new = (self._next + done.cumsum(0) - 1) % len(table.lengths)
        self._next.add_(done.sum())
        self._token.copy_(torch.where(done, table.tokens[new, table.shared].long(), token))
        self._position.copy_(torch.where(done, table.shared, position))
        self._prompt.copy_(torch.where(done, new, prompt))
        self._at.add_(1)

    def _logits(self) -> Tensor:
        weights, position = self._weights, self._position
        x = weights.embedding[self._token]
        delta = self._none
        for layer, cache in zip(weights.layers, self._cache, strict=True):
            qkv = self._add_norm(x, delta, layer.norm1) @ layer.qkv.t()
            delta = self._attend(qkv, cache, position, self._rotary) @ layer.out.t()
            gate_up = self._add_norm(x, delta, layer.norm2) @ layer.gate_up.t()
            delta = self._gate(gate_up) @ layer.down.t()
        return self._add_norm(x, delta, weights.final_norm) @ weights.embedding.t()

    @torch.inference_mode()
    def run(self, seconds: float, folder: Path, log: Callable[[str], None]) -> int:
        """Sample until `seconds` are over or every prompt has been taken; return the steps done.

        Writes `tokens-NNNNN.npy` (uint16), `prompts-..` (int32) and `scores-..` (float16), each
        [ring_steps, rows]. Whole rings only: a cut-off reply at the end is left out by `collect`.
        """
        start, num_rings, ring_steps = time.perf_counter(), 0, self._options.ring_steps
        num_prompts = len(self._table.lengths)
        step, how = captured(self.step, self._device)
        # The steps before the first replay ran outside the ring's count: begin at its first line.
        self._at.zero_()
        log(f"sampling: {self._options.num_rows} rows, {how}, shared {self._table.shared}")
        writer: threading.Thread | None = None
        while time.perf_counter() - start < seconds and self._next.item() < num_prompts:
            for _ in range(ring_steps):
                step()
            wait(self._device)
            rings = [
                self._ring_tokens.cpu().numpy().astype(np.uint16),
                self._ring_prompts.cpu().numpy(),
                self._ring_scores.cpu().numpy(),
            ]
            if writer is not None:
                writer.join()
            writer = threading.Thread(target=_store, args=(folder, num_rings, rings))
            writer.start()
            num_rings += 1
            if num_rings % 10 == 1:
                spent = time.perf_counter() - start
                rate = num_rings * ring_steps * self._options.num_rows / spent
                log(f"  {spent:5.0f} s  {self._next.item():8d} prompts  {rate:9.0f} tokens/s")
        if writer is not None:
            writer.join()
        return num_rings * ring_steps


def rotary(capacity: int) -> Tensor:
    """Return cosines and signed sines of all positions. Shapes: [2, capacity, 64] float32."""
    rates = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)
    angle = torch.arange(capacity).double()[:, None] * rates
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)]).float()


def _store(folder: Path, number: int, rings: list[np.ndarray]) -> None:
    for name, ring in zip(("tokens", "prompts", "scores"), rings, strict=True):
        np.save(folder / f"{name}-{number:05d}.npy", ring)
