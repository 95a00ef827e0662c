"""Speed of the dense decode kernels on this machine's card, Qwen3-30B-A3B's shape.

`python -m tests.perf.gpu_dense [--rows 1 2 4 8] [--blocks] [--sweep]`. Each kernel is launched a
hundred times in one CUDA graph, over layers whose weights together exceed any cache. Printed: us a
launch, GB/s of what must be read, and the share of the card's own copy rate, measured in the same
run. `--sweep` tries other ways to cut the matrices and names the best for each.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import torch
from torch import cuda  # noqa: TID251 - a card's clock and graphs, for measuring only

from kernels.cuda.__main__ import qwen3_30b
from kernels.cuda.compile import compile_source
from kernels.cuda.dense import DenseBuffers, DenseKernels
from kernels.cuda.driver import Module, architecture
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import Card, Tuning, dense_defines, gemv_plans
from kernels.layouts import BYTE_ENCODINGS, DENSE_DTYPES
from tests.kernels.cuda.dense_cases import Rig

LAYERS = 12  # 450 MB of projections: no cache holds them
LAUNCHES = 96
REPEATS = 7
COPY_BYTES = 2 << 30
PLAIN, SCALED = BYTE_ENCODINGS
Step = Callable[[int, int], None]  # layer, stream


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--contexts", type=int, nargs="+", default=[600, 4096, 32768])
    parser.add_argument("--blocks", action="store_true", help="projections in FP8 blocks")
    parser.add_argument("--sweep", action="store_true", help="try other cuts of the matrices")
    options = parser.parse_args()
    copy_rate = measure_copy()
    print(f"{cuda.get_device_name()}: copies read and write {copy_rate / 1e9:.0f} GB/s together")
    for rows in options.rows:
        shape = qwen3_30b(rows, SCALED if options.blocks else PLAIN, num_layers=LAYERS)
        rig = make_rig(shape, options.contexts[0])
        if options.sweep:
            sweep(rig, copy_rate)
            continue
        print(f"\n{rows} rows, projections {shape.projections}")
        for name, step, num_bytes in kernels_of(rig, rig.kernels):
            show(name, measure(step), num_bytes, copy_rate)
        del rig
        for context in options.contexts:
            rig = make_rig(replace(shape, vocab=128), context)
            num_bytes = rows * context * 2 * shape.kv_width * 2
            show(f"attention, {context}", measure(rig.kernels.attention), num_bytes, copy_rate)
            del rig
    return 0


@cache
def module_of(shape: DecodeShape) -> Module:
    """Compile once."""
    return Module(compile_source("dense.cu", dense_defines(shape), architecture()))


def make_rig(shape: DecodeShape, context: int) -> Rig:
    """All rows at one context."""
    return Rig(shape, module_of(shape), [context] * shape.rows, torch.device("cuda"), Card.of())


def kernels_of(rig: Rig, kernels: DenseKernels) -> Iterator[tuple[str, Step, int]]:
    """Name kernels, how to launch them, and the bytes that they must read."""
    shape = rig.shape
    size = DENSE_DTYPES[shape.projections].itemsize
    head = shape.vocab * shape.hidden * DENSE_DTYPES[shape.head].itemsize
    yield "norm + qkv", kernels.qkv, shape.qkv_width * shape.hidden * size
    yield "o + residual", kernels.output, shape.query_width * shape.hidden * size
    yield "norm + head", lambda _, stream: kernels.head(stream), head
    yield "finish", lambda _, stream: rig.finish(stream), shape.rows * shape.vocab * 4
    yield "embed", lambda _, stream: kernels.embed(stream), shape.rows * shape.hidden * 2


def sweep(rig: Rig, copy_rate: float) -> None:
    """Try cuts of the matrices; print every one and the best for each."""
    shape = rig.shape
    best: dict[str, tuple[float, Tuning]] = {}
    for tuning in map(Tuning._make, product((1, 2, 4), (4, 8, 16), (4, 8), (2, 3, 4))):
        if tuning.rows_per_warp > tuning.loads or shape.rows * tuning.rows_per_warp > 32:
            continue
        if tuning.ctas * tuning.warps * (tuning.loads * 4 + 48) * 32 > 65536:
            continue  # more registers than there are
        plans = gemv_plans(shape, tuning)
        defines = dense_defines(shape, plans)
        module = Module(compile_source("dense.cu", defines, architecture()))
        kernels = DenseKernels(
            shape, module, rig.weights, rig.inputs, DenseBuffers(shape, rig.device),
            rig.pool.data_ptr(), rig.card, plans,
        )  # fmt: skip
        for name, step, num_bytes in list(kernels_of(rig, kernels))[:3]:
            seconds = measure(step)
            show(f"{name} {tuple(tuning)}", seconds, num_bytes, copy_rate)
            best[name] = min(best.get(name, (seconds, tuning)), (seconds, tuning))
    for name, (seconds, tuning) in best.items():
        print(f"best for {name}, {shape.rows} rows: {tuning}, {seconds * 1e6:.2f} us")


def measure(step: Step) -> float:
    """Return seconds a launch, the median of several runs of one graph."""
    step(0, cuda.current_stream().cuda_stream)  # what is set once is set before the capture
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        stream = cuda.current_stream().cuda_stream
        for launch in range(LAUNCHES):
            step(launch % LAYERS, stream)
    return timed(graph.replay) / LAUNCHES


def measure_copy() -> float:
    """Return bytes per second that a large copy reads and writes."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / timed(lambda: target.copy_(source))


def timed(work: Callable[[], object]) -> float:
    """Return the median of seconds on the card's clock."""
    work()
    seconds = []
    for _ in range(REPEATS):
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def show(name: str, seconds: float, num_bytes: int, copy_rate: float) -> None:
    """Print a line."""
    rate = num_bytes / seconds
    beyond = (seconds - num_bytes / copy_rate) * 1e6
    print(
        f"  {name:<34} {seconds * 1e6:8.2f} us  {rate / 1e9:7.0f} GB/s  "
        f"{rate / copy_rate:5.1%} of a copy  {beyond:6.2f} us beyond it"
    )


if __name__ == "__main__":
    raise SystemExit(main())
