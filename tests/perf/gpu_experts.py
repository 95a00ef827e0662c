"""Speed of the MoE kernels on this machine's card, link and CPU, Qwen3-30B-A3B's shape.

`python -m tests.perf.gpu_experts [--rows 1] [--encoding bf16] [--layers 8] [--threads 12]`. Steps
of random routes are captured in one CUDA graph, layer after layer, nothing between them. Printed:
us a layer (router, plan, experts, merge), GB/s of the units read from slots, over the link, and by
the CPU, and what the two links gave together. Hits first, then the link alone with 4, 6 and 8
workers, then the CPU alone, then both ends of the list.
"""

import argparse
import random
import statistics
from dataclasses import dataclass

import torch
from torch import cuda  # noqa: TID251 - a card's clock and graphs, for measuring only

from kernels.cuda.__main__ import qwen3_30b
from kernels.cuda.moe_state import MissMode, MoePolicy
from tests.kernels.cuda.moe_support import SmallModel

REPEATS = 7
STEPS = 6  # of one graph, each with routes of its own


@dataclass(frozen=True)
class Case:
    """What is measured: a policy, link workers, the share of experts in slots."""

    name: str
    policy: MoePolicy
    workers: int
    resident: float


def cases() -> list[Case]:
    """Hits, each link alone, both."""
    fill = MoePolicy(mode=MissMode.FILL_ONLY, pool=False)
    return [
        Case("all in slots", fill, 6, 1.0),
        *(Case(f"link, {workers} workers", fill, workers, 0.25) for workers in (4, 6, 8)),
        Case("CPU", MoePolicy(mode=MissMode.CPU_ONLY), 6, 0.25),
        *(
            Case(f"two ends, {workers} workers", MoePolicy(), workers, resident)
            for workers in (4, 6, 8)
            for resident in (0.125, 0.25, 0.5)
        ),
        Case("split at .35", MoePolicy(mode=MissMode.SPLIT, share=0.35), 6, 0.25),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--encoding", choices=["bf16", "fp8_block"], default="bf16")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--threads", type=int, default=12)
    options = parser.parse_args()
    print(f"{cuda.get_device_name()}, {options.encoding}, {options.threads} CPU threads")
    for rows in options.rows:
        shape = qwen3_30b(rows, options.encoding, num_layers=options.layers)
        model = SmallModel(shape, num_slots=1, device=torch.device("cuda"))
        print(f"\n{rows} rows")
        for case in cases():
            measure(model, case, options.threads)
        del model
    return 0


def prepare(model: SmallModel, case: Case) -> None:
    """Put the case's policy in force, random experts in its slots, its workers in the layers."""
    model.state.set_policy(case.policy)
    tables = model.state.snapshot()
    tables.shrink(1)
    tables.grow(max(1, int(case.resident * model.shape.max_slots)))
    records = list(range(len(model.records)))
    random.Random(1).shuffle(records)
    for copy in tables.admit(records[: tables.num_slots]):
        model.slots[copy.slot].copy_(model.records[copy.record], non_blocking=True)
    model.state.install(tables)
    model.use_workers(case.workers)


def capture(model: SmallModel) -> tuple[cuda.CUDAGraph, list[torch.Tensor]]:
    """Record steps: fresh x, then every layer. Returns the graph, and what must outlive it."""
    rng = random.Random(2)
    shape = model.shape
    inputs = []
    for step in range(STEPS):
        routes = [rng.sample(range(shape.num_experts), shape.top_k) for _ in range(shape.rows)]
        inputs.append(model.inputs(routes, step).to(model.x.device))
    model.kernels.launch(model.layers[0], cuda.current_stream().cuda_stream)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        stream = cuda.current_stream().cuda_stream
        for x in inputs:
            model.x.copy_(x)
            for layer in model.layers:
                model.kernels.launch(layer, stream)
    return graph, inputs


def measure(model: SmallModel, case: Case, threads: int) -> None:
    """Time one case and print its line."""
    prepare(model, case)
    with model.pool(threads if case.policy.pool else 0) as pool:
        graph, inputs = capture(model)
        seconds = []
        before = model.state.counts()
        for repeat in range(REPEATS + 2):
            if repeat == 2:
                before = model.state.counts()
            if case.policy.pool:
                pool.wake()
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
    del inputs
    after = model.state.counts()
    layers = after.layers - before.layers
    unit = model.shape.layout.unit_bytes
    per_layer = statistics.median(seconds[2:]) * REPEATS / layers

    def rate(units: int, nanoseconds: float) -> float:
        return units * unit / nanoseconds if nanoseconds else 0.0

    hits, link, pool_units = (
        getattr(after, name) - getattr(before, name)
        for name in ("hit_units", "link_units", "cpu_units")
    )
    whole = per_layer * layers * 1e9
    share = hits / max(1, hits + link + pool_units)
    print(
        f"  {case.name:<22} {case.resident:6.1%} slots  {per_layer * 1e6:7.1f} us a layer  "
        f"hits {share:5.1%}  GB/s: slots {rate(hits, whole):6.0f}  "
        f"link {rate(link, after.link_ns - before.link_ns):5.1f}  "
        f"CPU {rate(pool_units, after.cpu_ns - before.cpu_ns):5.1f}  "
        f"both over the whole time {rate(link + pool_units, whole):6.1f}  "
        f"wasted {after.wasted_units - before.wasted_units}  errors {after.errors - before.errors}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
