"""What a layer tells the pool about the next one: its very list, if its input is the same."""

import pytest
import torch

from kernels.cuda.experts import MoeLayerWeights
from kernels.cuda.moe_state import MissMode, MoePolicy
from kernels.cuda.residency import Eviction
from tests.kernels.cuda.moe_support import EPS, SmallModel, needs_native, small_shape
from tests.kernels.emulator import needs_emulator

pytestmark = [needs_emulator, needs_native]
ROUTES = ([[1, 2, 3]], [[4, 2, 9], [9, 10, 1], [5, 2, 7]])


@pytest.mark.parametrize("eviction", Eviction)
@pytest.mark.parametrize("routes", ROUTES, ids=["1 row", "3 rows"])
def test_guess_when_the_input_stays_is_the_next_layers_list(eviction, routes):
    """Same experts, same first units, same order; with some of them whole or in part in slots."""
    policy = MoePolicy(mode=MissMode.SPLIT, share=0.4, eviction=eviction)
    shape = small_shape(rows=len(routes), units=4, max_slots=30)
    model = SmallModel(shape, policy, 30, own_routers=True)
    with model.pool():
        for seed, before in enumerate([[2, 1, 9], [9, 2, 3], [4, 2, 1]]):  # the next layer's uses
            model.run(1, model.inputs([before] * len(routes), seed))
        x = model.inputs(routes, 5)
        model.run(0, x)
        number, guess = model.box.guess()
        plan = model.run(1, x).plan
    assert number == 4  # layer 1 told of layer 2 three times, layer 0 of layer 1
    listed = plan.jobs[: plan.words["listed"]]
    assert guess == list(zip(listed["record"].tolist(), listed["valid"].tolist(), strict=True))
    assert {record for record, _ in guess} <= {12 + e - 1 for row in routes for e in row}
    assert guess
    assert plan.jobs["valid"].any()


@pytest.mark.parametrize("routes", ROUTES, ids=["1 row", "3 rows"])
def test_next_router_when_it_is_asked_ahead_then_the_layer_itself_sees_its_own(routes):
    """Each of the two has its router and its norm; the pool gets the layer's input."""
    model = SmallModel(small_shape(rows=len(routes)), own_routers=True)
    x = model.inputs(routes, 3)
    with model.pool():
        seen = model.run(0, x)
    inputs = [x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPS) * n for n in model.norms]
    torch.testing.assert_close(model.scratch.normed, inputs[0], rtol=1e-5, atol=1e-6)
    for layer in (0, 1):
        logits = inputs[layer] @ model.routers[layer].float().T
        torch.testing.assert_close(model.scratch.logits[layer], logits, rtol=1e-4, atol=1e-3)
    assert set(seen.plan.jobs["record"].tolist()) == {e for row in routes for e in row}
    assert torch.equal(seen.output, seen.expected)


def test_guess_holds_the_first_of_many():
    """There are 16 places; the list's front is the pool's."""
    shape = small_shape(rows=8, experts=24, top_k=3, layers=2, max_slots=1)
    model = SmallModel(shape, MoePolicy(mode=MissMode.CPU_ONLY), 1)
    x = model.inputs([[3 * row, 3 * row + 1, 3 * row + 2] for row in range(8)], 1)
    with model.pool():
        model.run(0, x)
        _, guess = model.box.guess()
        plan = model.run(1, x).plan
    assert len(guess) == 16
    assert not model.box.behind_the_guess().any()
    assert [record for record, _ in guess] == plan.jobs["record"][:16].tolist()


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        (MoePolicy(look_ahead=False), 9),
        (MoePolicy(mode=MissMode.FILL_ONLY), 9),
        (MoePolicy(), 36),  # every expert has a slot sooner or later
    ],
    ids=["off", "no pool", "all slots"],
)
def test_guess_when_nobody_would_fetch_it_is_not_made(policy, slots):
    """The next router is not even asked; a change of policy or slots changes that."""
    model = SmallModel(small_shape(), policy, slots)
    with model.pool():
        model.run(0, model.inputs([[1, 2, 3]], 1))
        assert model.box.guess() == (0, [])
        model.state.set_policy(MoePolicy())
        tables = model.state.snapshot()
        tables.shrink(8)
        model.state.install(tables)
        model.run(0, model.inputs([[1, 2, 4]], 2))
        assert model.box.guess()[0] == 1


def test_guess_of_a_layer_that_misses_nothing_is_not_told():
    """The pool keeps the older one, which it has fetched already."""
    model = SmallModel(small_shape(), MoePolicy(mode=MissMode.SPLIT, share=1.0), 9)
    x = model.inputs([[1, 2, 3]], 1)
    with model.pool():
        model.run(1, x)  # finds the first slots that may be taken; tells of layer 2
        model.run(1, x)  # fills layer 1's experts
        number, guess = model.box.guess()
        model.run(0, x)
    assert model.box.guess() == (number, guess)
    assert number == 2


def test_last_layer_has_none_to_look_at():
    """The next step's token is not known yet."""
    model = SmallModel(small_shape(layers=2), num_slots=9)
    with model.pool():
        model.run(1, model.inputs([[1, 2, 3]], 1))
        assert model.box.guess()[0] == 0
    weights = MoeLayerWeights(model.router, model.norm, 0, EPS)
    with pytest.raises(ValueError, match="layer 1 is the last one"):
        model.kernels.bind(1, weights, weights)
