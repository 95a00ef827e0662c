"""What the pool's threads fetch into the caches for the next layer: exactly the guess, or less."""

import time

import pytest
import torch

from kernels.cpu import isa_tier
from kernels.cpu.pool import CpuPool, PoolMemory, PoolOptions
from kernels.layouts import RecordLayout
from tests.support.experts import random_record
from tests.support.mailbox import PATIENCE_S, Job, Mailbox

pytestmark = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)
LAYOUT = RecordLayout(1024, 64, "bf16")  # 4 units of 96 KiB
NUM_RECORDS = 4
UNITS, UNIT_BYTES = LAYOUT.num_units, LAYOUT.unit_bytes
WITHOUT_LIMIT = 2**40


class Idle:
    """A pool that is awake and has no call."""

    def __init__(self, look_ahead_bytes: int = WITHOUT_LIMIT, threads: int = 3) -> None:
        generator = torch.Generator().manual_seed(3)
        records = [random_record(LAYOUT, generator) for _ in range(NUM_RECORDS)]
        self.records = torch.stack(records)
        self.box = Mailbox(LAYOUT.hidden)
        memory = PoolMemory(
            self.records, NUM_RECORDS, self.box.mail_address, self.box.reply_address
        )
        options = PoolOptions(park_s=PATIENCE_S, look_ahead_bytes=look_ahead_bytes)
        self.pool = CpuPool(LAYOUT, memory, range(threads), options)
        self.pool.wake()

    def __enter__(self) -> "Idle":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def fetched(self) -> int:
        """Bytes so far."""
        return self.pool.stats().ahead_bytes

    def wait_for(self, num_bytes: int) -> None:
        """Go round until so much was fetched."""
        end = time.monotonic() + PATIENCE_S
        while self.fetched() < num_bytes:
            assert time.monotonic() < end, f"{self.fetched()} bytes of {num_bytes}"
            time.sleep(0)

    def serve(self, *jobs: Job) -> torch.Tensor:
        """One call, after which every thread has ended what it did before; returns its sums."""
        jobs = jobs or (Job(0, 0),)
        x = torch.linspace(-1.0, 2.0, LAYOUT.hidden)[None]
        self.box.fill(list(jobs), x)
        self.box.publish()
        self.box.wait()
        return self.box.sums[: len(jobs)].clone()


@pytest.mark.parametrize("threads", [1, 4])
def test_guess_when_there_is_no_call_is_fetched_once(threads):
    """Whole experts and parts of them; a second guess comes on top; the sum is exact at the end."""
    with Idle(threads=threads) as idle:
        idle.box.guess([(2, 0), (0, 3)])
        idle.wait_for(5 * UNIT_BYTES)
        idle.serve()
        idle.box.guess([(3, 2)])
        idle.wait_for(7 * UNIT_BYTES)
    assert idle.fetched() == 7 * UNIT_BYTES


@pytest.mark.parametrize(("look_ahead_bytes", "units"), [(3 * UNIT_BYTES - 1, 2), (0, 0)])
def test_guess_when_it_is_longer_than_allowed_is_fetched_up_to_there(look_ahead_bytes, units):
    """What lies behind would only push out what lies before; 0 switches it off."""
    with Idle(look_ahead_bytes, threads=1) as idle:
        idle.box.guess([(1, 0)])
        idle.wait_for(units * UNIT_BYTES)
        idle.serve()
    assert idle.fetched() == units * UNIT_BYTES


@pytest.mark.parametrize(
    "nonsense",
    [(NUM_RECORDS, 0), (2**32 - 1, 0), (0, UNITS), (1, 2**16 - 1)],
    ids=["record", "negative", "first", "far"],
)
def test_guess_when_it_names_what_is_not_there_leaves_that_out(nonsense):
    """Torn or spoilt: nothing outside the records is touched, the rest counts."""
    with Idle() as idle:
        idle.box.guess([nonsense, (1, 3)])
        idle.wait_for(UNIT_BYTES)
        idle.serve()
    assert idle.fetched() == UNIT_BYTES


def test_guess_when_all_places_are_full_is_fetched_to_the_last():
    """Sixteen experts; what stands in the mail behind them is none."""
    with Idle(threads=8) as idle:  # each fetches 8 units at most
        idle.box.guess([(0, 0)] * 16)
        idle.wait_for(16 * UNITS * UNIT_BYTES)
        idle.serve()
    assert idle.fetched() == 16 * UNITS * UNIT_BYTES


def test_guess_when_it_is_torn_ends_where_the_older_one_begins():
    """Words of two guesses: only those that belong to the newest one count."""
    with Idle() as idle:
        idle.box.guess([(0, 3), (1, 3), (2, 3)])
        idle.wait_for(3 * UNIT_BYTES)
        idle.box.guess([(3, 2)])
        idle.wait_for(5 * UNIT_BYTES)
        idle.serve()
    assert idle.fetched() == 5 * UNIT_BYTES


def test_guess_when_it_names_a_unit_twice_then_it_is_computed_once():
    """One thread has it twice in its list."""
    with Idle(threads=1) as idle:
        idle.box.guess([(1, 3), (1, 3)])
        idle.wait_for(2 * UNIT_BYTES)
        idle.serve(Job(1, 3))
    assert idle.box.reply.units == 1
    assert idle.pool.stats().fetched_units == 1


def test_call_when_it_comes_during_a_guess_is_served():
    """A thread leaves its guess within a few kilobytes; another layer's is gone on with."""
    with Idle() as idle:
        for _ in range(50):
            idle.box.guess([(record, 0) for record in range(1, NUM_RECORDS)])
            idle.serve()
        idle.wait_for(12 * UNIT_BYTES)
    stats = idle.pool.stats()
    assert (stats.calls, stats.errors) == (50, 0)
    assert stats.ahead_bytes <= 50 * 12 * UNIT_BYTES


def test_claim_counts_units_that_were_begun_further_back():
    """An expert at the list's end is begun first and passed at the end; nothing of it is left."""
    with Idle(threads=1) as idle:
        idle.box.guess([(2, 0)])
        idle.wait_for(4 * UNIT_BYTES)
        idle.serve(Job(1, 0), Job(2, 0))
        assert idle.box.reply.claim == 2 << 32
        assert idle.pool.stats().fetched_units == 4
    assert idle.box.reply.units == 8


def test_units_when_a_thread_has_fetched_them_are_computed_by_it():
    """Wherever the list has them; a guess for another layer helps nothing; bits stay."""
    with Idle(threads=1) as idle:
        without = idle.serve(Job(1, 0), Job(2, 1))
        idle.box.guess([(2, 0)])
        idle.wait_for(4 * UNIT_BYTES)
        assert torch.equal(idle.serve(Job(1, 0), Job(2, 1)), without)
        assert idle.pool.stats().fetched_units == 3
        idle.box.guess([(3, 0)])  # comes a little before the call of the guess before it
        idle.wait_for(8 * UNIT_BYTES)
        assert torch.equal(idle.serve(Job(1, 0), Job(2, 1)), without)
        assert idle.pool.stats().fetched_units == 6
        idle.box.guess([(3, 0)])
        idle.wait_for(12 * UNIT_BYTES)
        assert torch.equal(idle.serve(Job(1, 0), Job(2, 1)), without)
    assert idle.pool.stats().fetched_units == 6


def test_units_when_the_gpu_has_taken_them_are_left_to_it():
    """What lies behind the pool's part is not computed, fetched or not."""
    with Idle(threads=1) as idle:
        idle.box.guess([(2, 0)])
        idle.wait_for(4 * UNIT_BYTES)
        idle.box.mail.stolen[0] = 1 << 32 | 3
        idle.serve(Job(2, 0))
    assert idle.box.reply.units == 1
    assert idle.pool.stats().fetched_units == 1
