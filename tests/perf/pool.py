"""Speed of the CPU pool beside what the same memory gives to a loop that only reads it; one run.

`python -m tests.perf.pool`. Records of H 2048, I 768, together larger than any cache. For each
encoding, number of threads and prefetch setting it prints GB/s of a long call as a fraction of the
reading loop's (goal: 0.85), and microseconds from seeing a call to its end for calls of the sizes
that a layer of decode has. Rates move with what else the machine does: compare within one run.

A prefetch setting is rows ahead : near bytes; "tuned" is the pool's own choice. `--sweep` instead
times a grid of settings in turn, in one pool, `--seconds` for each format and number of threads.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels.cpu import load_native
from kernels.cpu.pool import CpuPool, PoolMemory, PoolOptions, pool_config
from kernels.cpu.topology import CpuChoice, default_cpus, read_machine
from kernels.cpu.trial import TimedCalls
from kernels.cpu.tuning import MAX_CALL_RECORDS, USUAL, Prefetch, gains, time_rounds
from kernels.device import host
from kernels.layouts import RecordLayout
from kernels.reference.records import pack_record
from tests.support.mailbox import MAIL_JOBS, Job, Mailbox

LAYOUTS = {
    "bf16": RecordLayout(2048, 768, "bf16"),
    "fp8": RecordLayout(2048, 768, "fp8_block", 128),
}
CALL_UNITS = (12, 24, 48, 96, 160)
GAP_S = 50e-6  # what a layer does besides
TUNED = "tuned"
GRID = (
    USUAL,
    *(
        one
        for rows in (8, 16, 24)
        for near in (0, 128, 256, 512, 1024, 2048)
        if (one := Prefetch(rows, near)) != USUAL
    ),
)
SWEPT_RECORDS = (4, MAX_CALL_RECORDS)  # a large call of decode, and one whose ends do not count


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    encoding: str
    threads: int
    prefetch: str
    read_gbps: float
    pool_gbps: float
    fraction: float
    us: dict[int, float]


def main() -> int:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the records")
    parser.add_argument("--threads", type=int, nargs="*", default=[0], help="0 = the pool's own")
    parser.add_argument("--prefetch", nargs="*", default=[TUNED], help="ROWS:BYTES or tuned")
    parser.add_argument("--sweep", action="store_true", help="time a grid of prefetch settings")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a sweep, each")
    parser.add_argument("--encodings", nargs="*", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--calls", type=int, default=40, help="of each size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    machine = read_machine()
    threads = [count or len(default_cpus().cpus) for count in options.threads]
    print(f"{len(machine.cpus)} CPUs, quota {machine.quota}, {load_native().isa_tier()}")
    if not options.sweep:
        units = " ".join(f"{n:6}" for n in CALL_UNITS)
        print(f"format thr prefetch   read   pool GB/s  part   us for {units}")
    results: list[Result] = []
    for name in options.encodings:
        records = _records(LAYOUTS[name], options.gib)
        for count in threads:
            if options.sweep:
                _sweep(name, records, default_cpus(count), options.seconds)
            else:
                results += _measure(name, records, count, options.prefetch, options.calls)
        del records
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 0


def _records(layout: RecordLayout, gib: float) -> torch.Tensor:
    """Return one random record many times over: uint8 [N, record_bytes], in large pages."""
    count = max(MAIL_JOBS, round(gib * 2**30 / layout.record_bytes))
    records = torch.empty(count, layout.record_bytes, dtype=torch.uint8)
    host.prefer_huge_pages(records.data_ptr(), records.numel())
    return records.copy_(_record(layout))


def _record(layout: RecordLayout) -> torch.Tensor:
    """Return a record as checkpoints have them: few FP8 codes are subnormal, which cost more."""
    rows, width = layout.intermediate, layout.hidden
    sizes = ((rows, width), (rows, width), (width, rows))
    if not layout.group:
        return pack_record(layout, *(torch.randn(size).mul(0.02).bfloat16() for size in sizes))
    codes = (torch.randn(size).mul(112).clamp(-448, 448).to(layout.value_dtype) for size in sizes)
    blocks = [(-(-high // layout.group), -(-wide // layout.group)) for high, wide in sizes]
    return pack_record(layout, *codes, tuple(torch.rand(size) * 1e-4 for size in blocks))


def _measure(
    name: str, records: torch.Tensor, threads: int, settings: list[str], calls: int
) -> Iterator[Result]:
    choice = default_cpus(threads)
    layout = LAYOUTS[name]
    for setting in settings:
        tune = setting == TUNED
        fixed = USUAL if tune else Prefetch(*map(int, setting.split(":")))
        options = PoolOptions(pin=choice.pin, prefetch=fixed, tune=tune)
        before = _read_gbps(records, choice.cpus, choice.pin)
        with _pool(layout, records, choice.cpus, options) as (box, prefetch):
            pool_gbps = statistics.median(_long_call(layout, box, len(records)) for _ in range(8))
            us = {units: _call_us(layout, box, len(records), units, calls) for units in CALL_UNITS}
        read = (before + _read_gbps(records, choice.cpus, choice.pin)) / 2
        result = Result(name, threads, f"{prefetch}", read, pool_gbps, pool_gbps / read, us)
        times = " ".join(f"{us[units]:6.0f}" for units in CALL_UNITS)
        print(
            f"{name:5} {threads:4} {prefetch!s:>8} {read:6.1f} {pool_gbps:6.1f}      "
            f"{result.fraction:.2f}          {times}",
            flush=True,
        )
        yield result


@contextmanager
def _pool(
    layout: RecordLayout, records: torch.Tensor, cpus: tuple[int, ...], options: PoolOptions
) -> Iterator[tuple[Mailbox, Prefetch]]:
    box = Mailbox(layout.hidden)
    memory = PoolMemory(records, len(records), box.mail_address, box.reply_address)
    with CpuPool(layout, memory, cpus, options) as pool:
        pool.wake()
        yield box, pool.prefetch


def _sweep(name: str, records: torch.Tensor, choice: CpuChoice, seconds: float) -> None:
    """Print the rate of each setting, how much less time it takes than the usual one, the spread.

    The lines of a setting are for calls of so many experts; every rate is a median.
    """
    layout, threads = LAYOUTS[name], len(choice.cpus)
    box = Mailbox(layout.hidden)
    memory = PoolMemory(records, len(records), box.mail_address, box.reply_address)
    config = pool_config(layout, memory, choice.cpus, PoolOptions(pin=choice.pin))
    trial = load_native().Trial(config)
    for count in SWEPT_RECORDS:
        before = _read_gbps(records, choice.cpus, choice.pin)
        calls = TimedCalls(trial, len(records), count)
        budget_s = seconds / len(SWEPT_RECORDS)
        rounds = time_rounds(GRID, calls, time.monotonic, budget_s, max_rounds=1000)
        read = (before + _read_gbps(records, choice.cpus, choice.pin)) / 2
        print(
            f"\n{name}, {threads} threads, calls of {count} experts, {len(rounds)} rounds, "
            f"read {read:.1f} GB/s\n  prefetch   GB/s   part    gain  spread"
        )
        if len(rounds) < 2:
            print("  too few rounds: give it more --seconds")
            continue
        num_bytes = count * layout.num_units * layout.unit_bytes
        for place, (gain, spread) in enumerate(gains(rounds)):
            gbps = num_bytes / statistics.median(times[place] for times in rounds) / 1e9
            print(
                f"  {GRID[place]!s:>8} {gbps:6.1f}   {gbps / read:.2f}  {gain:+6.1%} {spread:7.1%}",
                flush=True,
            )


def _read_gbps(records: torch.Tensor, cpus: tuple[int, ...], pin: bool) -> float:
    rate = load_native().read_rate(records.data_ptr(), records.numel(), list(cpus), pin, 2)
    return rate / 1e9


def _call_ns(box: Mailbox, jobs: list[Job]) -> int:
    box.fill(jobs, torch.ones(1, box.x.shape[1]))
    end = time.perf_counter() + GAP_S
    while time.perf_counter() < end:
        pass
    box.publish()
    box.wait()
    return int(box.reply.nanoseconds)


def _long_call(layout: RecordLayout, box: Mailbox, num_records: int) -> float:
    """Return GB/s of a call of 64 experts."""
    jobs = [Job(record, 0) for record in random.sample(range(num_records), MAIL_JOBS)]
    return MAIL_JOBS * layout.num_units * layout.unit_bytes / _call_ns(box, jobs)


def _call_us(layout: RecordLayout, box: Mailbox, num_records: int, units: int, calls: int) -> float:
    """Return the median time of calls of so many units, whole experts and a rest."""
    needed = -(-units // layout.num_units)
    rest = needed * layout.num_units - units
    times = []
    for _ in range(calls):
        chosen = random.sample(range(num_records), needed)
        jobs = [Job(record, rest if place == 0 else 0) for place, record in enumerate(chosen)]
        times.append(_call_ns(box, jobs) / 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    raise SystemExit(main())
