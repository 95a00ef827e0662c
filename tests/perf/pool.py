"""Speed of the CPU pool beside what the same memory gives to a loop that only reads it; one run.

`python -m tests.perf.pool`. Records of H 2048, I 768, together larger than any cache. For each
encoding, number of threads and prefetch distance it prints GB/s of a long call as a fraction of the
reading loop's (goal: 0.85), and microseconds from seeing a call to its end for calls of the sizes
that a layer of decode has. Rates move with what else the machine does: compare within one run.
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
from kernels.cpu.pool import AHEAD_BYTES, CpuPool, PoolMemory, PoolOptions
from kernels.cpu.topology import default_cpus, read_machine
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


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    encoding: str
    threads: int
    ahead_bytes: int
    read_gbps: float
    pool_gbps: float
    fraction: float
    us: dict[int, float]


def main() -> int:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the records")
    parser.add_argument("--threads", type=int, nargs="*", default=[0], help="0 = the pool's own")
    parser.add_argument("--ahead", type=int, nargs="*", default=[AHEAD_BYTES], help="bytes")
    parser.add_argument("--encodings", nargs="*", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--calls", type=int, default=40, help="of each size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    machine = read_machine()
    threads = [count or len(default_cpus().cpus) for count in options.threads]
    print(f"{len(machine.cpus)} CPUs, quota {machine.quota}, {load_native().isa_tier()}")
    print("format thr  ahead   read   pool GB/s  part   us for", *(f"{n:6}" for n in CALL_UNITS))
    results: list[Result] = []
    for name in options.encodings:
        records = _records(LAYOUTS[name], options.gib)
        for count in threads:
            results += _measure(name, records, count, options.ahead, options.calls)
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
    name: str, records: torch.Tensor, threads: int, distances: list[int], calls: int
) -> Iterator[Result]:
    choice = default_cpus(threads)
    layout = LAYOUTS[name]
    for ahead in distances:
        options = PoolOptions(pin=choice.pin, ahead_bytes=ahead)
        before = _read_gbps(records, choice.cpus, choice.pin)
        with _pool(layout, records, choice.cpus, options) as box:
            pool_gbps = statistics.median(_long_call(layout, box, len(records)) for _ in range(8))
            us = {units: _call_us(layout, box, len(records), units, calls) for units in CALL_UNITS}
        read = (before + _read_gbps(records, choice.cpus, choice.pin)) / 2
        result = Result(name, threads, ahead, read, pool_gbps, pool_gbps / read, us)
        times = " ".join(f"{us[units]:6.0f}" for units in CALL_UNITS)
        print(
            f"{name:5} {threads:4} {ahead:6} {read:6.1f} {pool_gbps:6.1f}      "
            f"{result.fraction:.2f}          {times}",
            flush=True,
        )
        yield result


@contextmanager
def _pool(
    layout: RecordLayout, records: torch.Tensor, cpus: tuple[int, ...], options: PoolOptions
) -> Iterator[Mailbox]:
    box = Mailbox(layout.hidden)
    memory = PoolMemory(records, len(records), box.mail_address, box.reply_address)
    with CpuPool(layout, memory, cpus, options) as pool:
        pool.wake()
        yield box


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
