"""A tiny bank of experts with everything around it, and an oracle that knows no cache."""

from dataclasses import dataclass, field

import pytest
import torch

from engine.moe.cache import ExpertCache
from engine.moe.executor import MoeExecutor, MoeOptions
from engine.moe.pool import ExpertPool, layer_bytes, pool_bytes
from engine.moe.router import Routing
from engine.protocol.messages import MissPolicy
from kernels.api import expert_kernel
from kernels.device.base import DeviceLostError
from kernels.device.registry import open_device
from kernels.layouts import RecordLayout
from kernels.reference.routing import merge_routes
from tests.support.experts import random_record

LAYERS, EXPERTS, TOP_K = 3, 6, 3
RECORDS = LAYERS * EXPERTS
LAYOUT = RecordLayout(48, 32, "fp8_block", 16)


def make_pool(device, seed=0, layout=LAYOUT, piece_bytes=0):
    """Return a pool of random experts, pinned in pieces if these have a size."""
    generator = torch.Generator().manual_seed(seed)
    buffer = device.host_buffer(pool_bytes(layout, LAYERS, EXPERTS), piece_bytes)
    pool = ExpertPool(layout, LAYERS, EXPERTS, buffer)
    for index in range(pool.num_records):
        pool.record(index).copy_(random_record(layout, generator))
    return pool


@dataclass
class World:
    """An executor over random experts; use it as a context manager."""

    device_name: str = "cpu"
    slots: int = 4
    policy: MissPolicy = MissPolicy.SPLIT
    rates: object = None
    options: MoeOptions = field(default_factory=MoeOptions)
    budget_bytes: int | None = None
    pinned_layers: int | None = None  # on the fake device: the first ones

    def __enter__(self):
        try:
            self.device = open_device(self.device_name, self.budget_bytes)
        except DeviceLostError as problem:
            pytest.skip(f"needs an NVIDIA GPU: {problem}")
        piece_bytes = 0
        if self.pinned_layers is not None:
            self.device.pins.limit = self.pinned_layers
            piece_bytes = layer_bytes(LAYOUT, EXPERTS)
        self.pool = make_pool(self.device, piece_bytes=piece_bytes)
        self.cache = ExpertCache(self.pool, self.device, self.slots)
        self.moe = MoeExecutor(
            self.pool, self.cache, self.policy, self.rates, self.device, self.options
        )
        return self

    def __exit__(self, *_problem):
        self.moe.close()

    def decode(self, layer, hidden, routing):
        return self._forward(layer, hidden, routing, "decode")

    def prefill(self, layer, hidden, routing):
        return self._forward(layer, hidden, routing, "prefill")

    def _forward(self, layer, hidden, routing, phase):
        place = self.device.torch_device
        routing = Routing(routing.ids.to(place), routing.weights.to(place))
        return self.moe.forward(layer, hidden.to(place), routing, phase).cpu()


def random_step(seed, tokens=2):
    """Return (hidden [T, H], Routing [T, K]) of one layer."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, LAYOUT.hidden, generator=generator)
    ids = torch.stack([torch.randperm(EXPERTS, generator=generator) for _ in range(tokens)])
    weights = torch.rand(tokens, TOP_K, generator=generator)
    return hidden, Routing(ids[:, :TOP_K].to(torch.int32), weights)


def route_to(*experts, tokens=1):
    """Return (hidden, Routing) in which every token takes these experts."""
    hidden = torch.linspace(-1, 1, LAYOUT.hidden).repeat(tokens, 1)
    ids = torch.tensor([experts] * tokens, dtype=torch.int32)
    return hidden, Routing(ids, torch.full(ids.shape, 0.25))


def oracle(pool, layer, hidden, routing):
    """Compute one layer straight from the pool, route by route, by the CPU's kernel."""
    kernel = expert_kernel(pool.layout, torch.device("cpu"))

    def row(token, expert):
        kernel.load([pool.record(layer * EXPERTS + expert)])
        return kernel.row(hidden[token])

    rows = torch.stack(
        [
            torch.stack([row(token, expert) for expert in experts])
            for token, experts in enumerate(routing.ids.tolist())
        ]
    )
    return merge_routes(rows, routing.weights)
