"""Routes of a prompt, counted at once."""

import torch

from engine.moe.prompt_routes import RouteCounter, Routes
from kernels.device.cpu import CpuDevice


def prompt_uses(ids: torch.Tensor, num_experts: int) -> Routes:
    """Return what a layer routes. Shapes: ids [T, K]."""
    counter = RouteCounter(CpuDevice(), num_experts, ids.shape[1], 0)
    counter.start(len(ids))
    routes = counter.count(ids).read()
    counter.close()
    return routes
