"""The slot table on what the built-in model really routed: 20 chats, recorded.

`data/built-in-20-chats.npz` holds `chat-NN` int16 [tokens, layers, top_k]; made by
`python -m recipe traces` in `resources/models`.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from engine.moe.slots import SlotTable

EXPERTS, LAYERS = 24, 8


@pytest.fixture(scope="module")
def steps() -> list[list[int]]:
    """Routed records, one list per token and layer, chat after chat."""
    with np.load(Path(__file__).parent / "data" / "built-in-20-chats.npz") as file:
        chats = [file[name] for name in sorted(file) if name.startswith("chat")]
    return [
        [layer * EXPERTS + int(expert) for expert in experts]
        for chat in chats
        for token in chat
        for layer, experts in enumerate(token)
    ]


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
