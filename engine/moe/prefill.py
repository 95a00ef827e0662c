"""A prompt chunk through one layer of experts, streamed past the cache.

Never looks at residency, so a chunk's bits do not depend on it; afterwards the cache is warmed with
the last tokens' experts. Called by `engine.moe.executor`.
"""

from collections.abc import Iterator

import torch

from engine.moe.cache import ExpertCache
from engine.moe.meter import CopyMeter
from engine.moe.planner import choose_path
from engine.moe.pool import ExpertPool
from engine.moe.router import Routing
from engine.moe.slots import most_recent
from engine.moe.stream import LayerStream
from kernels.api import ExpertKernel
from kernels.device.base import Device


class Prefill:
    """Computes chunks, and warms the cache with the experts of a chunk's last `warm_tokens`."""

    def __init__(
        self,
        pool: ExpertPool,
        cache: ExpertCache,
        stream: LayerStream,
        device: Device,
        warm_tokens: int,
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._stream = stream
        self._device = device
        self._warm_tokens = warm_tokens
        self._meter = CopyMeter()
        self._staged: torch.Tensor | None = None  # the last layer, if it lies there as a whole

    @property
    def num_bytes(self) -> int:
        """Bytes streamed since load."""
        return self._meter.num_bytes

    def rows(
        self, moe_layer: int, hidden: torch.Tensor, routing: Routing, kernel: ExpertKernel
    ) -> torch.Tensor:
        """Compute every route of a chunk, expert by expert.

        Shapes: hidden [T, H] float32, routing [T, K] -> [T, K, H] float32.
        """
        num_tokens, top_k = routing.ids.shape
        experts = self._pool.num_experts
        flat = routing.ids.reshape(-1).to(torch.int64)
        order = torch.argsort(flat, stable=True)
        ends = torch.bincount(flat, minlength=experts).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        routed = [e for e in range(experts) if starts[e] < ends[e]]
        rows = torch.empty(num_tokens * top_k, hidden.shape[1], device=hidden.device)
        for expert, record in self._arrivals(moe_layer, routed, num_tokens, top_k):
            places = order[starts[expert] : ends[expert]]
            kernel.load([record])
            rows[places] = kernel.rows(hidden[places // top_k])
        return rows.view(num_tokens, top_k, -1)

    def warm(self, moe_layer: int, routing: Routing) -> None:
        """Bring the experts of the chunk's last tokens into the cache, this layer's part of it.

        Call it right after `rows`. The most recently routed come first and end up hottest; where
        the layer was staged as a whole they are copied from there and cross no link again.
        """
        share = max(1, self._cache.num_slots // self._pool.num_layers)
        last = routing.ids[-self._warm_tokens :].tolist()
        base = moe_layer * self._pool.num_experts
        recent = [base + expert for expert in most_recent(last, share)]
        misses = self._cache.touch(reversed(recent)).misses
        after = self._device.record()
        filled: list[int] = []
        try:
            for record in [r for r in recent if r in misses][: self._cache.room]:
                source = None if self._staged is None else self._staged[record - base]
                _, event = self._cache.fill(record, after, source)
                filled.append(record)
                if source is None:
                    self._meter.add(event, self._pool.layout.record_bytes)
                self._device.wait(event)
        except BaseException:
            self._cache.drop(filled)
            raise

    def _arrivals(
        self, moe_layer: int, routed: list[int], num_tokens: int, top_k: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (expert, its bytes on the device) of a layer, by the planner's path."""
        experts = self._pool.num_experts
        base = moe_layer * experts
        self._staged = None
        path = choose_path(num_tokens, top_k, experts, self._stream.staging_records)
        if path == "full_layer":
            self._staged = self._stream.layer(moe_layer, self._meter)
            for expert in routed:
                yield expert, self._staged[expert]
            return
        for record, view in self._stream.records([base + e for e in routed], self._meter):
            yield record - base, view
