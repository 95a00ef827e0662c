"""The slot table: the paper's examples, and equality with a plain LRU."""

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.moe.slots import NO_SLOT, SlotTable, most_recent, slots_that_fit


def _admit_all(table, records):
    return [table.admit(record) for record in table.touch(records).misses]


def test_admit_when_two_fills_evict_the_two_coldest_stamps():
    """Stamps {12, 15, 20, 30}, two fills: victims are 12 and 15, they get the current step."""
    table = SlotTable(4)
    stamps = {12: 100, 15: 101, 20: 102, 30: 103}
    for step in range(1, 31):
        record = stamps.get(step)
        if record is None:
            table.touch([])
        else:
            _admit_all(table, [record])
    assert [table.last_use(record) for record in stamps.values()] == [12, 15, 20, 30]
    victims = [victim for _, victim in _admit_all(table, [7, 8])]
    assert victims == [100, 101]
    assert {record: table.last_use(record) for record in table.resident()} == {
        102: 20,
        103: 30,
        7: 31,
        8: 31,
    }


def test_slots_when_kv_grows_and_shrinks_follow_the_free_bytes():
    """0.5 GB an expert, 8 GB shared: KV 3 -> 4 -> 2 GB gives 10 -> 8 -> 12 slots."""
    gb = 10**9
    sizes = [slots_that_fit((8 - kv) * gb, gb // 2) for kv in (3, 4, 2)]
    assert sizes == [10, 8, 12]
    table = SlotTable(sizes[0])
    for record in range(10):
        _admit_all(table, [record])
    assert table.shrink(sizes[1]).evicted == (0, 1)  # the two coldest
    table.grow(sizes[2])
    assert table.resident() == tuple(range(2, 10))
    assert [victim for _, victim in _admit_all(table, [20, 21, 22, 23, 24])] == [None] * 4 + [2]
    assert slots_that_fit(-1, 5) == 0


def test_touch_when_the_cpu_serves_a_record_still_counts():
    """A CPU-served miss bumps recency, so that it is preferred the next time."""
    table = SlotTable(1)
    table.touch([5])
    table.touch([6])
    assert table.touch([5, 5, 6, 9]).misses == {5: 1, 6: 2, 9: 0}
    assert table.lookup(5) == NO_SLOT


def test_admit_when_the_step_uses_every_slot_is_refused():
    """An expert that this step uses is never evicted (case E-18)."""
    table = SlotTable(2)
    _admit_all(table, [1, 2])
    table.touch([1, 3, 4])
    assert table.room == 1
    assert table.admit(3) == (1, 2)
    assert table.room == 0
    with pytest.raises(LookupError, match="2 slots"):
        table.admit(4)
    with pytest.raises(ValueError, match="resident"):
        table.admit(1)
    with pytest.raises(ValueError, match="not part of step"):
        table.admit(99)
    table.evict(3)
    assert table.room == 1
    assert table.admit(4) == (1, None)


@pytest.mark.parametrize("slots", [0, 3, -1])
def test_shrink_when_the_size_is_impossible_raises(slots):
    """Shrinking never grows, and one slot must stay."""
    table = SlotTable(2)
    with pytest.raises(ValueError, match="cannot shrink"):
        table.shrink(slots)
    with pytest.raises(ValueError, match="cannot grow"):
        table.grow(1)


def test_most_recent_when_given_routes_starts_with_the_last_token():
    """Distinct experts, last token first, at most so many."""
    routes = [[9, 8], [1, 2], [2, 3]]
    assert most_recent(routes, 3) == [2, 3, 1]
    assert most_recent(routes, 10) == [2, 3, 1, 9, 8]
    assert most_recent([], 3) == []


class LruMachine(RuleBasedStateMachine):
    """The table beside an OrderedDict; slots beside a dict of contents that copies move."""

    @initialize(slots=st.integers(1, 6))
    def start(self, slots):
        self.table = SlotTable(slots)
        self.model = OrderedDict()
        self.slots = slots
        self.contents = {}

    @rule(records=st.lists(st.integers(0, 9), max_size=6), fill=st.integers(0, 6))
    def step(self, records, fill):
        touched = self.table.touch(records)
        routed = list(dict.fromkeys(records))
        assert list(touched.hits) == [r for r in routed if r in self.model]
        assert list(touched.misses) == [r for r in routed if r not in self.model]
        for record, slot in touched.hits.items():
            assert self.contents[slot] == record
            self.model.move_to_end(record)
        assert self.table.room == self.slots - len(touched.hits)
        for record in list(touched.misses)[: min(fill, self.table.room)]:
            wanted = None
            if len(self.model) == self.slots:
                wanted, _ = self.model.popitem(last=False)
                assert wanted not in routed
            slot, victim = self.table.admit(record)
            assert victim == wanted
            assert victim is None or self.contents[slot] == victim
            self.contents[slot] = record
            self.model[record] = None

    @rule(data=st.data())
    def evict(self, data):
        if self.model:
            record = data.draw(st.sampled_from(list(self.model)))
            self.table.evict(record)
            del self.model[record]

    @rule(slots=st.integers(1, 8))
    def resize(self, slots):
        if slots >= self.slots:
            self.table.grow(slots)
        else:
            shrunk = self.table.shrink(slots)
            lost = [self.model.popitem(last=False)[0] for _ in range(len(self.model) - slots)]
            assert list(shrunk.evicted) == lost
            for source, target in shrunk.moves:
                assert source >= slots > target
                self.contents[target] = self.contents[source]
            moved = [self.contents[source] for source, _ in shrunk.moves]
            assert moved == [record for record in reversed(self.model) if record in moved]
        self.slots = slots

    @invariant()
    def agrees(self):
        assert self.table.resident() == tuple(self.model)
        held = [self.table.lookup(record) for record in self.model]
        assert len(set(held)) == len(held)
        for record, slot in zip(self.model, held, strict=True):
            assert 0 <= slot < self.slots
            assert self.contents[slot] == record


LruMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestSlotTableAgainstOrderedDict = LruMachine.TestCase


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), max_size=30), st.integers(1, 9)
)
def test_table_when_filled_with_every_miss_never_exceeds_its_slots(steps, slots):
    """Free, filled and total always add up."""
    table = SlotTable(slots)
    for records in steps:
        for record in table.touch(records).misses:
            if table.room:
                table.admit(record)
        assert table.num_resident <= table.num_slots == slots
