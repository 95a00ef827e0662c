"""Which prefetch distances a pool takes: only clearly better ones, in bounded time, and no bit."""

import logging
import random

import pytest
import torch

from kernels.cpu import isa_tier, load_native, trial
from kernels.cpu.pool import CpuPool, PoolMemory, PoolOptions, pool_config
from kernels.cpu.tuning import (
    CALL_BYTES,
    CANDIDATES,
    MAX_CALL_RECORDS,
    MIN_GAIN,
    MIN_RECORD_BYTES,
    MIN_ROUNDS,
    USUAL,
    Prefetch,
    Rota,
    Tuning,
    choose,
    gains,
    records_of_a_call,
    time_rounds,
)
from kernels.layouts import RecordLayout
from tests.support.experts import random_record
from tests.support.mailbox import Job, Mailbox

needs_native = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)
LAYOUTS = {
    "bf16": RecordLayout(200, 96, "bf16"),
    "fp8": RecordLayout(300, 96, "fp8_block", 48),
    "whole-rows": RecordLayout(1024, 48, "fp8_block", 128),
}
NUM_RECORDS = 6
SETTINGS = tuple(Prefetch(rows, near) for rows in (8, 16, 24) for near in (0, 512, 4096))


# --- the choice ----------------------------------------------------------------------------------


def _rounds(factors, count, noise=0.0, drift=0.0, seed=1):
    """Times of candidates that need `factors` of the usual time."""
    source = random.Random(seed)
    return [
        [factor * (1 + drift * number) * (1 + noise * source.uniform(-1, 1)) for factor in factors]
        for number in range(count)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_choice_when_nothing_pays_is_the_usual_one(seed):
    """No noise makes a choice: candidates as fast as the usual one, or slower, are never taken."""
    source = random.Random(seed)
    factors = [1.0, *(1 + source.choice((0, 0, 0.05)) for _ in CANDIDATES[1:])]
    rounds = _rounds(factors, source.randint(MIN_ROUNDS, 20), source.choice((0, 0.01)), seed=seed)
    assert choose(CANDIDATES, rounds) == Tuning(USUAL, 0.0, len(rounds))


@pytest.mark.parametrize("seed", range(40))
def test_choice_when_one_pays_clearly_is_that_one(seed):
    """A tenth is found through noise of a percent, whatever the machine's drift."""
    source = random.Random(seed)
    best = source.randrange(1, len(CANDIDATES))
    factors = [1.0 if place != best else 0.9 for place in range(len(CANDIDATES))]
    count, drift = source.randint(MIN_ROUNDS, 20), source.choice((-0.03, 0.0, 0.3))
    tuning = choose(CANDIDATES, _rounds(factors, count, 0.01, drift, seed))
    assert (tuning.chosen, tuning.rounds) == (CANDIDATES[best], count)
    assert tuning.gain == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(("gain", "taken"), [(MIN_GAIN + 1e-3, True), (MIN_GAIN - 1e-3, False)])
def test_choice_when_the_gain_is_about_the_least_is_decided_by_it(gain, taken):
    """Three percent, not less."""
    rounds = _rounds((1.0, 1.0 - gain), MIN_ROUNDS)
    assert choose(CANDIDATES[:2], rounds).chosen == CANDIDATES[taken]


def test_choice_when_the_spread_is_larger_than_the_gain_is_the_usual_one():
    """Half of the rounds at 20 % and half at 0: no setting does that."""
    rounds = [[1.0, 0.8 if number % 2 else 1.0] for number in range(10)]
    assert gains(rounds)[1] == pytest.approx((0.1, 0.2))
    assert choose(CANDIDATES[:2], rounds).chosen == USUAL


def test_choice_when_several_pay_is_the_fastest():
    """And its gain is what the log says."""
    tuning = choose(CANDIDATES[:4], _rounds((1.0, 0.9, 0.8, 0.85), 6))
    assert (tuning.chosen, tuning.gain) == (CANDIDATES[2], pytest.approx(0.2))
    assert f"{tuning}" == f"{CANDIDATES[2]}, 20% less time, 6 rounds"


def test_choice_when_rounds_are_few_is_the_usual_one():
    """Four are no proof, none are none."""
    for count in range(MIN_ROUNDS):
        rounds = _rounds((1.0, 0.5), count)
        assert choose(CANDIDATES[:2], rounds) == Tuning(USUAL, 0.0, count)
    assert choose(CANDIDATES[:2], _rounds((1.0, 0.5), MIN_ROUNDS)).chosen == CANDIDATES[1]


# --- the rounds ----------------------------------------------------------------------------------


class Machine:
    """A clock, and calls that take their time on it."""

    def __init__(self, seconds, lost_after=None):
        self.now, self.calls = 100.0, []
        self._seconds, self._lost_after = seconds, lost_after

    def clock(self):
        return self.now

    def call(self, prefetch, patience_s):
        assert patience_s > 0
        self.calls.append(prefetch)
        if len(self.calls) == self._lost_after:
            return 0.0
        self.now += self._seconds[prefetch]
        return self._seconds[prefetch]


def test_rounds_when_time_allows_try_each_candidate_in_each_place():
    """Each round begins with the next candidate; the first round does not count."""
    seconds = {one: 1e-3 * (place + 1) for place, one in enumerate(CANDIDATES)}
    machine, count = Machine(seconds), len(CANDIDATES)
    rounds = time_rounds(CANDIDATES, machine.call, machine.clock, 10.0, max_rounds=count)
    assert rounds == [[seconds[one] for one in CANDIDATES]] * count
    by_round = [machine.calls[at : at + count] for at in range(0, len(machine.calls), count)]
    assert len(by_round) == count + 1
    assert all(sorted(map(str, one)) == sorted(map(str, CANDIDATES)) for one in by_round)
    assert {one[0] for one in by_round} == set(CANDIDATES)


@pytest.mark.parametrize("budget_s", [0.0, 0.05, 0.61, 0.65, 3.0])
def test_rounds_when_the_budget_ends_stop_within_one_call(budget_s):
    """Of a slow machine only whole rounds are kept."""
    machine = Machine(dict.fromkeys(CANDIDATES, 0.1))
    rounds = time_rounds(CANDIDATES, machine.call, machine.clock, budget_s)
    assert machine.now - 100.0 < budget_s + 0.1 + 1e-9
    assert len(rounds) == max(0, len(machine.calls) // len(CANDIDATES) - 1)


def test_rounds_when_a_call_is_lost_end_there():
    """The threads have ended: nobody is asked again."""
    machine = Machine(dict.fromkeys(CANDIDATES, 0.1), lost_after=3 * len(CANDIDATES) + 2)
    rounds = time_rounds(CANDIDATES, machine.call, machine.clock, 1e9)
    assert (len(rounds), len(machine.calls)) == (2, 3 * len(CANDIDATES) + 2)


def test_calls_when_records_are_few_are_none():
    """Built-in models and tests: caches would be measured."""
    record = 3 << 20
    assert records_of_a_call(NUM_RECORDS, record) == 0
    assert records_of_a_call((MIN_RECORD_BYTES - 1) // record, record) == 0
    enough = -(-MIN_RECORD_BYTES // record)
    assert records_of_a_call(enough, record) == -(-CALL_BYTES // record)
    assert records_of_a_call(1 << 20, 1 << 12) == MAX_CALL_RECORDS
    assert records_of_a_call(2, MIN_RECORD_BYTES) == 1


@pytest.mark.parametrize(("num_records", "count"), [(10, 3), (64, 64), (7, 1)])
def test_rota_when_it_goes_round_reads_all_others_in_between(num_records, count):
    """What is read again was read longest ago."""
    rota = Rota(num_records)
    taken = [record for _ in range(20) for record in rota.take(count)]
    assert taken == [place % num_records for place in range(20 * count)]


# --- the threads ---------------------------------------------------------------------------------


def _records(layout):
    generator = torch.Generator().manual_seed(11)
    return torch.stack([random_record(layout, generator) for _ in range(NUM_RECORDS)])


def _memory(records, box):
    return PoolMemory(records, NUM_RECORDS, box.mail_address, box.reply_address)


@needs_native
@pytest.mark.parametrize("name", LAYOUTS)
def test_sums_when_prefetch_differs_are_the_same(name):
    """Every distance, whole units and shared ones: not a bit."""
    layout = LAYOUTS[name]
    records = _records(layout)
    x = torch.randn(3, layout.hidden, generator=torch.Generator().manual_seed(12))
    jobs = [Job(0, 0, (0, 2)), Job(5, 1), Job(3, 0, (1,))]
    sums = []
    for prefetch in SETTINGS:
        box = Mailbox(layout.hidden)
        options = PoolOptions(prefetch=prefetch)
        with CpuPool(layout, _memory(records, box), range(3), options) as pool:
            box.fill(jobs, x)
            box.publish()
            box.wait()
        assert pool.prefetch == prefetch
        sums.append(box.sums[:4].clone())
    assert all(torch.equal(one, sums[0]) for one in sums)
    assert sums[0].count_nonzero() > layout.hidden


@needs_native
@pytest.mark.parametrize("wrong", [(0, 512), (12, 512), (32, 512), (8, 4097)])
def test_pool_when_there_is_no_such_distance_says_so(wrong):
    """They would lead past the next unit."""
    layout = LAYOUTS["bf16"]
    box = Mailbox(layout.hidden)
    memory = _memory(_records(layout), box)
    with pytest.raises(ValueError, match="rows are 8, 16 or 24"):
        CpuPool(layout, memory, range(1), PoolOptions(prefetch=Prefetch(*wrong)))


@needs_native
def test_trial_when_it_runs_touches_no_mailbox_but_its_own():
    """The engine's mail keeps its number; a call is timed; one that takes too long is the last."""
    layout = LAYOUTS["fp8"]
    box, records = Mailbox(layout.hidden, call=41), _records(layout)
    before = [bytes(part) for part in (box.mail, box.reply)]
    config = pool_config(layout, _memory(records, box), range(3), PoolOptions())
    calls = load_native().Trial(config)
    for rows, near_bytes in ((8, 512), (24, 0)):
        assert calls.run(list(range(NUM_RECORDS)), rows, near_bytes, 60 * 10**9) > 0
    with pytest.raises(ValueError, match="rows are"):
        calls.run([0], 9, 512, 10**9)
    with pytest.raises(ValueError, match="refused"):
        calls.run([NUM_RECORDS], 8, 512, 10**9)
    with pytest.raises(ValueError, match="more records"):
        calls.run([0] * (MAX_CALL_RECORDS + 1), 8, 512, 10**9)
    assert [bytes(part) for part in (box.mail, box.reply)] == before


@needs_native
@pytest.mark.parametrize("best", [USUAL, Prefetch(16, 1024)], ids=str)
def test_pool_when_asked_to_tune_starts_with_the_choice(monkeypatch, caplog, best):
    """The threads' own times are replaced; the log and the pool say what was chosen."""
    layout = LAYOUTS["bf16"]
    box, records, ran = Mailbox(layout.hidden), _records(layout), []

    def run(self, prefetch, patience_s):
        ran.append(prefetch)
        assert timed(self, prefetch, 60.0) > 0
        return 0.5 if prefetch == best else 1.0

    timed = trial.TimedCalls.__call__
    monkeypatch.setattr(trial.TimedCalls, "__call__", run)
    monkeypatch.setattr(trial, "records_of_a_call", lambda *_: 2)
    monkeypatch.setattr(
        trial, "time_rounds", lambda tried, calls, *_: time_rounds(tried, calls, lambda: 0.0, 60.0)
    )
    with (
        caplog.at_level(logging.INFO, "kernels.cpu.pool"),
        CpuPool(layout, _memory(records, box), range(2), PoolOptions(tune=True)) as pool,
    ):
        box.fill([Job(0, 0)], torch.ones(1, layout.hidden))
        box.publish()
        box.wait()
    assert set(ran) == set(CANDIDATES)
    assert pool.prefetch == best
    assert (pool.stats().calls, pool.stats().errors) == (1, 0)
    (message,) = caplog.messages
    assert message.startswith(f"prefetch of 2 expert threads: {best}, ")


@needs_native
@pytest.mark.parametrize("tune", [False, True])
def test_pool_when_its_records_are_few_times_nothing(monkeypatch, tune):
    """Nor does one that was not asked to; what was wished for stays."""
    monkeypatch.setattr(trial, "time_rounds", lambda *_: pytest.fail("timed"))
    layout, wish = LAYOUTS["bf16"], Prefetch(16, 256)
    box = Mailbox(layout.hidden)
    options = PoolOptions(prefetch=wish, tune=tune)
    with CpuPool(layout, _memory(_records(layout), box), range(1), options) as pool:
        assert pool.prefetch == wish


def test_wish_when_it_is_a_candidate_is_the_one_to_beat():
    """It comes first, and once."""
    tried = []

    class Quick:
        def run(self, records, rows, near_bytes, patience_ns):
            assert len(records) == MAX_CALL_RECORDS
            assert patience_ns > 0
            tried.append(Prefetch(rows, near_bytes))
            return 1000

    wish = CANDIDATES[3]
    tuning = trial.tune(Quick, MIN_RECORD_BYTES // 4096, 4096, wish, lambda: 0.0, 1.0)
    assert tuning.chosen == wish
    assert tried[: len(CANDIDATES)] == [wish, *CANDIDATES[:3], *CANDIDATES[4:]]
    assert len(tried) % len(CANDIDATES) == 0
