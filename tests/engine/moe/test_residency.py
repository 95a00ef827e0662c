"""The numerics contract: no bit of an output depends on residency, policy, split or resize.

ARCHITECTURE.md, Numerics; the poison test shows that the bytes really are read where it is said.
"""

import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.memory.bandwidth import Rates
from engine.moe.executor import MoeOptions
from engine.protocol.messages import MissPolicy
from tests.engine.moe.world import EXPERTS, LAYERS, RECORDS, World, oracle, random_step, route_to

DEVICES = ("cpu", "fake")
ALSO_GPU = (*DEVICES, pytest.param("cuda", marks=pytest.mark.gpu))


@functools.cache
def _wanted(seed, tokens):
    """What a step over all layers must give: three outputs, computed without any cache."""
    with World() as world:
        return tuple(
            oracle(world.pool, layer, *random_step(seed * LAYERS + layer, tokens))
            for layer in range(LAYERS)
        )


def _check_step(world, seed, tokens):
    for layer, wanted in enumerate(_wanted(seed, tokens)):
        output = world.decode(layer, *random_step(seed * LAYERS + layer, tokens))
        assert torch.equal(output, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy", MissPolicy)
def test_decode_when_slots_and_policy_vary_keeps_every_bit(device, policy):
    """Every cache size from one slot to all experts, on the CPU and beside an accelerator."""
    for slots in range(1, RECORDS + 1):
        with World(device, slots, policy) as world:
            for seed in range(3):
                _check_step(world, seed, tokens=1 + seed)


@pytest.mark.gpu
def test_decode_when_on_a_gpu_keeps_every_bit_of_what_it_computes_there():
    """One kind of device: the same bits for any number of slots. The CPU's share: 1e-5 of it."""
    steps = [random_step(seed, tokens) for seed, tokens in enumerate((1, 1, 2, 5))]
    outputs = {}
    for policy in MissPolicy:
        for slots in (1, 3, 7, RECORDS):
            with World("cuda", slots, policy) as world, torch.inference_mode():
                world.prefill(0, *random_step(99, 20))
                got = [world.decode(0, *step) for step in steps for _ in range(2)]
                outputs[policy, slots] = torch.cat(got)
    wanted = outputs[MissPolicy.FILL_ONLY, RECORDS]
    for (policy, _), output in outputs.items():
        if policy is MissPolicy.FILL_ONLY:
            assert torch.equal(output, wanted)
        assert (output - wanted).abs().max() < 1e-5 * wanted.abs().max()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    device=st.sampled_from(DEVICES),
    staging=st.sampled_from((2, 3, 2 * EXPERTS)),
    plan=st.lists(
        st.tuples(
            st.integers(0, 7),
            st.integers(1, 8),
            st.integers(1, RECORDS),
            st.sampled_from(list(MissPolicy)),
            st.floats(0.1, 20.0),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_decode_when_everything_changes_between_steps_keeps_every_bit(device, staging, plan):
    """Resizes, policies, rates, 1-8 rows and prompts in between leave no trace in the output."""
    with World(device, 5, options=MoeOptions(staging_records=staging)) as world:
        for seed, tokens, slots, policy, ratio, prompt in plan:
            world.moe.resize(slots)
            world.moe.set_policy(policy)
            world.moe.set_rates(Rates(ratio, 10.0, ratio, 5.0))
            if prompt:
                world.prefill(seed % LAYERS, *random_step(99, 20))
            _check_step(world, seed, tokens)


@pytest.mark.parametrize("device", DEVICES)
def test_prefill_when_residency_and_path_vary_keeps_every_bit(device):
    """A chunk is computed the same way whatever is resident, staged whole or on demand."""
    for tokens in (1, 3, 20):
        chunks = [random_step(50 + layer, tokens) for layer in range(LAYERS)]
        outputs = []
        for slots, policy, staging in (
            (1, MissPolicy.CPU_ONLY, None),
            (5, MissPolicy.SPLIT, None),
            (RECORDS, MissPolicy.FILL_ONLY, None),
            (7, MissPolicy.SPLIT, 2),
            (7, MissPolicy.SPLIT, 5),
        ):
            with World(device, slots, policy, options=MoeOptions(staging)) as world:
                _check_step(world, 1, 2)
                for _ in range(2):
                    outputs.append(
                        torch.stack([world.prefill(i, *chunk) for i, chunk in enumerate(chunks)])
                    )
        assert all(torch.equal(output, outputs[0]) for output in outputs)


@pytest.mark.parametrize("device", ALSO_GPU)
def test_prefill_when_compared_with_decode_agrees_within_tolerance(device):
    """The grouped form sums in another order: 1e-5 of the largest value in fp32."""
    with World(device) as world:
        hidden, routing = random_step(7, 20)
        wanted = oracle(world.pool, 1, hidden, routing)
        output = world.prefill(1, hidden, routing)
        assert (output - wanted).abs().max() < 1e-5 * wanted.abs().max()


def _is_poisoned(world, *experts):
    return bool(torch.isnan(world.decode(0, *route_to(*experts))).any())


@pytest.mark.parametrize("device", ALSO_GPU)
def test_poison_when_an_expert_is_resident_lies_in_its_slot(device):
    """A hit reads the slot; its host record is not read until it has been evicted."""
    with World(device, 3, MissPolicy.FILL_ONLY) as world:
        assert not _is_poisoned(world, 0, 1, 2)
        clean = world.pool.record(0).clone()
        world.pool.record(0).fill_(255)  # NaN in every weight and scale
        assert not _is_poisoned(world, 0, 1, 2)
        assert not _is_poisoned(world, 3, 4, 5)  # evicts all three
        assert _is_poisoned(world, 0, 1, 2)
        world.pool.record(0).copy_(clean)
        assert _is_poisoned(world, 0, 1, 2)  # the slot still holds the poison
        world.cache.drop([0])
        assert not _is_poisoned(world, 0, 1, 2)
        world.cache.slot_of(1).fill_(255)
        assert _is_poisoned(world, 1)
        assert not _is_poisoned(world, 0, 2)


@pytest.mark.parametrize("device", ALSO_GPU)
def test_poison_when_the_cpu_serves_an_expert_lies_in_its_record(device):
    """A CPU-computed expert reads the host record; no slot has anything to do with it."""
    with World(device, 3, MissPolicy.FILL_ONLY) as world:
        _is_poisoned(world, 3, 4, 5)
        world.moe.set_policy(MissPolicy.CPU_ONLY)
        assert not _is_poisoned(world, 0, 1)
        for expert in (3, 4, 5):
            world.cache.slot_of(expert).fill_(255)
        assert not _is_poisoned(world, 0, 1)
        world.pool.record(1).fill_(255)
        assert _is_poisoned(world, 0, 1)
        assert not _is_poisoned(world, 0, 2)
