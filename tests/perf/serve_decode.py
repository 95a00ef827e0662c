"""Decode speed through the real engine: `dev.py bench decode`.

For each cache size, policy and number of replies at once: tokens/s from the arrival of the text and
from the engine's own trace, hit rate, how the misses were split, both links' rates, and the
fraction of what the probe says is physically possible. Every reply is checked.
"""

import argparse
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, product
from typing import Any

from engine.protocol.messages import MissPolicy
from tests.perf.client import Reply, decode_rate
from tests.perf.limits import beyond_us, decode_limit_s, missed_bytes
from tests.perf.serve import (
    DEFAULT_POLICY,
    Served,
    common_parser,
    device_gb,
    first_device,
    measure_links,
    run,
    served,
)
from tests.perf.tables import median, report

COLUMNS = (
    "share", "slots", "policy", "batch", "tok/s", "min", "max", "trace", "each", "hit", "q",
    "link GB/s", "cpu GB/s", "limit", "of limit", "us/layer", "vram GB", "right",
)  # fmt: skip
WARM_TOKENS = 48
LEAD_TOKENS = 32  # of a reply that is cut into stretches: they count for none


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a reply was wrong."""
    options = _parser().parse_args(arguments)
    if options.home and "split" in options.policy:
        measure_links(options.home, options.model, options.device or first_device())
    span = options.prompt + options.tokens
    kv_tokens = max(options.batch) * (span + 16)
    with served(options, kv_tokens, options.cache_share) as bench:
        rows = _rows(bench, options)
        probe, info = bench.probe, bench.info
    report(
        f"decode: {info.name}, {info.quant}, {info.num_moe_layers} layers, prompt "
        f"{options.prompt}, {options.tokens} tokens, {options.threads or 'its own'} threads",
        rows,
        COLUMNS,
        options.json,
        probe=probe,
    )
    return int(any(row["right"] not in (None, "all") for row in rows))


def _rows(bench: Served, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for share, slots in bench.shares(options.cache_share):
        for name, batch in product(options.policy, options.batch):
            named = {"share": share, "policy": bench.set_policy(name), "batch": batch}
            rows.append(named | row(bench, options, batch, slots))
    return rows


def row(bench: Served, options: argparse.Namespace, batch: int, slots: int) -> dict[str, Any]:
    """Measure one row: warm-up, then the median of the repeats.

    Of `options` it reads prompt, tokens, repeats and warm_up.
    """
    span = options.prompt + options.tokens
    starts = bench.starts((options.repeats + options.warm_up) * batch, span)
    warm, timed = starts[: options.warm_up * batch], starts[options.warm_up * batch :]
    for first in range(0, len(warm), batch):
        _together(bench, warm[first : first + batch], options.prompt, WARM_TOKENS)
    runs = [
        _together(bench, timed[first : first + batch], options.prompt, options.tokens)
        for first in range(0, len(timed), batch)
    ]
    rates = [decode_rate(replies) for replies in runs]
    return _row(bench, options.prompt, slots, timed, runs, rates)


def stretches(bench: Served, options: argparse.Namespace, batch: int, slots: int) -> dict[str, Any]:
    """Measure one row in one reply: the median of its stretches, behind its first tokens.

    Every prompt is read once, so that a row takes hardly longer than its steps. What the engine
    says of a reply as a whole (shares, links) holds for all of it, and so does the limit. Of
    `options` it reads prompt, tokens and repeats.

    All rows say the same text, so that they compare: another one has up to 7 % other hits. That
    the row before said it, too, changes them by 0.02 %, as a replay of synthetic routes shows.
    """
    whole = LEAD_TOKENS + options.repeats * options.tokens
    starts = bench.starts(batch, options.prompt + whole)
    replies = _together(bench, starts, options.prompt, whole)
    rates = [
        decode_rate([stretch(reply, first, first + options.tokens) for reply in replies])
        for first in range(LEAD_TOKENS, whole, options.tokens)
    ]
    return _row(bench, options.prompt, slots, starts, [replies], rates)


def stretch(reply: Reply, first: int, last: int) -> Reply:
    """Return a reply from its token number `first`, which only marks the beginning, to `last`."""
    counts = list(accumulate(count for _, count in reply.arrivals))
    begin, end = bisect_left(counts, first), bisect_left(counts, last)
    return replace(reply, arrivals=reply.arrivals[begin : end + 1])


def _row(
    bench: Served,
    prompt: int,
    slots: int,
    starts: Sequence[int],
    runs: Sequence[Sequence[Reply]],
    rates: Sequence[float],
) -> dict[str, Any]:
    right = everything = 0
    for start, reply in zip(starts, (one for replies in runs for one in replies), strict=True):
        good, count = bench.walk.judge(start, prompt, reply.text)
        right, everything = right + good, everything + count
    return {
        "slots": slots,
        **speed(bench, runs, rates, prompt),
        "vram GB": device_gb(bench.client.pid) if bench.rates.device else None,
        "right": "all" if right == everything else f"{right}/{everything}",
    }


def speed(
    bench: Served,
    runs: Sequence[Sequence[Reply]],
    rates: Sequence[float],
    prompt_tokens: int,
) -> dict[str, Any]:
    """Return a row's figures from its rates and from runs of one or more replies at once."""
    ends = [reply.finished for replies in runs for reply in replies if reply.finished]
    traces = [end.trace for end in ends]
    batch = len(runs[0])
    middle = median(rates)
    hit = median([trace.hit_share for trace in traces])
    fills = median([trace.fill_share for trace in traces])
    on_cpu = median([trace.cpu_share for trace in traces])
    tokens = median([float(reply.tokens) for replies in runs for reply in replies])
    missed, resident = step_bytes(bench, runs, hit)
    context = batch * (prompt_tokens + tokens / 2)
    limit_s = decode_limit_s(bench.sizes, bench.rates, missed, resident, context)
    step_s = batch / middle if middle else 0.0
    return {
        "tok/s": middle,
        "min": min(rates),
        "max": max(rates),
        "all": list(rates),
        "trace": batch * median([trace.decode_tokens_per_s for trace in traces]),
        "each": middle / batch,
        "ttft s": median([reply.ttft_s for replies in runs for reply in replies]),
        "reused": sum(end.usage.reused_tokens for end in ends),
        "hit": hit,
        "q": fills / (fills + on_cpu) if fills + on_cpu else None,
        "link GB/s": median([trace.fill_gbps for trace in traces]),
        "cpu GB/s": median([trace.cpu_gbps for trace in traces]),
        "missed bytes": missed,
        "limit": batch / limit_s,
        "of limit": middle * limit_s / batch,
        "us/layer": beyond_us(step_s, limit_s, bench.sizes.layers),
    }


def step_bytes(
    bench: Served, runs: Sequence[Sequence[Reply]], hit_share: float
) -> tuple[float, float]:
    """Return (missed, resident) expert bytes of one step.

    Alone, a reply's shares say it. Rows that share an expert read it once: then the missed bytes
    are those that the engine moved in the steps of the longest reply, and the resident ones at
    least those of one row, which makes "of limit" a lower bound.
    """
    alone = missed_bytes(bench.sizes, hit_share)
    resident = bench.sizes.routed - alone
    if len(runs[0]) == 1:
        return alone, resident
    moved = []
    for replies in runs:
        longest = max(replies, key=lambda reply: reply.tokens).finished
        if longest is not None and longest.usage.reply_tokens > 1:
            trace = longest.trace
            steps = longest.usage.reply_tokens - 1
            moved.append((trace.fill_bytes + trace.cpu_bytes) / steps)
    return median(moved), resident


def _together(bench: Served, starts: Sequence[int], prompt: int, tokens: int) -> list[Reply]:
    replies = [bench.start(start, prompt, tokens) for start in starts]
    bench.client.finish(*replies)
    return replies


def _parser() -> argparse.ArgumentParser:
    parser = common_parser(__doc__)
    parser.add_argument("--cache-share", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument(
        "--policy",
        nargs="+",
        default=[DEFAULT_POLICY],
        choices=[DEFAULT_POLICY, *MissPolicy],
    )
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help=f"replies of {WARM_TOKENS} tokens")
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
