"""The step loop's step with a fake runner: batches, pages, latency, ends and faults."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.budget import Division
from engine.protocol.errors import InternalError, InvalidRequest
from engine.scheduler.pools import KvSide, apply_division
from tests.engine.scheduler.doubles import (
    CANCELLED,
    ERROR,
    LENGTH,
    STOP,
    Clock,
    make_bench,
    make_request,
    reply_of,
)

PROMPT = list(range(5, 75))


@pytest.mark.parametrize("latency", [0, 1])
@pytest.mark.parametrize("chunk", [16, 70, 256])
def test_reply_whatever_the_chunk_or_latency_is_the_same(latency, chunk):
    """Chunks and late ids change when tokens come, never which."""
    bench = make_bench(latency=latency, chunk=chunk)
    bench.submit("a", PROMPT, 20)
    bench.run()
    assert bench.sink.tokens["a"] == reply_of(PROMPT, 20)
    assert bench.sink.ends == {"a": LENGTH}
    bench.assert_clean()


def test_eos_with_delayed_runner_emits_no_extra_token():
    """With latency 1 the end is seen one step late; the token sampled meanwhile is dropped."""
    expected = reply_of(PROMPT, 12)
    now, late = (make_bench(latency=n, eos=expected[6]) for n in (0, 1))
    for bench in (now, late):
        bench.submit("a", PROMPT, 50)
        bench.run()
        assert bench.sink.tokens["a"] == expected[:7]
        assert bench.sink.ends == {"a": STOP}
        bench.assert_clean()
    assert len(late.runner.launches) == len(now.runner.launches) + 1


def test_max_tokens_with_delayed_runner_launches_no_extra_step():
    """A length known in advance needs no wasted step."""
    bench = make_bench(latency=1)
    bench.submit("a", PROMPT[:10], 5)
    bench.run()
    assert len(bench.runner.launches) == 5


def test_prompt_longer_than_pool_is_refused_at_once_with_both_numbers():
    """Case A-02: no endless waiting; case A-04: nor is the beginning dropped to make it fit."""
    bench = make_bench(num_pages=4)
    with pytest.raises(InvalidRequest, match=r"65 tokens.*64"):
        bench.submit("a", range(65))
    with pytest.raises(InvalidRequest, match=r"reads at most 32"):
        make_bench(context=32).submit("a", range(33))
    bench.assert_clean()


def test_prompt_of_exactly_the_pool_gives_one_token():
    """The last sampled token needs no page."""
    bench = make_bench(num_pages=4)
    bench.submit("a", range(64), 8)
    bench.run()
    assert bench.sink.tokens["a"] == reply_of(range(64), 1)
    assert bench.sink.ends == {"a": LENGTH}
    bench.assert_clean()


def test_context_limit_when_reached_ends_the_reply():
    """The model's own limit counts as well as the pool's."""
    bench = make_bench(context=40)
    bench.submit("a", range(36), 100)
    bench.run()
    assert len(bench.sink.tokens["a"]) == 5  # positions 36..39, and the first after the prompt
    assert bench.sink.ends == {"a": LENGTH}


def test_request_that_ends_for_lack_of_pages_lets_the_next_one_start_at_once():
    """Found by the random test: the step that only ended a request claimed to have no work."""
    bench = make_bench(num_pages=4)
    bench.submit("a", range(60), 500)
    bench.submit("b", range(60), 1)
    bench.run()
    assert bench.sink.ends == {"a": LENGTH, "b": LENGTH}


def test_prefill_beside_decode_takes_turns():
    """A reply in progress stalls for one chunk at most."""
    bench = make_bench(chunk=16)
    bench.submit("a", range(10), 40)
    bench.scheduler.step()
    bench.submit("b", range(100, 200), 4)
    for _ in range(8):
        bench.scheduler.step()
    phases = [phase for phase, _ in bench.runner.launches[1:]]
    assert phases == ["prefill", "decode"] * 4 or phases == ["decode", "prefill"] * 4
    bench.run()
    assert bench.sink.tokens["a"] == reply_of(range(10), 40)
    assert bench.sink.tokens["b"] == reply_of(range(100, 200), 4)


def test_more_requests_than_rows_all_finish_in_order_of_arrival():
    """Eight rows decode together; the ninth waits."""
    bench = make_bench()
    for number in range(11):
        bench.submit(str(number), range(number, number + 20), 6, seed=number)
    bench.run()
    assert bench.runner.most_rows == 8
    assert bench.sink.starts == [str(number) for number in range(11)]
    for number in range(11):
        expected = reply_of(range(number, number + 20), 6, number)
        assert bench.sink.tokens[str(number)] == expected
    bench.assert_clean()


@pytest.mark.parametrize("latency", [0, 1])
def test_pages_when_they_run_out_preempt_the_youngest_and_lose_nothing(latency):
    """Preemption by recompute: the same tokens, none twice."""
    bench = make_bench(num_pages=8, latency=latency)
    bench.submit("old", range(40), 70)
    bench.submit("young", range(50, 90), 60, seed=3)
    bench.run()
    assert bench.sink.tokens["old"] == reply_of(range(40), 70)
    assert bench.sink.tokens["young"] == reply_of(range(50, 90), 60, 3)
    assert bench.sink.starts == ["old", "young"]
    prefilled = sum(len(w.tokens) for phase, ws in bench.runner.launches for w in ws)
    assert prefilled > 80  # it really was computed anew
    bench.assert_clean()


def test_request_alone_at_capacity_ends_with_length():
    """Nothing to preempt: the reply ends as a full context does."""
    bench = make_bench(num_pages=3)
    bench.submit("a", range(40), 500)
    bench.run()
    assert bench.sink.ends == {"a": LENGTH}
    assert bench.sink.tokens["a"] == reply_of(range(40), 9)
    bench.assert_clean()


@pytest.mark.parametrize("latency", [0, 1])
def test_cancel_in_every_phase_ends_once_and_frees_all(latency):
    """Waiting, prefill, decode, unknown id."""
    for steps in (0, 1, 2, 5):
        bench = make_bench(latency=latency, rows=1, chunk=16)
        bench.submit("a", PROMPT, 30)
        bench.submit("b", PROMPT, 3)
        for _ in range(steps):
            bench.scheduler.step()
        bench.scheduler.safepoint.cancel("a")
        bench.scheduler.safepoint.cancel("nobody")
        bench.run()
        assert bench.sink.ends == {"a": CANCELLED, "b": LENGTH}
        assert bench.sink.tokens["b"] == reply_of(PROMPT, 3)
        bench.assert_clean()


def test_internal_error_fails_the_step_and_the_second_ends_the_engine():
    """One broken invariant costs a request, two cost the process."""
    bench = make_bench()
    bench.runner.faults.append(ValueError("boom"))
    bench.submit("a", PROMPT)
    bench.submit("b", PROMPT)
    bench.run()
    assert bench.sink.ends == {"a": ERROR, "b": LENGTH}
    assert isinstance(bench.sink.problems["a"], InternalError)
    bench.runner.faults.append(ValueError("boom"))
    bench.submit("c", PROMPT)
    bench.submit("d", PROMPT)
    with pytest.raises(InternalError):
        bench.run()
    assert bench.sink.ends["c"] == bench.sink.ends["d"] == ERROR
    assert bench.pages.used == 0


def test_failure_while_waiting_for_ids_with_delayed_runner_fails_that_step_only():
    """The step in flight is known by its own requests."""
    bench = make_bench(latency=1, chunk=128)
    bench.submit("a", PROMPT, 10)
    bench.submit("b", PROMPT, 10)
    bench.runner.wait_faults.append(ValueError("boom"))  # the prefill of a
    bench.run()
    assert bench.sink.ends == {"a": ERROR, "b": LENGTH}
    assert bench.sink.tokens["b"] == reply_of(PROMPT, 10)
    bench.assert_clean()


def test_trace_excludes_prefill_and_waiting_from_decode_rate():
    """Case G-20: a slow prefill must not make the reply look slow."""
    clock = Clock()
    bench = make_bench(clock=clock)
    launch = bench.runner.launch

    def timed(phase, works):
        clock.now += 5.0 if phase == "prefill" else 0.05
        return launch(phase, works)

    bench.runner.launch = timed
    request = make_request("a", PROMPT[:30], 21)
    clock.now = 3.0
    bench.scheduler.submit(request)
    bench.run()
    trace = request.timing.trace()
    assert trace.decode_tokens_per_s == pytest.approx(20.0)
    assert trace.ttft_s == pytest.approx(8.0)
    assert trace.queued_s == pytest.approx(3.0)
    assert trace.prefill_tokens_per_s == pytest.approx(6.0)


class _Slots:
    def __init__(self):
        self.units = 10
        self.refuse = False

    def resize(self, units):
        if self.refuse:
            raise MemoryError("refused")
        self.units = units
        return 0


def _resize(bench, kv_tokens, slots=None, wanted_slots=10):
    side = KvSide(bench.scheduler.holdings, bench.memory, bench.scheduler.requests)
    bench.scheduler.safepoint.do(
        lambda: apply_division(side, slots or _Slots(), Division(kv_tokens, wanted_slots))
    )


@pytest.mark.parametrize("latency", [0, 1])
def test_resize_under_stream_gives_identical_tokens(latency):
    """Pages move under a running reply; it must not notice."""
    bench = make_bench(num_pages=32, latency=latency)
    bench.submit("gone", range(300, 600), 6)  # so that the other one's pages lie high
    bench.submit("a", PROMPT, 60)
    while "gone" not in bench.sink.ends:
        bench.scheduler.step()
    moved = 0
    for size in (256, 128, 320, 144, 512):
        before = bench.scheduler.requests()[0].pages
        for _ in range(6):
            bench.scheduler.step()
        _resize(bench, size)
        bench.scheduler.step()
        moved += bench.scheduler.requests()[0].pages[: len(before)] != before
    assert moved
    bench.run()
    assert bench.sink.tokens["a"] == reply_of(PROMPT, 60)
    bench.assert_clean()


def test_resize_refused_half_way_restores_both_pools():
    """Case M-01: the old division stays and the reply goes on."""
    bench = make_bench(num_pages=32)
    slots = _Slots()
    slots.refuse = True
    bench.submit("a", PROMPT, 30)
    for _ in range(5):
        bench.scheduler.step()
    side = KvSide(bench.scheduler.holdings, bench.memory, bench.scheduler.requests)
    with pytest.raises(MemoryError):
        apply_division(side, slots, Division(256, 20))
    assert (side.units, slots.units) == (512, 10)
    bench.run()
    assert bench.sink.tokens["a"] == reply_of(PROMPT, 30)


def test_pool_shrunk_while_a_request_waits_ends_it_with_a_reason():
    """What no longer fits must not wait for ever."""
    bench = make_bench(num_pages=16, rows=1)
    bench.submit("a", range(20), 4)
    bench.submit("b", range(200), 4)
    _resize(bench, 64)
    bench.run()
    assert bench.sink.ends == {"a": LENGTH, "b": ERROR}
    assert "200 tokens" in bench.sink.problems["b"].message
    bench.assert_clean()


@settings(max_examples=60, deadline=None)
@given(
    latency=st.sampled_from([0, 1]),
    num_pages=st.integers(6, 24),
    requests=st.lists(
        st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 30)), max_size=10
    ),
    acts=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 11), st.integers(4, 30)), max_size=12
    ),
    eos=st.integers(3, 60),
)
def test_every_request_ends_exactly_once_under_random_cancels_and_resizes(
    latency, num_pages, requests, acts, eos
):
    """Ends are unique (the sink insists), tokens are a prefix of the right reply, nothing leaks."""
    bench = make_bench(num_pages=num_pages, latency=latency, chunk=16, rows=4, eos=eos)
    submitted = {}
    for step in range(61):
        for number, (length, count, when) in enumerate(requests):
            if when == step:
                try:
                    bench.submit(f"{number}", range(number, number + length), count, number)
                except InvalidRequest:
                    continue
                submitted[f"{number}"] = (range(number, number + length), count, number)
        for when, target, size in acts:
            if when == step:
                bench.scheduler.safepoint.cancel(str(target))
                if size * 16 >= bench.scheduler.holdings.reserved_tokens:
                    side = KvSide(bench.scheduler.holdings, bench.memory, bench.scheduler.requests)
                    bench.scheduler.safepoint.do(lambda s=side, n=size: _try_resize(s, n))
        bench.scheduler.step()
    bench.run()
    assert set(bench.sink.ends) == set(submitted)
    for name, (prompt, count, seed) in submitted.items():
        tokens = bench.sink.tokens.get(name, [])
        assert tokens == reply_of(prompt, len(tokens), seed)
        assert len(tokens) <= count
    bench.assert_clean()


def _try_resize(side, num_pages):
    from engine.protocol.errors import BudgetError

    try:
        side.resize(num_pages * 16)
    except BudgetError:
        return


@pytest.mark.parametrize("latency", [0, 1])
def test_trace_when_steps_overlap_then_each_step_counts_once(latency):
    """A step launched before the last one was taken must not be charged with it a second time."""
    bench = make_bench(latency=latency)
    request = make_request("a", PROMPT[:10], max_tokens=9)
    bench.scheduler.submit(request)
    bench.run()
    assert request.timing.decode_tokens == 8
    assert request.timing.counts.routes == request.timing.counts.hits == 8


def test_step_when_it_fails_with_the_next_one_launched_then_only_that_reply_ends():
    """The echo of a bad step, computed from its id, is no second error: the engine goes on."""
    bench = make_bench(latency=1)
    bench.runner.wait_faults.extend([None, None, ValueError("NaN"), ValueError("NaN again")])
    bench.submit("a", PROMPT[:10], 20)
    bench.run()
    assert bench.sink.ends == {"a": ERROR}
    bench.submit("b", PROMPT[:10], 5)
    bench.run()
    assert bench.sink.ends["b"] == LENGTH
    bench.assert_clean()
