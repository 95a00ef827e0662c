"""One MoE layer on the emulator: routes, bits, mailbox, tables, and what happens without a pool."""

import ctypes
import random

import pytest
import torch

from kernels.cuda.experts import MoeArguments, MoeLayerArguments, MoeLayerWeights
from kernels.cuda.moe_state import PLAN_BYTES, MissMode, MoePolicy, MoeState, moe_obstacle
from kernels.cuda.residency import Eviction
from kernels.reference.routing import topk_softmax
from tests.kernels.cuda.moe_support import (
    CPU,
    EPS,
    SmallModel,
    needs_native,
    read_plan,
    small_shape,
)
from tests.kernels.emulator import needs_emulator

pytestmark = [needs_emulator, needs_native]
SHORT_NS = 1_000_000_000


def slot_contents_match(model: SmallModel) -> bool:
    """Whether every slot holds what the tables say, byte for byte."""
    tables = model.state.snapshot()
    for slot, record in enumerate(tables.owner.tolist()):
        size = int(tables.valid[record]) * model.shape.layout.unit_bytes if record >= 0 else 0
        if size and not torch.equal(model.slots[slot, :size], model.records[record, :size]):
            return False
    return True


def random_routes(model: SmallModel, rng: random.Random, pool: int = 0) -> list[list[int]]:
    """Routes of every row, from the first `pool` experts so that rows share some."""
    experts = range(pool or model.shape.num_experts)
    return [rng.sample(experts, model.shape.top_k) for _ in range(model.shape.rows)]


CASES = {
    "bf16, 1 row": {"rows": 1},
    "bf16, 3 rows": {"rows": 3},
    "bf16, 8 rows": {"rows": 8, "experts": 16, "top_k": 8, "max_slots": 48},
    "fp8, 1 row": {"rows": 1, "encoding": "fp8_block"},
    "fp8, 5 rows, wide": {"rows": 5, "encoding": "fp8_block", "hidden": 512, "group": 128},
    "fp8, 2 rows, as built in": {"rows": 2, "encoding": "fp8_block", "hidden": 384, "group": 128},
    "bf16, 2 rows, 1 unit": {"rows": 2, "units": 1, "hidden": 640},
    "bf16, 2 rows, 3 passes": {"rows": 2, "units": 2, "hidden": 5120, "layers": 1},
    "fp8, 2 rows, long": {
        "rows": 2,
        "units": 2,
        "hidden": 4352,
        "layers": 1,
        "encoding": "fp8_block",
    },
    "bf16, 1 row, 50 units": {"rows": 1, "units": 50, "layers": 1},
}
SOME_POLICIES = [
    MoePolicy(mode=mode, eviction=eviction, share=0.4, store_min=store_min)
    for mode, eviction, store_min in (
        (MissMode.TWO_ENDED, Eviction.FREQUENCY, 1),
        (MissMode.TWO_ENDED, Eviction.LRU, 2),
        (MissMode.SPLIT, Eviction.LRU, 1),
        (MissMode.SPLIT, Eviction.FREQUENCY, 1),
        (MissMode.FILL_ONLY, Eviction.FREQUENCY, 1),
        (MissMode.CPU_ONLY, Eviction.LRU, 1),
    )
]


@pytest.mark.parametrize("name", CASES)
def test_layer_when_served_in_any_way_then_bits_are_those_of_the_cpu_kernels(name):
    """Every mode, growing residency, units split anywhere: one truth; slots hold true copies."""
    model = SmallModel(small_shape(**CASES[name]), workers=2, host_threads=2)
    rng = random.Random(name)
    with model.pool():
        for turn, policy in enumerate(SOME_POLICIES * (2 if model.shape.hidden < 1024 else 1)):
            model.state.set_policy(policy)
            layer = rng.randrange(model.shape.num_layers)
            seen = model.run(layer, model.inputs(random_routes(model, rng, 9), turn))
            assert torch.equal(seen.output, seen.expected), (policy, seen.plan)
            assert model.state.snapshot().faults() == []
            assert slot_contents_match(model), policy
    counts = model.state.counts()
    assert counts.errors == 0
    assert min(counts.hit_units, counts.link_units, counts.cpu_units) > 0


def test_layer_when_served_in_any_way_then_the_next_layers_see_the_same():
    """The hash of whole steps does not depend on policy, slots, workers or threads."""
    hashes = set()
    for policy, slots, workers, threads in (
        (MoePolicy(mode=MissMode.FILL_ONLY), 36, 1, 0),
        (MoePolicy(mode=MissMode.TWO_ENDED), 5, 2, 1),
        (MoePolicy(mode=MissMode.SPLIT, share=0.5, eviction=Eviction.LRU), 7, 3, 2),
        (MoePolicy(mode=MissMode.CPU_ONLY), 1, 1, 1),
    ):
        model = SmallModel(small_shape(rows=2), policy, slots, workers)
        if threads == 0:
            model.state.set_policy(MoePolicy(mode=MissMode.FILL_ONLY, pool=False))
        rng = random.Random(5)
        with model.pool(threads):
            for step in range(4):
                model.x.copy_(model.inputs(random_routes(model, rng), step))
                for layer in model.layers:
                    model.kernels.launch(layer)
                model.kernels.launch_hash()
        assert model.state.counts().errors == 0
        hashes.add(model.state.counts().hash)
    assert len(hashes) == 1
    assert hashes != {0}


ROUTERS = {
    "small": {"rows": 3},
    "as Qwen3-30B": {"experts": 128, "top_k": 8, "max_slots": 64},
    "many experts": {"rows": 4, "experts": 512, "top_k": 16, "layers": 1, "hidden": 512},
    "fp32": {"rows": 2, "router": "float32", "hidden": 2560, "experts": 21},
    "one of one": {"rows": 8, "experts": 1, "top_k": 1},
}


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("normalise", [True, False])
def test_routes_equal_softmax_and_topk_of_torch(name, normalise):
    """Norm, logits, ids in order, weights; a scale multiplies them at the end."""
    shape = small_shape(**ROUTERS[name], units=1, normalise=normalise)
    model = SmallModel(shape, MoePolicy(pool=False), 1)
    g = torch.Generator().manual_seed(3)
    router = torch.randn(shape.num_experts, shape.hidden, generator=g).to(model.router.dtype)
    norm = torch.rand(shape.hidden, generator=g) + 0.5
    address = model.records[0].data_ptr()
    bound = model.kernels.bind(0, MoeLayerWeights(router, norm, address, EPS, 0.5))
    x = torch.randn(shape.rows, shape.hidden, generator=g)
    model.x.copy_(x)
    model.kernels.launch(bound)
    normed = x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPS) * norm
    torch.testing.assert_close(model.scratch.normed, normed, rtol=1e-5, atol=1e-6)
    logits = model.scratch.normed @ router.float().T
    torch.testing.assert_close(model.scratch.logits[0], logits, rtol=1e-4, atol=1e-3)
    ids, weights = topk_softmax(model.scratch.logits[0], shape.top_k, normalise, 0.5)
    plan = read_plan(model.scratch, shape)
    got = torch.from_numpy(plan.jobs["record"][plan.route_job])
    assert torch.equal(got.view_as(ids), ids)
    torch.testing.assert_close(
        torch.from_numpy(plan.route_weight.copy()).view_as(weights), weights, rtol=1e-5, atol=1e-8
    )


def test_routes_when_logits_tie_or_are_nan_then_ids_are_distinct_and_lowest_first():
    """Equal logits go to lower ids; broken ones lead nowhere outside the experts."""
    model = SmallModel(small_shape(rows=2, top_k=5), MoePolicy(pool=False), 1)
    x = torch.ones(2, 256)
    x[1, 4] = float("nan")
    plan = model.run(0, x).plan
    ids = plan.jobs["record"][plan.route_job].reshape(2, -1)
    assert ids[0].tolist() == [0, 1, 2, 3, 4]
    assert len(set(ids[1].tolist())) == 5
    assert set(ids[1].tolist()) <= set(range(12))


def test_plan_when_rows_share_experts_then_jobs_are_distinct_and_pairs_are_counted():
    """A job's rows are a mask; pairs follow in order of row; the list's jobs come first."""
    model = SmallModel(small_shape(rows=3), MoePolicy(mode=MissMode.CPU_ONLY), 9)
    with model.pool():
        plan = model.run(1, model.inputs([[5, 2, 7], [2, 5, 9], [7, 2, 0]], 0)).plan
    jobs = {int(job["record"]) - 12: job for job in plan.jobs}
    assert {expert: int(job["rows"]) for expert, job in jobs.items()} == {
        5: 0b011,
        2: 0b111,
        7: 0b101,
        9: 0b010,
        0: 0b100,
    }
    assert sorted(plan.route_pair.tolist()) == list(range(9))
    for route, (row, expert) in enumerate(
        (row, expert)
        for row, experts in enumerate([[5, 2, 7], [2, 5, 9], [7, 2, 0]])
        for expert in experts
    ):
        job = jobs[expert]
        before = int(job["rows"]) & ((1 << row) - 1)
        assert plan.route_pair[route] == job["base"] + before.bit_count()
    # With LRU or no history all keys are equal: the later route's expert is nearer to the front.
    assert plan.jobs["start"].tolist() == [0, 3, 6, 9, 12]
    assert plan.words["units"] == 15


def test_mail_holds_the_list_and_the_inputs():
    """What the pool reads: jobs in list order, first units, masks, normed rows, the limit."""
    policy = MoePolicy(mode=MissMode.SPLIT, share=0.25)
    model = SmallModel(small_shape(rows=2), policy, 9)
    with model.pool():
        for call in (1, 2, 3):
            seen = model.run(2, model.inputs([[1, 2, 3], [3, 4, 5]], call))
            plan = seen.plan
            listed, units = plan.words["listed"], plan.words["units"]
            assert model.box.words() == (call, listed, 2, units - round(0.25 * units))
            mail = model.box.jobs(listed)
            for name, field in (("record", "record"), ("first", "valid"), ("rows", "rows")):
                assert mail[name].tolist() == plan.jobs[field][:listed].tolist()
            assert mail["base"].tolist() == plan.jobs["base"][:listed].tolist()
            assert torch.equal(model.box.x(2, 256), model.scratch.normed)
            assert torch.equal(seen.output, seen.expected)
    assert plan.words["units"] < 15  # the second call's fills are hits now


def test_modes_share_units_out_as_they_say():
    """split: exactly its share; fill_only: nothing published; cpu_only: no slot changes."""
    model = SmallModel(small_shape(units=4), MoePolicy(mode=MissMode.SPLIT, share=0.5), 9)
    with model.pool():
        model.run(0, model.inputs([[1, 2, 3]], 1))
        counts = model.state.counts()
        assert (counts.link_units, counts.cpu_units, counts.wasted_units) == (6, 6, 0)
        model.state.set_policy(MoePolicy(mode=MissMode.CPU_ONLY))
        before = model.state.snapshot()
        model.run(1, model.inputs([[4, 5, 6]], 2))
        after = model.state.snapshot()
        assert model.state.counts().cpu_units == 18
        assert (before.owner == after.owner).all()
        assert (before.valid == after.valid).all()
        call = model.box.words()[0]
        model.state.set_policy(MoePolicy(mode=MissMode.FILL_ONLY))
        model.run(1, model.inputs([[4, 5, 6]], 3))
        assert model.box.words()[0] == call
        assert model.state.counts().link_units == 18
    assert model.state.counts().errors == 0


def test_layers_whose_records_the_link_cannot_read_are_left_to_the_cpu():
    """Memory that could not be pinned: no worker touches it, whatever the policy (case M-02)."""
    model = SmallModel(small_shape(), MoePolicy(mode=MissMode.FILL_ONLY), 9)
    model.state.set_link(1, usable=False)
    bound = model.kernels.bind(1, MoeLayerWeights(model.router, model.norm, 0, EPS))
    with model.pool():
        model.x.copy_(x := model.inputs([[1, 2, 3]], 1))
        model.kernels.launch(bound)
    assert torch.equal(model.x, model.truth(x, read_plan(model.scratch, model.shape)))
    assert model.state.counts().cpu_units == 9
    # Without a pool nobody can serve such a layer, which is an error and no hang.
    model.state.set_policy(MoePolicy(pool=False))
    model.kernels.launch(bound)
    assert model.state.counts().pool_errors == 1
    assert model.x.isfinite().all()


@pytest.mark.parametrize("policy", SOME_POLICIES)
def test_steps_when_only_some_layers_have_a_link_then_the_hash_is_the_same(policy):
    """Any policy; what the link brings is learned from layers that have one (case M-02)."""
    hashes, shares = set(), []
    for linked in ((0, 1, 2), (0,), ()):
        model = SmallModel(small_shape(rows=2), policy, 5)
        layers = [model.layers[layer] for layer in range(3)]
        for layer in {0, 1, 2}.difference(linked):
            model.state.set_link(layer, usable=False)
            weights = MoeLayerWeights(model.router, model.norm, 0, EPS)
            layers[layer] = model.kernels.bind(layer, weights)
        rng = random.Random(5)
        with model.pool(1):
            for step in range(4):
                model.x.copy_(model.inputs(random_routes(model, rng), step))
                for layer in layers:
                    model.kernels.launch(layer)
                model.kernels.launch_hash()
        counts = model.state.counts()
        assert counts.errors == 0
        hashes.add(counts.hash)
        shares.append(float(model.state.clock.view(torch.float32)[3]))
        tables = model.state.snapshot()
        assert {record // 12 for record in tables.resident()} <= set(linked)
    assert len(hashes) == 1
    assert hashes != {0}
    assert shares[2] == pytest.approx(policy.share)


@pytest.mark.parametrize("mode", [MissMode.TWO_ENDED, MissMode.CPU_ONLY])
def test_pool_when_it_does_not_answer_then_it_is_counted_and_asked_no_more(mode):
    """A dead pool is an error within the watchdog's time, never a hang: one wait for all layers."""
    model = SmallModel(small_shape(), MoePolicy(mode=mode), 9, defines={"FT_WATCHDOG_NS": SHORT_NS})
    for layer in range(3):
        assert model.run(layer, model.inputs([[1, 2, 3]], layer)).output.isfinite().all()
    counts = model.state.counts()
    assert (counts.timeouts, counts.errors) == (1, 1)
    assert model.box.words()[0] == 1
    # A pool that was started anew is asked again.
    model.state.begin_calls_at(1)
    with model.pool():
        seen = model.run(1, model.inputs([[7, 8, 9]], 4))
    assert torch.equal(seen.output, seen.expected)
    assert model.box.words()[0] == 2
    assert model.state.counts().timeouts == 1


def test_pool_when_it_refuses_a_call_then_it_is_counted():
    """Reply.error: here because the pool knows fewer records than the step names."""
    model = SmallModel(small_shape(), MoePolicy(mode=MissMode.CPU_ONLY), 9)
    everything, model.records = model.records, model.records[:13]
    with model.pool():
        model.records = everything
        assert model.run(2, model.inputs([[1, 2, 3]], 1)).output.isfinite().all()
        counts = model.state.counts()
        assert (counts.timeouts, counts.pool_errors) == (0, 1)


def test_call_numbers_wrap_around():
    """32 bits of calls are days of decoding; then they start at 0 again."""
    model = SmallModel(small_shape(), MoePolicy(mode=MissMode.TWO_ENDED), 9)
    model.state.begin_calls_at(0xFFFFFFFE)
    at = model.box.mail_at - model.box.mail.data_ptr()
    model.box.mail[at : at + 4].view(torch.int32)[0] = -2
    rng = random.Random(1)
    with model.pool():
        for turn in range(4):
            seen = model.run(turn % 3, model.inputs(random_routes(model, rng), turn))
            assert torch.equal(seen.output, seen.expected)
    assert model.box.words()[0] == 2
    assert model.state.counts().errors == 0


def test_structures_are_as_large_as_in_the_source():
    """The source asserts the same numbers when it is compiled."""
    assert ctypes.sizeof(MoeArguments) == 20 * 8
    assert ctypes.sizeof(MoeLayerArguments) == 56
    assert PLAN_BYTES == 96 + 64 * 16 + 64 * 12
    assert len(MoePolicy().packed(1, 2)) == 32


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden": 8320}, "over 8192"),
        ({"rows": 8, "experts": 16, "top_k": 9}, "72 routes"),
        ({"experts": 32, "top_k": 17}, "top 17"),
        ({"experts": 513}, "over 512"),
        ({"max_slots": 0}, "0 slots"),
        ({"max_slots": 16385}, "16385 slots"),
        ({"router": "fp8_block"}, "router"),
    ],
)
def test_shapes_that_the_kernels_do_not_take_are_named(sizes, words):
    """The caller then uses the reference path and says why."""
    shape = small_shape(**sizes)
    assert words in moe_obstacle(shape)
    with pytest.raises(ValueError, match=words):
        MoeState(shape, CPU, 1)


def test_tensors_that_do_not_fit_are_refused():
    """Before an address reaches a kernel."""
    model = SmallModel(small_shape(), num_slots=3)
    address = model.records.data_ptr()
    for router, norm in (
        (model.router.float(), model.norm),
        (model.router[:5], model.norm),
        (model.router, model.norm.double()),
        (model.router, model.norm[::2]),
    ):
        with pytest.raises(ValueError, match="expected torch"):
            model.kernels.bind(0, MoeLayerWeights(router, norm, address, EPS))
    with pytest.raises(ValueError, match="layer 3 of 3"):
        model.kernels.bind(3, MoeLayerWeights(model.router, model.norm, address, EPS))
    with pytest.raises(ValueError, match="17 link workers"):
        SmallModel(small_shape(), workers=17)
    with pytest.raises(ValueError, match="37 slots"):
        SmallModel(small_shape(), num_slots=37)
