"""Beginnings that earlier requests computed are not read again, and nobody reads a stranger's."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.budget import Division
from engine.protocol.errors import BudgetError, DeviceError, InvalidRequest
from engine.scheduler.pools import KvSide, apply_division
from tests.engine.scheduler.doubles import CANCELLED, ERROR, LENGTH, Bench, make_bench, reply_of

PROMPT = list(range(5, 75))
LATENCIES = pytest.mark.parametrize("latency", [0, 1])


def say(bench, name, prompt, count=8):
    """Run a request alone; return it and the tokens that were read for it."""
    before = bench.scheduler.prefilled_tokens
    request = bench.submit(name, prompt, count)
    bench.run()
    assert bench.sink.tokens[name] == reply_of(prompt, count)
    return request, bench.scheduler.prefilled_tokens - before


@LATENCIES
def test_next_turn_reads_only_what_is_new(latency):
    """Whole pages of the turn before are found, its reply's as well; the rest is read."""
    bench = make_bench(latency=latency)
    first, read = say(bench, "1", PROMPT, 20)
    assert (first.usage.reused_tokens, read) == (0, 70)
    prompt = [*PROMPT, *first.generated, *range(30)]
    second, read = say(bench, "2", prompt, 20)
    assert (second.usage.reused_tokens, read) == (80, 40)  # 89 of 120 tokens were computed
    assert second.timing.prefill_tokens == 40
    bench.assert_clean()


@LATENCIES
def test_reply_when_reuse_is_off_is_the_same(latency):
    """And everything is read again."""
    bench = make_bench(latency=latency, reuse=False)
    first, _ = say(bench, "1", PROMPT, 20)
    second, read = say(bench, "2", [*PROMPT, *first.generated, 7], 20)
    assert (second.usage.reused_tokens, read) == (0, 91)
    assert bench.pages.used == 0


@LATENCIES
@pytest.mark.parametrize("warm", [0, 15, 16, 17, 31, 32, 33, 70])
def test_every_prompt_length_after_a_warm_beginning_gives_the_cold_reply(latency, warm):
    """Case E-02: lengths 1 to 130 beside a kept beginning, one token at a time compared."""
    for length in range(1, 131):
        bench = make_bench(latency=latency, chunk=32)
        if warm:
            say(bench, "warm", list(range(warm)), 3)
        request, read = say(bench, "ask", list(range(length)), 2)
        assert read == length - request.usage.reused_tokens > 0
        bench.assert_clean()


@LATENCIES
def test_cancelled_reply_leaves_what_it_computed(latency):
    """A person stops a reply and asks again."""
    bench = make_bench(latency=latency, chunk=16)
    bench.submit("1", PROMPT, 30)
    for _ in range(3):
        bench.scheduler.step()
    bench.scheduler.safepoint.cancel("1")
    bench.run()
    assert bench.sink.ends == {"1": CANCELLED}
    second, _ = say(bench, "2", PROMPT)
    assert second.usage.reused_tokens == 48
    bench.assert_clean()


@LATENCIES
@pytest.mark.parametrize("good", [0, 2, 6])
def test_request_that_failed_leaves_nothing(latency, good):
    """What a failed step wrote is nobody's beginning, in the prompt and in the reply."""
    bench = make_bench(latency=latency)
    bench.runner.wait_faults.extend([None] * good + [ValueError("NaN")])
    bench.submit("1", PROMPT, 20)
    bench.run()
    assert bench.sink.ends == {"1": ERROR}
    assert bench.scheduler.holdings.kept == ()
    second, _ = say(bench, "2", PROMPT)
    assert second.usage.reused_tokens == 0
    bench.assert_clean()


def test_reply_whose_last_step_failed_after_its_end_leaves_nothing():
    """With latency 1 a step was launched before the end was seen; it may have gone wrong."""
    bench = make_bench(latency=1, eos=reply_of(PROMPT, 4)[3])
    bench.runner.wait_faults.extend([None] * 6 + [ValueError("NaN")])  # 3 of the prompt
    bench.submit("1", PROMPT, 20)
    bench.run()
    assert len(bench.sink.tokens["1"]) == 4
    assert not bench.runner.wait_faults
    assert bench.scheduler.holdings.kept == ()
    bench.assert_clean()


def test_device_lost_leaves_nothing():
    """Nobody can say what the last step wrote."""
    bench = make_bench()
    bench.submit("1", PROMPT, 20)
    for _ in range(5):
        bench.scheduler.step()
    bench.runner.faults.append(ConnectionError("gone"))
    with pytest.raises(DeviceError):
        bench.run()
    assert bench.sink.ends == {"1": ERROR}
    assert bench.scheduler.holdings.kept == ()


def test_kept_pages_count_as_free_for_everyone():
    """Admission, growth and the figures of the status: as if nothing were kept."""
    steps = []
    for reuse in (True, False):
        bench = make_bench(num_pages=8, reuse=reuse)
        say(bench, "1", PROMPT, 20)
        assert bench.scheduler.holdings.reserved_tokens == bench.scheduler.used_tokens == 0
        assert bench.scheduler.holdings.num_free == 8
        bench.submit("2", range(300, 360), 9)
        bench.submit("3", range(400, 430), 9)
        bench.run()
        assert bench.sink.ends == dict.fromkeys("123", LENGTH)
        steps.append(
            [
                (phase, [(work.row, work.tokens, work.start) for work in works])
                for phase, works in bench.runner.launches
            ]
        )
        bench.assert_clean()
    assert steps[0] == steps[1]


def test_oldest_beginning_goes_first_when_pages_run_out():
    """The chat of a minute ago is worth more than that of an hour ago."""
    bench = make_bench(num_pages=12)
    say(bench, "old", range(100, 164), 2)
    say(bench, "young", range(200, 264), 2)
    say(bench, "third", range(300, 364), 18)
    third, _ = say(bench, "young again", range(200, 265), 1)
    assert third.usage.reused_tokens == 64
    bench.assert_clean()


@LATENCIES
def test_preempted_request_finds_its_own_beginning_again(latency):
    """It reads the second time what it lost; that is no reuse of another reply's work."""
    read = []
    for reuse in (True, False):
        bench = make_bench(num_pages=8, latency=latency, reuse=reuse)
        bench.submit("old", range(40), 35)
        young = bench.submit("young", range(50, 90), 60, seed=3)
        bench.run()
        assert bench.sink.tokens["old"] == reply_of(range(40), 35)
        assert bench.sink.tokens["young"] == reply_of(range(50, 90), 60, 3)
        assert young.usage.reused_tokens == 0
        read.append(bench.scheduler.prefilled_tokens)
        bench.assert_clean()
    assert read == [80 + 62 - 48, 80 + 62]  # its fourth page was not full


def test_two_requests_with_one_beginning_at_once_never_share_a_page():
    """The second one finds nothing while the first has the pages."""
    bench = make_bench()
    say(bench, "warm", PROMPT)
    requests = [bench.submit(name, [*PROMPT, *tail], 6) for name, tail in (("a", [1]), ("b", [2]))]
    bench.run(after_step=bench.assert_owned_once)
    assert [one.usage.reused_tokens for one in requests] == [64, 0]
    assert bench.sink.tokens["b"] == reply_of([*PROMPT, 2], 6)
    bench.assert_clean()


class Slots:
    def __init__(self, refuse=False):
        self.units, self.refuse = 10, refuse

    def resize(self, units):
        if self.refuse:
            raise MemoryError("refused")
        self.units = units
        return 0


def resize(bench, num_pages, slots=None):
    side = KvSide(bench.scheduler.holdings, bench.memory, bench.scheduler.requests)
    wanted = Division(num_pages * 16, 11 if slots else 10)
    bench.scheduler.safepoint.do(lambda: apply_division(side, slots or Slots(), wanted))
    bench.run()


def test_shrink_moves_what_is_kept_and_drops_what_does_not_fit():
    """Kept pages follow their new names; a shrink is never refused for their sake."""
    bench = make_bench(num_pages=32)
    say(bench, "old", range(100, 200), 2)
    say(bench, "young", PROMPT, 2)
    before = [entry.pages for entry in bench.scheduler.holdings.kept]
    resize(bench, 6)
    assert [len(entry.pages) for entry in bench.scheduler.holdings.kept] == [2, 4]
    assert before[1] != bench.scheduler.holdings.kept[1].pages
    bench.assert_owned_once()
    again, _ = say(bench, "again", PROMPT)
    assert again.usage.reused_tokens == 64
    resize(bench, 1)
    assert bench.scheduler.holdings.kept == ()
    bench.assert_clean()


def test_resize_refused_half_way_keeps_what_still_fits():
    """Case M-01: sizes are the old ones, and pages that moved are found where they are."""
    bench = make_bench(num_pages=32)
    say(bench, "gone", range(300, 600), 2)
    say(bench, "a", PROMPT, 2)
    with pytest.raises(MemoryError):
        resize(bench, 5, Slots(refuse=True))
    bench.assert_owned_once()
    assert bench.pages.num_pages == 32
    again, _ = say(bench, "again", PROMPT)
    assert again.usage.reused_tokens == 64
    bench.assert_clean()


@dataclass
class Play:
    """Conversations that grow, are edited and made anew while pages move and steps fail."""

    bench: Bench
    chats: list
    asked: dict = field(default_factory=dict)

    def ask(self, kind, chat, size):
        """Submit a chat's next turn, another reply to the last one, or an edited beginning."""
        last = self.chats[chat]
        if kind == "next" and last is not None:
            prompt = (*last.prompt, *last.generated, *range(size))
        elif kind == "anew" and last is not None:
            prompt = last.prompt
        elif kind == "edit" and last is not None:
            prompt = (*last.prompt[: size * 4], *range(500, 500 + size))
        else:
            prompt = (*range(40), *range(1000 * chat, 1000 * chat + size))
        name = str(len(self.asked))
        try:
            request = self.bench.submit(name, prompt, 1 + size % 23, seed=chat)
        except InvalidRequest:
            self.chats[chat] = None
            return
        self.chats[chat] = self.asked[name] = request

    def resize(self, num_pages):
        side = KvSide(
            self.bench.scheduler.holdings, self.bench.memory, self.bench.scheduler.requests
        )

        def act():
            is_small = num_pages * 16 < self.bench.scheduler.holdings.reserved_tokens
            try:
                side.resize(num_pages * 16)
            except BudgetError:
                assert is_small

        self.bench.scheduler.safepoint.do(act)

    def check(self):
        """Ends are there, and every reply is the beginning of the right one."""
        assert set(self.bench.sink.ends) == set(self.asked)
        for name, request in self.asked.items():
            tokens = self.bench.sink.tokens.get(name, [])
            assert tokens == reply_of(request.prompt, len(tokens), request.seed)
            assert request.usage.reused_tokens < len(request.prompt)
        self.bench.assert_clean()


ASKS = st.tuples(
    st.sampled_from(["next", "next", "anew", "edit", "new"]), st.integers(0, 2), st.integers(1, 40)
)
RUNS = st.tuples(st.just("run"), st.integers(1, 40), st.just(0))
OTHERS = st.one_of(
    st.tuples(st.just("cancel"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("resize"), st.integers(4, 30), st.just(0)),
    st.tuples(st.just("fail"), st.integers(0, 30), st.just(0)),
)
ACTS = st.lists(
    st.one_of(st.tuples(ASKS, RUNS), st.tuples(ASKS, ASKS, RUNS), st.tuples(ASKS, RUNS, OTHERS)),
    min_size=4,
    max_size=14,
).map(lambda groups: [act for group in groups for act in group])


@settings(max_examples=150, deadline=None)
@given(
    latency=st.sampled_from([0, 1]),
    num_pages=st.integers(6, 40),
    eos=st.integers(3, 60),
    acts=ACTS,
)
def test_each_step_reads_its_own_sequence_whatever_happens(latency, num_pages, eos, acts):
    """No page is lost or has two owners; each reply is that of an engine that reuses nothing.

    Turns, edits and repetitions, with cancels, preemptions, resizes and a failing step in between.
    """
    bench = make_bench(num_pages=num_pages, latency=latency, chunk=16, rows=3, eos=eos)
    play = Play(bench, [None] * 3)
    for kind, number, size in acts:
        if kind == "run":
            for _ in range(number):
                bench.scheduler.step()
                bench.assert_owned_once()
        elif kind == "cancel":
            bench.scheduler.safepoint.cancel(str(len(play.asked) - number))
        elif kind == "resize":
            play.resize(number)
        elif kind == "fail":
            is_first = not bench.runner.failed
            bench.runner.failed = True
            bench.runner.wait_faults.extend([None] * number + [ValueError("NaN")] * is_first)
        else:
            play.ask(kind, number, size)
    bench.run(after_step=bench.assert_owned_once)
    play.check()


def test_play_really_reuses():
    """The random play would prove nothing if its prompts had nothing in common."""
    bench = make_bench(num_pages=30, chunk=16, rows=3)
    play = Play(bench, [None] * 3)
    for turn in range(3):
        for chat in range(2):
            play.ask("next", chat, 20 + turn)
            bench.run()
    assert [one.usage.reused_tokens > 0 for one in play.asked.values()] == [False] * 2 + [True] * 4
    assert set(bench.sink.ends.values()) == {LENGTH}
    play.check()
