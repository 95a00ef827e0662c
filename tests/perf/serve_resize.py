"""Resizing the expert cache while a reply runs: `dev.py bench resize`.

Grows and shrinks by a share of the pool in the middle of one reply; prints the pauses as the engine
times them, the longest gap between two pieces of text, and whether the reply stayed the same. No
limit stands beside them: hardly a byte moves, the time is the driver's for mapping memory.
"""

import argparse
from itertools import pairwise
from typing import Any

from engine.protocol.messages import ResizeApplied
from tests.perf.client import Reply
from tests.perf.limits import GB
from tests.perf.serve import FIRST_START, Served, common_parser, run, served
from tests.perf.tables import median, report

COLUMNS = (
    "change", "slots", "GB", "count", "pause ms", "max pause", "waited ms", "evicted",
    "text gap ms", "right",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if the reply changed."""
    options = _parser().parse_args(arguments)
    tokens = (options.resizes + 2) * options.every
    large = min(1.0, options.from_share + options.by_share)
    with served(options, options.prompt + tokens + 16, [large]) as bench:
        rows, found = measure(bench, options)
        info = bench.info
    report(
        f"resize: {info.name}, {options.resizes} times by {options.by_share:.0%} of the pool in a "
        f"reply of {tokens} tokens; without resizes the longest gap was "
        f"{found['quiet gap ms']:.1f} ms",
        rows,
        COLUMNS,
        options.json,
        pauses_ms=found["pauses ms"],
    )
    return int(rows[-1]["right"] != "all")


def measure(
    bench: Served, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return rows for growing, shrinking and both, and what they were made of.

    Of `options` it reads prompt, every, resizes, from_share and by_share.
    """
    tokens = (options.resizes + 2) * options.every
    large = min(1.0, options.from_share + options.by_share)
    bench.set_share(options.from_share)
    quiet = bench.say(FIRST_START, options.prompt, tokens)
    before = bench.walk.judge(FIRST_START, options.prompt, quiet.text)
    moved, reply = _resizes(bench, options, tokens, large)
    after = bench.walk.judge(FIRST_START, options.prompt, reply.text)
    is_same = before == after and after[0] == after[1] and quiet.text == reply.text
    rows = [
        _row(name, part, bench.sizes.record)
        for name, part in (("grow", moved[::2]), ("shrink", moved[1::2]), ("all", moved))
        if part
    ]
    rows[-1] |= {
        "text gap ms": longest_gap_s(reply) * 1e3,
        "right": "all" if is_same else "changed",
    }
    return rows, {
        "quiet gap ms": longest_gap_s(quiet) * 1e3,
        "pauses ms": [one.pause_ms for one in moved],
    }


def longest_gap_s(reply: Reply) -> float:
    """Return the longest time between two pieces of text."""
    times = [at for at, _ in reply.arrivals]
    return max((b - a for a, b in pairwise(times)), default=0.0)


def _resizes(
    bench: Served, options: argparse.Namespace, tokens: int, large: float
) -> tuple[list[ResizeApplied], Reply]:
    """Resize during one reply, every so many tokens; begins by growing, ends where it began."""
    sizes = [large, options.from_share]
    reply = bench.start(FIRST_START, options.prompt, tokens)
    applied = []
    for turn in range(options.resizes):
        bench.client.wait_for_tokens(reply, (turn + 1) * options.every)
        slots = max(1, round(sizes[turn % 2] * bench.info.num_records))
        applied.append(bench.client.resize(slots))
    bench.client.finish(reply)
    return applied, reply


def _row(name: str, part: list[ResizeApplied], record_bytes: int) -> dict[str, Any]:
    pauses = [one.pause_ms for one in part]
    slots = sorted({one.expert_slots for one in part})
    return {
        "change": name,
        "slots": " ".join(str(count) for count in slots),
        "GB": max(slots) * record_bytes / GB,
        "count": len(part),
        "pause ms": median(pauses),
        "max pause": max(pauses),
        "waited ms": median([one.waited_ms for one in part]),
        "evicted": sum(one.evicted for one in part),
    }


def _parser() -> argparse.ArgumentParser:
    parser = common_parser(__doc__)
    parser.add_argument("--from-share", type=float, default=0.25)
    parser.add_argument("--by-share", type=float, default=0.25)
    parser.add_argument("--resizes", type=int, default=20)
    parser.add_argument("--every", type=int, default=12, help="tokens between two resizes")
    parser.add_argument("--prompt", type=int, default=512)
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
