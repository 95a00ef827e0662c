"""Who is resident: properties over random steps, and whole traces against a plain model."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.cuda.moe_state import NUM_VICTIMS, MissMode, MoePolicy
from kernels.cuda.residency import FREE, NO_SLOT, Eviction, Ranking
from tests.kernels.cuda.moe_support import SmallModel, needs_native, small_shape
from tests.kernels.emulator import needs_emulator

pytestmark = [needs_emulator, needs_native]
POLICIES = st.builds(
    MoePolicy,
    mode=st.sampled_from(MissMode),
    share=st.floats(0, 1, width=32),
    eviction=st.sampled_from(Eviction),
    growth=st.sampled_from([0.0, 0.0426, 1.0]),
    store_min=st.integers(1, 3),
)


def resize(model: SmallModel, num_slots: int) -> None:
    """What the host does between steps: move tail slots down, then say so."""
    tables = model.state.snapshot()
    if num_slots <= tables.num_slots:
        for source, target in tables.shrink(num_slots).moves:
            model.slots[target].copy_(model.slots[source])
        model.slots[num_slots:] = 0xFF  # given back: NaN, if anybody still looks
    else:
        tables.grow(num_slots)
    model.state.install(tables)


def check_layer(model: SmallModel, layer: int, routes: list[list[int]], seed: int) -> None:
    """One layer: bits, sound tables, true copies, and no routed expert evicted."""
    before = model.state.snapshot()
    seen = model.run(layer, model.inputs(routes, seed))
    after = model.state.snapshot()
    assert torch.equal(seen.output, seen.expected)
    assert after.faults() == []
    for expert in {expert for row in routes for expert in row}:
        record = layer * model.shape.num_experts + expert
        if before.slot_of[record] != NO_SLOT:
            assert after.slot_of[record] == before.slot_of[record]
            assert after.valid[record] >= before.valid[record]
    if model.state.policy.mode is MissMode.CPU_ONLY:
        assert (after.owner == before.owner).all()
    for slot, record in enumerate(after.owner.tolist()):
        size = int(after.valid[record]) * model.shape.layout.unit_bytes if record != FREE else 0
        assert torch.equal(model.slots[slot, :size], model.records[record, :size])


@pytest.mark.parametrize("rows", [1, 4])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_steps_of_any_kind_keep_bits_and_tables(rows, data):
    """Random routes, policies and resizes in between (case E-18)."""
    model = SmallModel(small_shape(rows=rows), num_slots=data.draw(st.integers(1, 36)))
    with model.pool():
        for step in range(4):
            model.state.set_policy(data.draw(POLICIES))
            if data.draw(st.booleans()):
                resize(model, data.draw(st.integers(1, 36)))
            for layer in range(model.shape.num_layers):
                row = st.permutations(range(12)).map(lambda order: order[:3])
                routes = data.draw(st.lists(row, min_size=rows, max_size=rows))
                check_layer(model, layer, [list(r) for r in routes], step)
    assert model.state.counts().errors == 0


def test_experts_of_a_prompt_are_hits_once_they_are_installed():
    """What prefill leaves behind: whole copies, counted uses, the next victims forgotten."""
    model = SmallModel(small_shape(), MoePolicy(mode=MissMode.FILL_ONLY, pool=False), 9)
    check_layer(model, 0, [[1, 2, 3]], 1)
    check_layer(model, 1, [[1, 2, 3]], 2)
    tables = model.state.snapshot()
    for copy in tables.admit([14, 24, 25, 26]):
        start = copy.first * model.shape.layout.unit_bytes
        model.slots[copy.slot, start:] = model.records[copy.record, start:]
    uses = np.zeros(36, np.float32)
    uses[[14, 24, 25, 26]] = 5.0
    tables.credit(uses)
    model.state.install(tables)
    before = model.state.counts()
    check_layer(model, 2, [[0, 1, 2]], 3)
    assert model.state.counts().hit_units - before.hit_units == 9


@dataclass
class PlainModel:
    """The kernels' policy in plain Python, fills only, whole experts."""

    slots: int
    ranking: Ranking
    experts: int
    owner: dict[int, int] = field(default_factory=dict)  # slot to record
    score: dict[int, float] = field(default_factory=dict)
    stamp: dict[int, int] = field(default_factory=dict)
    victims: list[tuple[int, int]] = field(default_factory=list)
    tick: int = 0
    hits: int = 0

    def worth(self, record: int) -> int:
        """As of now."""
        age = np.array([self.tick - self.stamp.get(record, 0)], np.int64)
        score = np.array([self.score.get(record, 0.0)], np.float32)
        return int(self.ranking.worth(age, score)[0])

    def step(self, layer: int, routes: list[int]) -> None:
        """One layer of one row."""
        records = [layer * self.experts + expert for expert in routes]
        worths = {record: self.worth(record) for _, record in self.victims if record != FREE}
        for record in records:
            age = self.tick - self.stamp.get(record, 0)
            loss = 2.0 ** (-self.ranking.growth * age / self.ranking.num_layers)
            self.score[record] = self.score.get(record, 0.0) * loss + 1.0
            self.stamp[record] = self.tick
        resident = set(self.owner.values())
        self.hits += sum(record in resident for record in records)
        missed = [
            (self.worth(r), -place, r) for place, r in enumerate(records) if r not in resident
        ]
        usable = [
            (slot, record)
            for slot, record in self.victims
            if self.owner.get(slot, FREE) == record and record not in records
        ]
        for (worth, _, record), (slot, victim) in zip(
            sorted(missed, reverse=True), usable, strict=False
        ):
            if worth > (worths[victim] if victim != FREE else 0):
                self.owner[slot] = record
        self.tick += 1
        if not missed:
            return
        keys = sorted(
            (self.worth(self.owner[slot]) if slot in self.owner else 0, slot)
            for slot in range(self.slots)
        )
        self.victims = [(slot, self.owner.get(slot, FREE)) for _, slot in keys[:NUM_VICTIMS]]


def synthetic_trace(
    tokens: int, layers: int, experts: int, top_k: int, seed: int
) -> list[list[list[int]]]:
    """Routes [token][layer][k]: some experts are liked more, and recent ones come again."""
    rng = random.Random(seed)
    recent = [[0.0] * experts for _ in range(layers)]
    liked = [[rng.gammavariate(0.6, 1.0) for _ in range(experts)] for _ in range(layers)]
    trace = []
    for _ in range(tokens):
        token = []
        for layer in range(layers):
            draw = [
                (rng.expovariate(1.0) / (likes + 3.0 * boost + 1e-3), expert)
                for expert, (likes, boost) in enumerate(
                    zip(liked[layer], recent[layer], strict=True)
                )
            ]
            chosen = [expert for _, expert in sorted(draw)[:top_k]]
            recent[layer] = [0.7 * boost for boost in recent[layer]]
            for expert in chosen:
                recent[layer][expert] += 1.0
            token.append(chosen)
        trace.append(token)
    return trace


@pytest.mark.parametrize("eviction", Eviction)
@pytest.mark.parametrize("slots", [30, 70])
def test_hits_of_a_trace_equal_those_of_a_plain_model(eviction, slots):
    """Route by route: fewer slots than candidates, and more."""
    layers, experts, top_k = 4, 32, 4
    shape = small_shape(
        units=1, experts=experts, top_k=top_k, layers=layers, max_slots=96, hidden=256
    )
    policy = MoePolicy(mode=MissMode.FILL_ONLY, eviction=eviction, pool=False)
    model = SmallModel(shape, policy, slots, workers=1)
    plain = PlainModel(slots, Ranking(eviction, policy.growth, layers), experts)
    trace = synthetic_trace(60, layers, experts, top_k, 7)
    for token, of_layers in enumerate(trace):
        for layer, routes in enumerate(of_layers):
            model.x.copy_(model.inputs([routes], token))
            model.kernels.launch(model.layers[layer])
            plain.step(layer, routes)
    total = 60 * layers * top_k
    counts = model.state.counts()
    assert counts.hit_units + counts.link_units == total
    # Scores are rounded differently here and there, which may turn a tie.
    assert abs(counts.hit_units - plain.hits) <= (0 if eviction is Eviction.LRU else total // 500)
    assert 0.1 * total < counts.hit_units < 0.95 * total


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_candidates_are_the_slots_of_least_worth_lowest_first(data):
    """Any worths with many ties, any number of free slots, up to 300 slots."""
    model = _searching()
    slots = data.draw(st.integers(1, 300))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    records = 3 * 128
    owned = rng.random(slots) < data.draw(st.floats(0, 1))
    tables = model.state.snapshot()
    tables.num_slots = slots
    tables.owner[:] = FREE
    tables.slot_of[:] = NO_SLOT
    tables.valid[:] = 0
    tables.owner[:slots][owned] = rng.permutation(records)[: owned.sum()]
    tables.slot_of[tables.owner[:slots][owned]] = np.flatnonzero(owned)
    tables.stamp[:] = rng.integers(0, data.draw(st.sampled_from([1, 5, 1000])), records)
    tables.score[:] = rng.integers(0, 4, records)
    model.state.set_policy(MoePolicy(mode=MissMode.CPU_ONLY, eviction=data.draw(POLICIES).eviction))
    model.state.clock[0] = 1000
    model.state.install(tables)
    # Only a miss is followed by a search.
    missing = int(np.flatnonzero(tables.slot_of == NO_SLOT)[0])
    with model.pool():
        model.run(missing // 128, model.inputs([[missing % 128]], 0))
    after = model.state.snapshot()
    worth = after.worth()
    keys = sorted(
        (int(worth[record]) if record != FREE else 0, slot)
        for slot, record in enumerate(after.owner[:slots].tolist())
    )
    expected = [(slot, int(after.owner[slot])) for _, slot in keys[:NUM_VICTIMS]]
    found = [tuple(pair) for pair in model.state.victims.view(-1, 2).tolist()]
    assert found == expected + [(-1, -1)] * (NUM_VICTIMS - len(expected))


def _searching() -> SmallModel:
    shape = small_shape(units=1, experts=128, top_k=1, max_slots=300)
    return SmallModel(shape, num_slots=1, workers=1)
