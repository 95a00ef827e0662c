"""What this machine can do at best: `dev.py bench probe`.

Main memory by threads, copies to the GPU by size, the gather kernel, both links at once, the cost
of a graph node, the time of the host's answer. Every other benchmark takes its physical limit from
here. Knows no model. Without a GPU the CPU's part is measured, and that is said.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.system import usable_cores
from kernels.cpu import isa_tier, load_native
from kernels.cpu.topology import default_cpus
from kernels.cuda import cuda_obstacle
from tests.perf.limits import GB, Rates
from tests.perf.tables import describe, machine, table

MIB, GIB = 1 << 20, 1 << 30
CHUNK_BYTES = 8 * MIB
LINK_SIZES = (64 << 10, MIB, 4 * MIB, 9 * MIB, 64 * MIB)
RECORD_BYTES = 9 * MIB  # a BF16 expert of Qwen3-30B-A3B
THREADS = (1, 2, 4, 6, 8, 12, 14, 16, 24, 32)
NO_GPU = "No GPU: {}. Main memory alone was measured."


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds, less exact")
    parser.add_argument("--memory-mb", type=int, default=4096, help="to walk through; over caches")
    parser.add_argument("--threads", type=int, nargs="*", help="counts to try")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = measure(
        quick=options.quick,
        memory_bytes=options.memory_mb * MIB,
        threads=options.threads or thread_counts(usable_cores()),
    )
    facts = machine()
    print(f"{describe(facts)}\n{text(figures)}", flush=True)
    if options.json:
        kept = {"machine": facts, **figures}
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 0


def measure(quick: bool, memory_bytes: int, threads: Sequence[int]) -> dict[str, Any]:
    """Return every figure; rates in GB/s, times in microseconds.

    "main_gbps" is D (the most that CPU, or CPU and link, read together), "device_gbps" B,
    "link_gbps" P; the latter two are 0 without a GPU.
    """
    seconds = 0.15 if quick else 0.6
    obstacle = cuda_obstacle()
    if obstacle:
        memory = np.ones(memory_bytes, np.uint8)
        alone = [_cpu_row(memory, count, seconds) for count in threads]
        return {
            "note": NO_GPU.format(obstacle),
            "read": alone,
            "main_gbps": max(row["cpu"] for row in alone),
            "device_gbps": 0.0,
            "link_gbps": 0.0,
        }
    return _measure_with_gpu(quick, memory_bytes, threads, seconds)


def _measure_with_gpu(
    quick: bool, memory_bytes: int, threads: Sequence[int], seconds: float
) -> dict[str, Any]:
    from tests.perf.probe_cuda import CudaProbe, link_rows  # loads CUDA

    sizes = (MIB, RECORD_BYTES) if quick else LINK_SIZES
    with CudaProbe(memory_bytes, min(memory_bytes, 4 * GIB)) as probe:
        memory = probe.host.numpy()
        links = link_rows(probe, sizes, seconds / 4)
        rows = [_cpu_row(memory, count, seconds) for count in threads]
        for row in rows:
            with probe.gathering(RECORD_BYTES) as end:
                row["joint cpu"] = read_rate(memory, row["threads"], seconds) / GB
                row["joint gather"] = end() / GB
            row["joint"] = row["joint cpu"] + row["joint gather"]
        return {
            "note": "",
            "read": rows,
            "links": links,
            "main_gbps": max(row["joint"] for row in rows),
            "device_gbps": probe.read_rate() / GB,
            "link_gbps": max(row["pinned"] for row in links),
            "node_empty_us": probe.node_us("empty"),
            "node_step_us": probe.node_us("step"),
            "handshake_us": probe.handshake_us(),
        }


def text(figures: dict[str, Any]) -> str:
    """Return the figures as people read them."""
    columns = [name for name in figures["read"][0]]
    parts = ["Reading main memory, GB/s", table(figures["read"], columns)]
    if links := figures.get("links"):
        parts += ["Copies to the GPU, GB/s", table(links, list(links[0]))]
        parts.append(
            f"device memory {figures['device_gbps']:.0f} GB/s; graph node "
            f"{figures['node_empty_us']:.2f} us empty, {figures['node_step_us']:.2f} us dependent; "
            f"message to the host and back {figures['handshake_us']:.2f} us"
        )
    parts.append(f"best together {figures['main_gbps']:.1f} GB/s")
    return "\n".join([*parts, *filter(None, [figures["note"]])])


def rates_of(figures: dict[str, Any]) -> Rates:
    """Return what the limits need of a probe's figures."""
    names = ("main_gbps", "device_gbps", "link_gbps")
    return Rates(*(figures[name] * GB for name in names))


def probe_apart(file: Path | None, memory_mb: int = 2048) -> dict[str, Any]:
    """Return the figures in `file`, or those of a quick probe in a process of its own."""
    if file is not None:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "probe.json"
        command = [sys.executable, "-m", "tests.perf.probe", "--quick", "--json", str(out)]
        command += ["--memory-mb", str(memory_mb)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return probe_apart(out)


def thread_counts(cores: int) -> list[int]:
    """Return the counts worth trying on so many cores."""
    return sorted({count for count in THREADS if count <= cores} | {cores})


def read_rate(memory: npt.NDArray[np.uint8], threads: int, seconds: float) -> float:
    """Return bytes/s at which `threads` threads read their parts of `memory` at the same time.

    With the C++ kernels' own loop, which reads ahead; without them by numpy, which is slower.
    """
    choice = default_cpus(threads)
    if isa_tier() is None or len(choice.cpus) < threads:
        return numpy_read_rate(memory, threads, seconds)
    native = load_native()

    def measured(passes: int) -> float:
        cpus = list(choice.cpus)
        return native.read_rate(memory.ctypes.data, memory.nbytes, cpus, choice.pin, passes)

    passes = max(1, round(measured(1) * seconds / memory.nbytes))
    return measured(passes)


def numpy_read_rate(memory: npt.NDArray[np.uint8], threads: int, seconds: float) -> float:
    """Return what `read_rate` does, without C++."""
    share = memory.nbytes // threads
    step = min(CHUNK_BYTES, share)
    rates = [0.0] * threads
    begin = threading.Barrier(threads)

    def read(index: int) -> None:
        begin.wait()
        done, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < seconds or not done:
            at = index * share + done % max(1, share - step)
            np.maximum.reduce(memory[at : at + step])
            done += step
        rates[index] = done / took

    workers = [threading.Thread(target=read, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def _cpu_row(memory: npt.NDArray[np.uint8], threads: int, seconds: float) -> dict[str, Any]:
    return {"threads": threads, "cpu": read_rate(memory, threads, seconds) / GB}


if __name__ == "__main__":
    raise SystemExit(main())
