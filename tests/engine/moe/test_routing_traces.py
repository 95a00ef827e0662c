"""Eviction on recorded routes: 20 chats of the built-in model, 2 conversations of a synthetic one.

`data/built-in-20-chats.npz` holds `chat-NN` int16 [tokens, layers, top_k]; made by
`python -m recipe traces` in `resources/models`. `data/synthetic-2-talks.npz` is what
`python -m tests.perf.synthetic_routes FILE --seed 1 --starts 100 2100 --tokens 576 --prompt 256`
makes: 24 layers of 128 experts, top 8. Replayed are the slot table of an emulated cache, the host's
tables of a card for both policies of eviction, and the policy of a card's kernels.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from engine.moe.slots import SlotTable
from kernels.cuda.moe_state import MoePolicy
from kernels.cuda.residency import FREE, NO_SLOT, Eviction, Ranking, Residency
from tests.perf.replay import POLICIES, read_conversations
from tests.perf.replay import replay as replay_kernels
from tests.perf.replay_tables import Conversation, Rules

DATA = Path(__file__).parent / "data"
EXPERTS, LAYERS = 24, 8
GROWTH = MoePolicy().growth


@pytest.fixture(scope="module")
def steps() -> list[list[int]]:
    """Routed records, one list per token and layer, chat after chat."""
    with np.load(DATA / "built-in-20-chats.npz") as file:
        chats = [file[name] for name in sorted(file) if name.startswith("chat")]
    return [
        [layer * EXPERTS + int(expert) for expert in experts]
        for chat in chats
        for token in chat
        for layer, experts in enumerate(token)
    ]


@pytest.fixture(scope="module", params=["built-in-20-chats", "synthetic-2-talks"])
def recorded(request: pytest.FixtureRequest) -> tuple[list[Conversation], int]:
    """Conversations of 8 layers, cut to what a test can afford, and the experts of a layer."""
    talks, experts = read_conversations(DATA / f"{request.param}.npz")
    return [
        Conversation(prompt[:, :LAYERS], reply[:96, :LAYERS]) for prompt, reply in talks[:8]
    ], experts


def replay(steps: list[list[int]], num_slots: int) -> float:
    """Return the share of routes that the table served, every miss being filled."""
    table, hits, routes = SlotTable(num_slots), 0, 0
    for records in steps:
        touched = table.touch(records)
        hits += len(touched.hits)
        routes += len(records)
        for record in touched.misses:
            table.admit(record)
    return hits / routes


def oracle(steps: list[list[int]], num_slots: int) -> float:
    """The same with an OrderedDict; within a step, hits are touched before misses come in."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = routes = 0
    for records in steps:
        hit = [record for record in records if record in cache]
        hits += len(hit)
        routes += len(records)
        for record in hit + [record for record in records if record not in cache]:
            cache[record] = None
            cache.move_to_end(record)
        while len(cache) > num_slots:
            cache.popitem(last=False)
    return hits / routes


def replies(recorded: tuple[list[Conversation], int], tokens: int) -> list[list[int]]:
    """Return the routed records of the first tokens of all replies, by token and layer."""
    talks, experts = recorded
    base = np.arange(LAYERS)[:, None] * experts
    steps = [row for talk in talks for token in talk.reply for row in (base + token).tolist()]
    return steps[: tokens * LAYERS]


def host_hits(steps: list[list[int]], tables: Residency) -> int:
    """Return the routes that a card's tables serve, every miss being filled."""
    hits = 0
    for tick, records in enumerate(steps):
        tables.tick = tick
        uses = np.zeros(len(tables.slot_of), np.float32)
        uses[records] = 1.0
        tables.credit(uses)
        hits += len(records) - len(tables.admit(records))
    assert tables.faults() == []
    return hits


def plain_hits(steps: list[list[int]], num_slots: int, eviction: Eviction) -> int:
    """The same by the book: the least of all goes, be it by last use or by uses that fade."""
    slot_of: dict[int, int] = {}
    value: dict[int, float] = {}
    hits = 0
    for tick, records in enumerate(steps):
        for record in records:
            if eviction is Eviction.LRU:
                value[record] = tick
            else:  # instead of fading old uses, new ones grow
                value[record] = value.get(record, 0.0) + 2.0 ** (GROWTH * tick / LAYERS)
        hits += sum(record in slot_of for record in records)
        for record in records:
            if record in slot_of:
                continue
            slot = len(slot_of)
            if slot == num_slots:
                least = min(slot_of.keys() - records, key=lambda one: (value[one], slot_of[one]))
                slot = slot_of.pop(least)
            slot_of[record] = slot
    return hits


def empty_tables(records: int, num_slots: int, ranking: Ranking) -> Residency:
    """A card's tables before the first token."""
    return Residency(
        num_slots=num_slots,
        num_units=1,
        tick=0,
        ranking=ranking,
        slot_of=np.full(records, NO_SLOT, np.int32),
        valid=np.zeros(records, np.int32),
        owner=np.full(num_slots, FREE, np.int32),
        score=np.zeros(records, np.float32),
        stamp=np.zeros(records, np.int32),
    )


def test_replay_of_real_routes_equals_a_plain_lru(steps):
    """Bookkeeping in one pass gives the hits of a textbook LRU, at every size."""
    for num_slots in (3, 24, 48, 96, 191):
        assert replay(steps, num_slots) == pytest.approx(oracle(steps, num_slots), abs=1e-12)


def test_replay_of_real_routes_hits_more_with_more_slots(steps):
    """Real routing has locality: a quarter of the experts serves more than a quarter."""
    shares = [replay(steps, num_slots) for num_slots in (24, 48, 96, 144, 192)]
    assert shares == sorted(shares)
    assert shares[1] > 48 / (LAYERS * EXPERTS)
    assert shares[-1] > 0.98


@pytest.mark.parametrize("eviction", Eviction)
@pytest.mark.parametrize("share", [0.125, 0.5])
def test_tables_of_a_card_hit_what_a_plain_cache_hits(recorded, eviction, share):
    """LRU route by route; frequency as often, because float32 may turn a near tie."""
    steps, records = replies(recorded, 120), LAYERS * recorded[1]
    slots = round(share * records)
    hits = host_hits(steps, empty_tables(records, slots, Ranking(eviction, GROWTH, LAYERS)))
    plain = plain_hits(steps, slots, eviction)
    routes = sum(map(len, steps))
    assert abs(hits - plain) <= (0 if eviction is Eviction.LRU else routes // 500)
    assert 0.1 * routes < hits < routes


def test_kernels_hit_more_with_more_slots_and_frequency_more_than_lru(recorded):
    """And neither as much as who knows the future. A third of what is missed comes and may stay."""
    talks, experts = recorded
    hits = {
        policy: [
            replay_kernels(talks, experts, round(share * LAYERS * experts), policy).hit
            for share in (0.125, 0.25, 0.5)
        ]
        for policy in POLICIES
    }
    for of_policy in hits.values():
        assert of_policy == sorted(of_policy)
    for lru, frequency, best in zip(hits["lru"], hits["frequency"], hits["oracle"], strict=True):
        assert lru < frequency < best


def test_kernels_that_fill_everything_hit_nearly_what_a_plain_lru_hits(recorded):
    """Their 64 candidates are found after a miss, before later hits: that costs next to nothing."""
    steps, experts = replies(recorded, 120), recorded[1]
    routes = np.array(steps).reshape(120, LAYERS, -1) % experts
    talks, slots = [Conversation(routes[:0], routes)], LAYERS * experts // 4
    counts = replay_kernels(talks, experts, slots, "lru", Rules(units=1, link_share=1.0))
    assert counts.hit == pytest.approx(plain_hits(steps, slots, Eviction.LRU), rel=0.01)
