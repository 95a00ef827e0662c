"""MoE layers on the card, with real sizes and the C++ pool: the same bits as on the CPU, always."""

import random

import pytest
import torch

from kernels.cuda import cuda_obstacle
from kernels.cuda.__main__ import qwen3_30b
from kernels.cuda.experts import MoeLayerWeights
from kernels.cuda.moe_state import MissMode, MoePolicy
from kernels.cuda.residency import Eviction
from kernels.device import cuda
from kernels.device.cpu import plain_buffer
from kernels.device.cuda_calls import device_pointer
from kernels.device.memory import PinnedBuffer
from tests.kernels.cuda.moe_support import EPS, SmallModel, needs_native, small_shape

needs_card = pytest.mark.skipif(bool(cuda_obstacle()), reason=cuda_obstacle() or "it is there")
pytestmark = [pytest.mark.gpu, needs_card, needs_native, pytest.mark.timeout(300)]
THREADS = 8
LAYERS = 2
POLICIES = [
    MoePolicy(mode=mode, eviction=eviction, share=share, store_min=store_min)
    for mode, eviction, share, store_min in (
        (MissMode.TWO_ENDED, Eviction.FREQUENCY, 0.4, 1),
        (MissMode.SPLIT, Eviction.LRU, 0.3, 1),
        (MissMode.TWO_ENDED, Eviction.LRU, 0.4, 24),
        (MissMode.FILL_ONLY, Eviction.LRU, 0.4, 1),
        (MissMode.CPU_ONLY, Eviction.FREQUENCY, 0.4, 1),
        (MissMode.SPLIT, Eviction.FREQUENCY, 0.77, 1),
    )
]


def routes_of(model: SmallModel, rng: random.Random, experts: int) -> list[list[int]]:
    return [rng.sample(range(experts), model.shape.top_k) for _ in range(model.shape.rows)]


@pytest.fixture(
    scope="module",
    params=[
        (1, "bf16"),
        (3, "bf16"),
        (8, "bf16"),
        (1, "fp8_block"),
        (2, "fp8_block"),
        (8, "fp8_block"),
    ],
    ids=lambda p: f"{p[1]}, {p[0]} rows",
)
def model(request: pytest.FixtureRequest) -> SmallModel:
    rows, encoding = request.param
    shape = qwen3_30b(rows, encoding, num_layers=LAYERS)
    return SmallModel(shape, num_slots=40, workers=6, device=torch.device("cuda"))


def test_layers_when_served_in_any_way_then_bits_are_those_of_the_cpu_kernels(model):
    """Hits, units over the link, units of the pool, partly resident experts; rows share experts."""
    rng = random.Random(1)
    before = model.state.counts()
    with model.pool(THREADS) as pool:
        for turn in range(24):
            model.state.set_policy(POLICIES[turn % len(POLICIES)])
            pool.wake()
            seen = model.run(turn % LAYERS, model.inputs(routes_of(model, rng, 24), turn))
            assert torch.equal(seen.output, seen.expected), (turn, model.state.policy)
            tables = model.state.snapshot()
            assert tables.faults() == []
    for slot, record in enumerate(tables.owner.tolist()):
        size = int(tables.valid[record]) * model.shape.layout.unit_bytes if record >= 0 else 0
        assert torch.equal(model.slots[slot, :size].cpu(), model.records[record, :size])
    counts = model.state.counts()
    assert counts.errors == before.errors
    assert counts.hit_units > before.hit_units
    assert counts.link_units > before.link_units
    assert counts.cpu_units > before.cpu_units


@pytest.mark.parametrize("encoding", ["bf16", "fp8_block"])
def test_steps_back_to_back_give_one_hash_for_every_policy(encoding):
    """Layers queued without a pause, kernels overlapping: nothing reads what is not there yet."""
    shape = qwen3_30b(1, encoding, num_layers=LAYERS)
    model = SmallModel(shape, num_slots=30, workers=8, device=torch.device("cuda"))
    hashes = set()
    with model.pool(THREADS) as pool:
        for policy in POLICIES:
            model.state.set_policy(policy)
            model.state.counters[-1] = 0
            rng = random.Random(3)
            for step in range(12):
                pool.wake()
                model.x.copy_(model.inputs(routes_of(model, rng, 40), step))
                for layer in model.layers * 4:
                    model.kernels.launch(layer)
                model.kernels.launch_hash()
            hashes.add(model.state.counts().hash)
    assert len(hashes) == 1
    assert hashes != {0}
    assert model.state.counts().errors == 0


def half_pinned(model: SmallModel) -> PinnedBuffer:
    """A copy of the model's records of which the driver pins the first layer only."""
    layer_bytes = model.shape.num_experts * model.shape.layout.record_bytes
    plain = plain_buffer(LAYERS * layer_bytes)
    plain.tensor.copy_(model.records.view(-1))
    end = plain.tensor.data_ptr() + layer_bytes

    def pin(address: int, num_bytes: int) -> None:
        if address >= end:
            raise RuntimeError("half is enough")
        cuda._register(address, num_bytes)

    return PinnedBuffer(plain, pin, cuda._unregister, layer_bytes)


@pytest.mark.parametrize("encoding", ["bf16", "fp8_block"])
def test_steps_when_half_of_the_layers_are_pinned_then_the_hash_is_the_same(encoding):
    """The other half is pageable: the CPU serves it under every policy (case M-02)."""
    shape = qwen3_30b(1, encoding, num_layers=LAYERS)
    model = SmallModel(shape, num_slots=30, workers=8, device=torch.device("cuda"))
    buffer = half_pinned(model)
    assert buffer.pinned_bytes == model.records.nbytes // LAYERS
    whole, hashes, link_units = model.records, [], []
    model.records = buffer.tensor.view_as(whole)  # what the CPU reads; the same bytes
    address = device_pointer(model.records.data_ptr())
    half = [
        model.kernels.bind(0, MoeLayerWeights(model.router, model.norm, address, EPS)),
        model.kernels.bind(1, MoeLayerWeights(model.router, model.norm, 0, EPS)),
    ]
    with model.pool(THREADS) as pool:
        for layers in (model.layers, half):
            model.state.set_link(1, usable=layers is not half)
            for policy in POLICIES:
                model.state.set_policy(policy)
                model.state.counters[-1] = 0
                rng = random.Random(3)
                for step in range(12):
                    pool.wake()
                    model.x.copy_(model.inputs(routes_of(model, rng, 40), step))
                    for layer in layers * 4:
                        model.kernels.launch(layer)
                    model.kernels.launch_hash()
                hashes.append(model.state.counts().hash)
            link_units.append(model.state.counts().link_units)
    buffer.close()  # every count has waited for the card
    assert len(set(hashes)) == 1
    assert hashes[0] != 0
    assert link_units[1] > link_units[0] > 0
    assert model.state.counts().errors == 0


@pytest.mark.parametrize(
    "sizes",
    [
        {"rows": 2, "hidden": 5120, "units": 4, "experts": 512, "top_k": 16},
        {
            "rows": 4,
            "hidden": 384,
            "units": 8,
            "experts": 24,
            "encoding": "fp8_block",
            "group": 128,
        },
        {"rows": 1, "hidden": 8192, "units": 100, "experts": 9, "encoding": "fp8_block"},
        {"rows": 3, "router": "float32", "max_slots": 16384},
    ],
    ids=["wide", "built in", "long", "many slots"],
)
def test_layers_of_other_sizes_give_the_same_bits(sizes):
    """Rows in passes, ragged chunks, more units than fly ahead, the longest search for victims."""
    shape = small_shape(**sizes, layers=LAYERS) if "layers" not in sizes else small_shape(**sizes)
    model = SmallModel(shape, num_slots=12, workers=4, device=torch.device("cuda"))
    rng = random.Random(2)
    with model.pool(THREADS) as pool:
        for turn in range(12):
            model.state.set_policy(POLICIES[turn % len(POLICIES)])
            pool.wake()
            routes = routes_of(model, rng, min(20, shape.num_experts))
            seen = model.run(turn % LAYERS, model.inputs(routes, turn))
            assert torch.equal(seen.output, seen.expected), turn
            assert model.state.snapshot().faults() == []
    assert model.state.counts().errors == 0


def test_pool_when_it_does_not_answer_then_the_card_goes_on():
    """One wait of the watchdog, an error, no hang."""
    model = SmallModel(
        small_shape(),
        MoePolicy(mode=MissMode.CPU_ONLY),
        9,
        defines={"FT_WATCHDOG_NS": 20_000_000},
        device=torch.device("cuda"),
    )
    for layer in range(3):
        assert model.run(layer, model.inputs([[1, 2, 3]], layer)).output.isfinite().all()
    assert model.state.counts().timeouts == 1
    assert model.box.words()[0] == 1
