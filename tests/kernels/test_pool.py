"""The CPU pool behind the mailbox: exact sums whatever the GPU takes, no call lost, no crash."""

import ctypes
import random
import re
import threading

import pytest
import torch

from kernels.cpu import isa_tier
from kernels.cpu.pool import (
    MAIL_HEAD_BYTES,
    MAIL_ROWS,
    MAIL_SUMS,
    REPLY_HEAD_BYTES,
    CpuPool,
    PoolMemory,
    PoolOptions,
)
from kernels.layouts import RecordLayout
from kernels.reference.canonical import unit_sums
from tests.conftest import REPOSITORY
from tests.support.experts import random_record
from tests.support.mailbox import Job, Mail, Mailbox, Reply

pytestmark = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)

TIERS = ("scalar", "avx2", "avx512")
LAYOUTS = {
    "bf16": RecordLayout(200, 96, "bf16"),
    "fp8": RecordLayout(300, 96, "fp8_block", 48),
    "many-blocks": RecordLayout(1024, 48, "fp8_block", 128),
}
NUM_RECORDS, NUM_INPUTS = 6, 9
QUICK = PoolOptions(spin_s=20e-6, park_s=2e-3)
CALL_LAST = 2**32 - 1


@pytest.fixture(params=TIERS)
def tier(request):
    if TIERS.index(request.param) > TIERS.index(isa_tier()):
        pytest.skip(f"this CPU has no {request.param}")
    return request.param


class Bench:
    """Records, inputs, and the canonical sums of every unit of every record for every input."""

    def __init__(self, layout):
        self.layout = layout
        generator = torch.Generator().manual_seed(7)
        records = [random_record(layout, generator) for _ in range(NUM_RECORDS)]
        self.records = torch.stack(records)
        powers = torch.randint(-4, 5, (NUM_INPUTS, layout.hidden), generator=generator)
        self.x = torch.randn(NUM_INPUTS, layout.hidden, generator=generator) * 2.0**powers
        self._partial = {}

    def partial(self, record, unit, x):
        key = (record, unit, x)
        if key not in self._partial:
            start = unit * self.layout.unit_bytes
            stored = self.records[record, start : start + self.layout.unit_bytes]
            self._partial[key] = unit_sums(self.layout, stored, self.x[x], torch.float32)
        return self._partial[key]

    def pool(self, box, options=QUICK, threads=3):
        memory = PoolMemory(self.records, NUM_RECORDS, box.mail_address, box.reply_address)
        return CpuPool(self.layout, memory, range(threads), options)

    def num_units(self, jobs):
        return sum(self.layout.num_units - job.first for job in jobs)

    def check(self, box, jobs, inputs):
        """The reply is the canonical sum of the list's first `units` units, bit for bit."""
        left, place = box.reply.units, 0
        for job in jobs:
            units = range(self.layout.num_units - 1, job.first - 1, -1)[:left]
            left -= len(units)
            for row in job.rows:
                if units:
                    parts = [self.partial(job.record, unit, inputs[row]) for unit in units]
                    wanted = parts[0]
                    for part in parts[1:]:
                        wanted = wanted + part
                    assert torch.equal(box.sums[place], wanted)
                place += 1
        assert left == 0


BENCHES = {name: Bench(layout) for name, layout in LAYOUTS.items()}


@pytest.fixture(params=LAYOUTS)
def bench(request):
    return BENCHES[request.param]


def _random_jobs(source, layout, rows):
    """Distinct records in any order, each for some of the rows."""
    jobs = []
    for record in source.sample(range(NUM_RECORDS), source.randint(1, NUM_RECORDS)):
        chosen = tuple(sorted(source.sample(range(rows), source.randint(1, rows))))
        first = source.choice((0, 0, source.randint(0, layout.num_units)))
        jobs.append(Job(record, first, chosen))
    return jobs


def _play(box, source, total, limit):
    """Take units from the back, by several workers, until the list is covered.

    A worker looks first, then takes, and never gives back.
    """
    workers = source.randint(0, 16)
    taken = [0] * workers
    for _ in box.until_done():
        left = total - sum(taken)
        if workers and left > 0 and (box.claimed < left or left > limit):
            worker = source.randrange(workers)
            taken[worker] += 1
            box.steal(worker, taken[worker])
    return sum(taken)


def _round(bench, box, source):
    rows = source.choice((1, 1, 2, 4, 8))
    jobs = _random_jobs(source, bench.layout, rows)
    inputs = source.sample(range(NUM_INPUTS), rows)
    total = bench.num_units(jobs)
    if source.random() < 0.5:  # right, in part right, or wrong
        guessed = [(job.record, job.first) for job in jobs[source.randint(0, 1) :]]
        box.guess([*guessed, (source.randrange(NUM_RECORDS), 0)])
    limit = source.choice((total, 2**32 - 1, source.randint(0, total)))
    box.fill(jobs, bench.x[inputs], limit)
    before = source.randint(0, min(3, total)) if source.random() < 0.3 else 0
    box.mail.stolen[0] = ((box.mail.call + 1) % 2**32) << 32 | before  # taken at once
    call = box.publish()
    stolen = before
    if before == 0:
        box.mail.stolen[0] = 0  # another call's word
        stolen = _play(box, source, total, limit)
    box.wait()
    units = box.reply.units
    assert box.reply.error == 0
    assert before == 0 or units == min(limit, total - before)
    assert units <= min(limit, total)
    assert units + stolen >= min(limit, total), "units that nobody owns"
    assert box.reply.claim == (call + 1) % 2**32 << 32
    bench.check(box, jobs, inputs)
    return units


def test_sums_when_the_gpu_steals_at_the_same_time_equal_the_canonical_order(bench, tier):
    """Random calls, rows, limits and thieves; call numbers wrap on the way (2^32)."""
    source = random.Random(f"{bench.layout}{tier}")
    rounds = 40 if tier == "scalar" else 300
    box = Mailbox(bench.layout.hidden, call=CALL_LAST - rounds // 2)
    options = PoolOptions(tier=tier, spin_s=20e-6, park_s=2e-3)
    with bench.pool(box, options) as pool:
        units = sum(_round(bench, box, source) for _ in range(rounds))
    stats = pool.stats()
    assert (stats.calls, stats.units, stats.errors) == (rounds, units, 0)
    assert stats.num_bytes == units * bench.layout.unit_bytes
    assert stats.busy_ns > 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_sums_when_threads_differ_in_number_are_the_same(threads):
    """One thread, as many as cores, more than cores (case E-14)."""
    bench, source = BENCHES["fp8"], random.Random(threads)
    box = Mailbox(bench.layout.hidden)
    with bench.pool(box, threads=threads):
        for _ in range(150):
            _round(bench, box, source)


def test_call_when_nobody_steals_is_the_pools_as_a_whole(bench):
    """Without a limit every unit is; the time is told."""
    box = Mailbox(bench.layout.hidden)
    jobs = [Job(2, 0), Job(5, 1), Job(0, bench.layout.num_units)]
    with bench.pool(box):
        box.fill(jobs, bench.x[:1])
        box.publish()
        box.wait()
    assert box.reply.units == bench.num_units(jobs)
    assert box.reply.nanoseconds > 0
    bench.check(box, jobs, [0])


def test_call_when_it_holds_the_most_jobs_and_sums_is_served():
    """64 jobs of one row; 8 jobs of 8 rows: 64 sums."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    with bench.pool(box):
        for jobs, rows in (
            ([Job(i % NUM_RECORDS, 3) for i in range(64)], 1),
            ([Job(i % NUM_RECORDS, 2, tuple(range(8))) for i in range(8)], 8),
        ):
            box.fill(jobs, bench.x[:rows])
            box.publish()
            box.wait()
            assert box.reply.units == bench.num_units(jobs)
            bench.check(box, jobs, range(rows))


@pytest.mark.parametrize(("jobs", "limit"), [([], 9), ([Job(1, 6)], 9), ([Job(1, 0)], 0)])
def test_call_when_it_leaves_the_pool_nothing_completes(jobs, limit):
    """No job, a job without units, no unit within the limit."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    box.sums[:] = 5.0
    with bench.pool(box):
        box.fill(jobs, bench.x[:1], limit)
        box.publish()
        box.wait()
    assert (box.reply.units, box.reply.error) == (0, 0)
    assert bool((box.sums == 5.0).all())


def _spoil(box, field, value):
    if field in ("jobs", "limit") or (field == "rows" and value in (0, 9, 1 << 31)):
        setattr(box.mail, field, value)
    else:
        setattr(box.mail.job[1], field.removeprefix("job_"), value)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("jobs", 65, 1),
        ("jobs", 2**32 - 1, 1),
        ("rows", 0, 2),
        ("rows", 9, 2),
        ("job_rows", 0, 3),
        ("job_rows", 4, 3),
        ("base", 63, 4),
        ("record", NUM_RECORDS, 5),
        ("record", -1, 5),
        ("first", 7, 6),
        ("first", -1, 6),
    ],
)
def test_call_when_it_is_damaged_is_refused_and_the_next_one_served(field, value, error):
    """Nothing outside the records, the sums or the scratch is touched; the GPU learns why."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    box.sums[:] = 5.0
    jobs = [Job(3, 0), Job(4, 0, (0, 1))]
    with bench.pool(box) as pool:
        box.fill(jobs, bench.x[:2])
        _spoil(box, field, value)
        box.publish()
        box.wait()
        assert (box.reply.error, box.reply.units) == (error, 0)
        assert bool((box.sums == 5.0).all())
        box.fill(jobs, bench.x[:2])
        box.publish()
        box.wait()
        assert box.reply.error == 0
        bench.check(box, jobs, [0, 1])
    assert (pool.stats().calls, pool.stats().errors) == (2, 1)


def test_call_when_its_jobs_have_more_rows_than_sums_is_refused():
    """The partial sums hold 64 rows."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    with bench.pool(box):
        box.fill([Job(0, 0, tuple(range(8)))] * 9, bench.x[:8])
        for place in range(9):
            box.mail.job[place].base = 0
        box.publish()
        box.wait()
    assert box.reply.error == 4


def test_call_when_all_threads_sleep_is_served_with_and_without_a_bell():
    """Parked at once: a call may arrive at any moment of falling asleep and is never lost."""
    bench, source = BENCHES["bf16"], random.Random(3)
    box = Mailbox(bench.layout.hidden)
    with bench.pool(box, PoolOptions(spin_s=0, park_s=0)) as pool:
        for number in range(300):
            if number % 10:
                pool.wake()
            _round(bench, box, source)
            if number % 3 == 0:
                pool.wake()


def test_wake_when_called_from_several_threads_is_harmless():
    """Bells that ring while calls run, while threads fall asleep, and all at once."""
    bench, source = BENCHES["bf16"], random.Random(4)
    box = Mailbox(bench.layout.hidden)
    stop = threading.Event()
    with bench.pool(box, PoolOptions(spin_s=0, park_s=0)) as pool:

        def ring():
            while not stop.is_set():
                pool.wake()

        ringers = [threading.Thread(target=ring) for _ in range(2)]
        for ringer in ringers:
            ringer.start()
        for _ in range(60):
            _round(bench, box, source)
        stop.set()
        for ringer in ringers:
            ringer.join()


@pytest.mark.parametrize("begun", [True, False])
def test_close_when_a_call_is_in_the_mail_ends_it_or_leaves_it_untouched(begun):
    """The threads end within one call; a call in hand is complete and exact, others unserved."""
    bench = BENCHES["bf16"]
    jobs = [Job(i, 0, tuple(range(8))) for i in range(NUM_RECORDS)]
    for _ in range(20):
        box = Mailbox(bench.layout.hidden)
        pool = bench.pool(box, threads=2)
        box.fill(jobs, bench.x[:8])
        box.publish()
        while begun and box.claimed == 0:
            pass
        pool.close()
        assert not begun or box.is_done
        if box.is_done:
            bench.check(box, jobs, range(8))
        else:
            assert (box.reply.done, box.claimed) == (0, 0)
        pool.close()


def test_pool_when_a_call_is_in_the_mail_already_does_not_serve_it():
    """What lies there at the start is another pool's past."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden, call=41)
    box.fill([Job(0, 0)], bench.x[:1])
    with bench.pool(box) as pool:
        assert box.reply.claim == 42 << 32
        box.publish()
        box.wait()
        assert box.reply.done == 42
    assert pool.stats().calls == 1


def test_call_when_numbers_skip_is_served():
    """Any number that is not the last one is a new call."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    with bench.pool(box):
        for call in (7, 3, CALL_LAST, 0, 1000):
            box.fill([Job(1, 2)], bench.x[:1])
            box.mail.call = call
            box.wait()
            bench.check(box, [Job(1, 2)], [0])


def test_sums_when_the_starting_thread_flushes_small_numbers_are_exact():
    """Threads take the arithmetic of the contract, not that of whoever starts them."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)
    tiny = bench.x[:1] * 2.0**-74
    assert torch.set_flush_denormal(True)
    try:
        with bench.pool(box):
            box.fill([Job(0, bench.layout.num_units - 1)], tiny)
            box.publish()
            box.wait()
    finally:
        torch.set_flush_denormal(False)
    last = bench.records[0, : bench.layout.num_units * bench.layout.unit_bytes]
    wanted = unit_sums(bench.layout, last[-bench.layout.unit_bytes :], tiny[0], torch.float32)
    assert bool(((wanted != 0) & (wanted.abs() < 2.0**-126)).any()), "no small numbers to flush"
    assert torch.equal(box.sums[0], wanted)


def test_pool_when_built_wrongly_says_what_is_wrong():
    """No address that cannot be right reaches C++."""
    bench = BENCHES["bf16"]
    box = Mailbox(bench.layout.hidden)

    def build(records=bench.records, num_records=NUM_RECORDS, mail=box.mail_address, cpus=(0,)):
        memory = PoolMemory(records, num_records, mail, box.reply_address)
        return CpuPool(bench.layout, memory, cpus)

    for wrong in (bench.records[:, 1:], bench.records.view(torch.int8), bench.records.to("meta")):
        with pytest.raises(ValueError, match=r"expected torch\.uint8"):
            build(wrong)
    with pytest.raises(ValueError, match=r"expected torch\.uint8"):
        build(num_records=NUM_RECORDS + 1)
    with pytest.raises(ValueError, match="no multiple of 64"):
        build(mail=box.mail_address + 8)
    with pytest.raises(ValueError, match="at least one CPU"):
        build(cpus=())
    build(bench.records.data_ptr()).close()


def test_sizes_when_read_from_the_header_agree():
    """Python's constants and the tests' structures are those of mailbox.h."""
    text = (REPOSITORY / "kernels" / "csrc" / "mailbox.h").read_text(encoding="utf-8")
    numbers = {n: int(v) for n, v in re.findall(r"constexpr int (\w+) = (\d+);", text)}
    assert numbers["kMailBytes"] == MAIL_HEAD_BYTES
    assert numbers["kReplyBytes"] == REPLY_HEAD_BYTES
    assert (numbers["kMailRows"], numbers["kMailSums"]) == (MAIL_ROWS, MAIL_SUMS)
    assert ctypes.sizeof(Mail) == 64 + 128 + 64 * 8 + 16 * 8
    assert ctypes.sizeof(Reply) == 128
    assert (Mail.stolen.offset, Mail.job.offset, Reply.claim.offset) == (64, 192, 64)
