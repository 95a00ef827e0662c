"""The context that grows at the safe point: when, at whose cost, and what happens if it may not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.budget import Division, MemoryBudget
from engine.protocol.errors import BudgetError, DeviceError, InvalidRequest
from engine.scheduler.growth import ContextGrowth
from engine.scheduler.pools import KvSide, apply_division
from tests.engine.scheduler.doubles import (
    ERROR,
    LENGTH,
    make_bench,
    make_request,
    reply_of,
)

BUDGET = MemoryBudget(
    total_bytes=1_000_000,
    weights_bytes=0,
    runtime_bytes=0,
    kv_token_bytes=1,
    record_bytes=64,  # four pages
    num_records=1000,
    min_slots=2,
    context_tokens=4096,
)


class Slots:
    """An expert cache that keeps nothing but its size."""

    def __init__(self, units):
        self.units = units

    def resize(self, units):
        self.units = units
        return 0


class World:
    """A bench whose context grows at the cost of slots."""

    def __init__(self, num_pages, slots, **fields):
        self.slots = Slots(slots)
        self.divisions = []  # that were asked for
        self.problem = None  # of the next ones
        self.growth = ContextGrowth(
            BUDGET, lambda: self.division, self._divide, (MemoryError,), chosen_slots=slots
        )
        self.bench = make_bench(num_pages=num_pages, growth=self.growth, **fields)
        self.kv = KvSide(self.scheduler.holdings, self.bench.memory, self.scheduler.requests)

    scheduler = property(lambda self: self.bench.scheduler)
    sink = property(lambda self: self.bench.sink)
    division = property(lambda self: Division(self.kv.units, self.slots.units))

    def resize(self, kv_tokens, slots):
        """As a person does."""
        wanted = Division(kv_tokens, slots)
        self.scheduler.safepoint.do(lambda: apply_division(self.kv, self.slots, wanted))

    def _divide(self, wanted):
        assert self.scheduler._flight is None, "a step was in flight"
        self.divisions.append(wanted)
        if self.problem is not None:
            raise self.problem
        apply_division(self.kv, self.slots, wanted)


@pytest.fixture(params=[0, 1])
def latency(request):
    return request.param


def test_prompt_longer_than_the_context_then_the_experts_give_and_it_is_answered(latency):
    """One growth: what is missing and a step; the bytes of both are those of before."""
    world = World(num_pages=4, slots=100, latency=latency)
    world.bench.submit("a", range(200), 30)
    world.bench.run()
    assert world.sink.tokens["a"] == reply_of(range(200), 30)
    assert world.divisions == [Division(1280, 81)]
    assert world.division == Division(1280, 81)
    assert BUDGET.need_bytes(world.division) == BUDGET.need_bytes(Division(64, 100))
    world.bench.assert_clean()


def test_reply_that_outgrows_the_context_then_goes_on_to_its_end(latency):
    """Not every page is a resize, and what has grown stays for the next turn."""
    world = World(num_pages=3, slots=100, latency=latency)
    world.bench.submit("a", range(40), 500)
    world.bench.run()
    assert world.sink.tokens["a"] == reply_of(range(40), 500)
    assert len(world.divisions) == 1
    world.bench.submit("b", range(900), 50)
    world.bench.run()
    assert world.sink.tokens["b"] == reply_of(range(900), 50)
    assert len(world.divisions) == 1
    world.bench.assert_clean()


def test_reply_that_must_then_takes_all_but_the_least_and_ends_with_length(latency):
    """The last page that the experts can pay is used before a reply ends."""
    world = World(num_pages=3, slots=6, latency=latency)
    world.bench.submit("a", range(40), 900)
    world.bench.run()
    assert world.division == Division(48 + 4 * 64, BUDGET.min_slots)
    assert world.sink.ends == {"a": LENGTH}
    assert world.sink.tokens["a"] == reply_of(range(40), 48 + 4 * 64 - 40 + 1)


def test_prompt_beyond_all_that_may_grow_then_refused_at_once_with_both_numbers():
    """Case A-02: no endless waiting, and no growth for nothing."""
    world = World(num_pages=4, slots=10)
    assert world.growth.most_tokens == 64 + 8 * 64
    with pytest.raises(InvalidRequest, match=r"577 tokens.*576"):
        world.bench.submit("a", range(577))
    world.bench.submit("b", range(576), 1)
    world.bench.run()
    assert world.sink.tokens["b"] == reply_of(range(576), 1)
    assert world.division == Division(576, BUDGET.min_slots)


def test_most_tokens_when_memory_is_plenty_then_one_chat_at_the_models_limit():
    """More would be of no use to a reply."""
    assert World(num_pages=4, slots=1000).growth.most_tokens == BUDGET.context_tokens


def test_requests_that_compete_then_half_of_the_chosen_experts_at_most(latency):
    """Beyond that the youngest is preempted as ever; both replies are whole."""
    world = World(num_pages=8, slots=8, latency=latency)
    world.bench.submit("old", range(40), 200)
    world.bench.submit("young", range(50, 90), 200, seed=3)
    kept = []
    world.bench.run(after_step=lambda: kept.append((world.scheduler.num_waiting, world.division)))
    assert world.sink.tokens["old"] == reply_of(range(40), 200)
    assert world.sink.tokens["young"] == reply_of(range(50, 90), 200, 3)
    assert world.divisions == [Division(128 + 4 * 64, 4)]
    prefilled = sum(len(w.tokens) for _, ws in world.bench.runner.launches for w in ws)
    assert prefilled > 80  # more than both prompts: one was computed anew
    world.bench.assert_clean()


def test_requests_that_compete_when_experts_are_plenty_then_nobody_waits(latency):
    """A prompt in the queue is a reason too: it starts beside the one that runs."""
    world = World(num_pages=8, slots=200, latency=latency)
    world.bench.submit("old", range(100), 200)
    world.scheduler.step()
    assert world.divisions == []
    world.bench.submit("new", range(300, 400), 20)
    world.scheduler.step()
    assert len(world.divisions) == 1
    assert (world.scheduler.num_running, world.scheduler.num_waiting) == (2, 0)
    world.bench.run()
    assert len(world.divisions) == 1
    assert world.sink.tokens["new"] == reply_of(range(300, 400), 20)


def test_requests_that_compete_after_a_yield_then_the_choice_counts_not_what_is_left():
    """A game took most of the experts: the rest is not halved for company."""
    world = World(num_pages=8, slots=100)
    world.resize(128, 40)
    world.bench.submit("old", range(100), 20)
    world.bench.submit("new", range(300, 400), 20)
    world.bench.run()
    assert world.divisions == []
    assert world.sink.ends == {"old": LENGTH, "new": LENGTH}


def test_context_when_it_suffices_then_no_growth(latency):
    """What ended replies left is evicted before experts are: kept pages are free memory."""
    world = World(num_pages=16, slots=100, latency=latency)
    for number in range(6):
        first = 300 * number
        world.bench.submit(f"{number}", range(first, first + 200), 20)
        world.bench.run()
    assert world.scheduler.holdings.kept
    assert world.divisions == []
    larger = make_request("larger", range(400))
    assert world.scheduler.holdings.missing_tokens(larger, 400) == 400 - 256


def test_growth_refused_by_the_device_then_as_without_it_and_not_asked_again(latency):
    """Case M-01: the old division holds; the reply ends as it did before, and says nothing odd."""
    world = World(num_pages=4, slots=100, latency=latency)
    world.problem = MemoryError("no more")
    world.bench.submit("a", range(50), 500)
    world.bench.run()
    assert world.sink.ends == {"a": LENGTH}
    assert world.sink.tokens["a"] == reply_of(range(50), 15)
    assert len(world.divisions) == 1
    assert world.division == Division(64, 100)
    assert world.growth.most_tokens == 64  # nor is more promised to whoever asks
    world.bench.submit("b", range(100), 5)
    world.bench.run()
    assert (world.sink.ends["b"], len(world.divisions)) == (ERROR, 2)
    assert "100 tokens" in world.sink.problems["b"].message
    assert "64" in world.sink.problems["b"].message
    world.bench.assert_clean()


def test_growth_refused_while_others_run_then_they_are_preempted_and_it_is_asked_once():
    """Not in every step: a refused resize costs a pause."""
    world = World(num_pages=8, slots=100)
    world.problem = MemoryError("no more")
    world.bench.submit("old", range(40), 70)
    world.bench.submit("young", range(50, 90), 60, seed=3)
    world.bench.run()
    assert len(world.divisions) == 1
    assert world.sink.tokens["old"] == reply_of(range(40), 70)
    assert world.sink.tokens["young"] == reply_of(range(50, 90), 60, 3)


@pytest.mark.parametrize("change", ["request", "division"])
def test_growth_refused_when_something_has_changed_then_asked_again(change):
    """Another program may have ended, or a person has made room."""
    world = World(num_pages=8, slots=100)
    world.problem = MemoryError("no more")
    world.bench.submit("old", range(40), 300)
    world.bench.submit("young", range(50, 90), 60, seed=3)
    for _ in range(60):
        world.scheduler.step()
    assert len(world.divisions) == 1
    world.problem = None
    if change == "request":
        world.bench.submit("third", range(5), 5)
    else:
        world.resize(128, 99)
    world.bench.run()
    assert len(world.divisions) == 2
    assert world.sink.tokens["old"] == reply_of(range(40), 300)


def test_growth_that_fails_as_a_bug_then_only_that_request_ends():
    """The door per request is around it."""
    world = World(num_pages=4, slots=100)
    world.problem = ValueError("boom")
    world.bench.submit("a", range(100), 5)
    world.bench.run()
    world.problem = None
    world.bench.submit("b", range(100), 5)
    world.bench.run()
    assert world.sink.ends == {"a": ERROR, "b": LENGTH}
    world.bench.assert_clean()


def test_growth_that_meets_a_lost_device_then_everything_ends():
    """Case E-05."""
    world = World(num_pages=8, slots=100)
    world.problem = ConnectionError("gone")
    world.bench.submit("a", range(60), 50)
    world.bench.submit("b", range(100), 50)
    with pytest.raises(DeviceError):
        world.bench.run()
    assert world.sink.ends == {"a": ERROR, "b": ERROR}


def test_prompt_that_waits_for_a_row_then_nothing_grows_before_it_can_start():
    """Experts are given when the context is needed, not when it is asked for."""
    world = World(num_pages=8, slots=100, rows=1)
    world.bench.submit("a", range(10), 30)
    world.bench.submit("b", range(200), 5)
    for _ in range(10):
        world.scheduler.step()
    assert world.divisions == []
    world.bench.run()
    assert len(world.divisions) == 1
    assert world.sink.tokens["b"] == reply_of(range(200), 5)


@settings(max_examples=60, deadline=None)
@given(
    latency=st.sampled_from([0, 1]),
    num_pages=st.integers(4, 20),
    slots=st.integers(2, 40),
    requests=st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 60), st.integers(0, 30)), max_size=8
    ),
    acts=st.lists(
        st.tuples(
            st.integers(0, 60), st.integers(0, 9), st.integers(4, 30), st.integers(2, 40),
            st.booleans(),
        ),
        max_size=8,
    ),
    eos=st.integers(3, 60),
)  # fmt: skip
def test_whatever_happens_then_every_reply_is_right_and_ends_once(
    latency, num_pages, slots, requests, acts, eos
):
    """Cancels, resizes, refusals at any moment; growth alone never takes more memory."""
    world = World(num_pages, slots, latency=latency, chunk=16, rows=4, eos=eos)
    bench, submitted = world.bench, {}
    for step in range(61):
        for number, (length, count, when) in enumerate(requests):
            if when == step:
                try:
                    bench.submit(f"{number}", range(number, number + length), count, number)
                except InvalidRequest:
                    assert length > world.division.kv_tokens
                    continue
                submitted[f"{number}"] = (range(number, number + length), count, number)
        for when, target, pages, wanted, refuses in acts:
            if when == step:
                world.scheduler.safepoint.cancel(str(target))
                world.problem = MemoryError("no more") if refuses else None
                if pages * 16 >= world.scheduler.holdings.reserved_tokens:
                    world.scheduler.safepoint.do(lambda n=pages, s=wanted: _try(world, n, s))
        before, asked = BUDGET.need_bytes(world.division), world.scheduler.safepoint.is_wanted
        bench.scheduler.step()
        assert asked or BUDGET.need_bytes(world.division) <= before
        bench.assert_owned_once()
    bench.run()
    assert set(bench.sink.ends) == set(submitted)
    for name, (prompt, count, seed) in submitted.items():
        tokens = bench.sink.tokens.get(name, [])
        assert tokens == reply_of(prompt, len(tokens), seed)
        assert len(tokens) <= count
    bench.assert_clean()


def _try(world, pages, slots):
    try:
        apply_division(world.kv, world.slots, Division(pages * 16, slots))
    except BudgetError:
        return
