"""Routes of a prompt chunk, counted on the device and read later."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.moe.prompt_routes import PROMPT_LOSS, Counted, RouteCounter
from kernels.device.cpu import CpuDevice
from kernels.device.fake import FakeDevice

EXPERTS, TOP_K, WINDOW = 7, 3, 4


@pytest.fixture
def counter():
    made = RouteCounter(CpuDevice(), EXPERTS, TOP_K, WINDOW)
    yield made
    made.close()


@given(st.integers(1, 40), st.integers(0, 99))
def test_counts_are_those_of_every_token_and_the_last_routes_come_as_they_are(tokens, seed):
    """Layer after layer with one buffer, each read before the next is counted."""
    made = RouteCounter(CpuDevice(), EXPERTS, TOP_K, WINDOW)
    made.start(tokens)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        ids = torch.rand(tokens, EXPERTS, generator=generator).topk(TOP_K).indices.to(torch.int32)
        routes = made.count(ids).read()
        flat = ids.flatten().tolist()
        assert routes.counts.tolist() == [flat.count(expert) for expert in range(EXPERTS)]
        assert routes.routed == sorted(set(flat))
        assert routes.last.tolist() == ids[-WINDOW:].tolist()
        weights = PROMPT_LOSS ** np.arange(tokens - 1, -1, -1.0)
        wanted = [weights[(ids == expert).any(1).numpy()].sum() for expert in range(EXPERTS)]
        np.testing.assert_allclose(routes.uses, wanted, atol=tokens * 1e-3)
    made.close()


def test_counts_when_a_reader_comes_then_it_waits_for_their_arrival(counter):
    """What was in the buffer before is another layer's."""
    waited = []

    class Arrival:
        def synchronize(self):
            waited.append(True)

    counter.start(1)
    numbers = torch.zeros(EXPERTS + TOP_K, dtype=torch.float64)
    assert Counted(numbers, Arrival(), EXPERTS, TOP_K).read().routed == []
    assert waited == [True]


def test_counter_when_closed_then_its_host_memory_is_free():
    """Pinned memory is the system's."""
    device = FakeDevice()
    made = RouteCounter(device, EXPERTS, TOP_K, WINDOW)
    assert len(device.pins.held) == 1
    made.close()
    assert device.pins.held == {}
