"""What choosing the next tokens takes of a card's stream, beside a recorded step.

`python -m tests.perf.gpu_sampling [--device cuda:0] [--vocab 151936] [--rows 1 4 8]`. Printed: us a
step by the card's clock, with the launches queued beforehand, so that no time of the host is in it.
"whole" weighs the whole vocabulary row by row and moves ids from and to a table, "rows" is the
runner's way launched kernel by kernel, "recorded" the same replayed, with what a recording holds of
the memory. Likeliest tokens come from the step itself, so for them the runner launches nothing.
"top-k" is that one operation, launched. On a CPU the figures mean nothing.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import (
    Tensor,
    cuda,  # noqa: TID251 - a card's clock, for measuring only
)

from engine.protocol.messages import Sampling
from engine.runner.chooser import RECORD_AFTER, Chooser, Recorder
from engine.runner.sampler import Past, RowSampler, numbers, penalised, take_the_likeliest
from kernels.reference.sampling import MAX_TIES, draw, greedy

KINDS = {
    "greedy": Sampling(temperature=0.0),
    "top-k 20, top-p .8, t .7": Sampling(temperature=0.7, top_k=20, top_p=0.8),
    "top-p .95, t .6": Sampling(temperature=0.6, top_p=0.95),
    "min-p .05": Sampling(min_p=0.05),
    "top-k 20, all penalties": Sampling(
        temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05, presence_penalty=0.5,
        frequency_penalty=0.1,
    ),
}  # fmt: skip
AHEAD_CYCLES = 30_000_000  # of a kernel that waits while the host queues a step behind it
Step = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    title = cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{title}, {options.vocab} tokens; us a step, median of {options.repeats}")
    print(f"{'':<26} rows     whole      rows  recorded   holds")
    with torch.inference_mode():
        for name, sampling in KINDS.items():
            for rows in options.rows:
                figures, held = measure(sampling, rows, options.vocab, device, options.repeats)
                times = "".join(f"{1e6 * seconds:10.1f}" for seconds in figures)
                print(f"{name:<26} {rows:>4}{times}  {held / 2**20:4.0f} MiB")
        for rows in options.rows:
            logits = random_logits(rows, options.vocab, device)
            step = partial(logits.topk, min(20 + MAX_TIES, options.vocab))
            seconds = timed(step, device, options.repeats)
            print(f"{'of it the top-k':<26} {rows:>4}{'':10}{1e6 * seconds:10.1f}")
    return 0


def random_logits(rows: int, vocab: int, device: torch.device) -> Tensor:
    """About as wide as a model's."""
    generator = torch.Generator().manual_seed(rows)
    return (torch.randn(rows, vocab, generator=generator) * 3).to(device)


def measure(
    sampling: Sampling, rows: int, vocab: int, device: torch.device, repeats: int
) -> tuple[list[float], int]:
    """Return seconds of the three ways, and bytes that a recording holds."""
    logits = random_logits(rows, vocab, device)
    ids = torch.zeros(rows, dtype=torch.int32, device=device)

    def samplers() -> list[RowSampler]:
        return [RowSampler(sampling, seed, Past(vocab, device)) for seed in range(rows)]

    def reserved() -> int:
        if device.type != "cuda":
            return 0
        cuda.empty_cache()
        return cuda.memory_reserved(device)

    table = torch.zeros(rows, dtype=torch.int64, device=device)
    figures = [timed(partial(whole, logits, samplers(), table), device, repeats)]
    if take_the_likeliest(samplers()):
        return [*figures, 0.0, 0.0], 0
    for record in (None, recorder(device)):
        chooser, given = Chooser(rows, device, record), (logits, ids, samplers(), range(rows))
        step = partial(chooser.choose, *given)
        for _ in range(RECORD_AFTER):
            step()
        before = reserved()
        step()  # recorded now, if at all
        held = max(0, reserved() - before)
        figures.append(timed(step, device, repeats))
        chooser.close()
    return figures, held


def whole(logits: Tensor, rows: Sequence[RowSampler], table: Tensor) -> None:
    """Choose row by row over the whole vocabulary, with ids from and to a table of all rows."""
    places = torch.arange(len(rows)).to(logits.device, non_blocking=True)
    table.index_select(0, places)
    uniforms = numbers(rows, range(len(rows))).to(logits.device, non_blocking=True)
    chosen = []
    for row, one, number in zip(rows, logits.split(1), uniforms.split(1), strict=True):
        filters, penalties = row.way.filters, row.way.penalties
        changed = one if penalties is None else penalised(one, [penalties])
        chosen.append(greedy(changed) if filters is None else draw(changed, filters, number))
    for row, token in zip(rows, chosen, strict=True):
        if row.way.penalties is not None:
            row.way.penalties.note_output(token.clamp(min=0))
    table.index_copy_(0, places, torch.cat(chosen).clamp(min=0))


def recorder(device: torch.device) -> Recorder | None:
    """Return what records on a card."""
    if device.type != "cuda":
        return None
    from kernels.device.cuda_graph import StepGraph

    return partial(StepGraph, device)


def timed(step: Step, device: torch.device, repeats: int) -> float:
    """Return the median of seconds: the card's own, or on a CPU the host's."""
    step()
    seconds = []
    for _ in range(repeats):
        if device.type != "cuda":
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
            continue
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(AHEAD_CYCLES)
        start.record()
        step()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


if __name__ == "__main__":
    raise SystemExit(main())
