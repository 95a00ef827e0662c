"""Time to the first token through the real engine: `dev.py bench prefill`.

Fresh prompts by length and cache size, beside the time that the missing experts take over the link
once; then turns of a conversation that add a short suffix to a long prefix.
"""

import argparse
from typing import Any, Literal

from engine.protocol.messages import ChatMessage, Part
from tests.perf.client import BenchError, Reply
from tests.perf.limits import prefill_limit_s
from tests.perf.serve import Served, common_parser, run, served
from tests.perf.tables import median, report

COLUMNS = (
    "share", "slots", "turn", "tokens", "reused", "ttft s", "min", "max", "engine s", "tok/s",
    "limit s", "of limit", "right",
)  # fmt: skip
REPLY_TOKENS = 2  # the first ends the measurement, the second proves the cache
PREFIX_REPLY_TOKENS = 8


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a reply was wrong."""
    options = _parser().parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for reuse in (False, True):
        if not (options.suffixes if reuse else options.prompts):
            continue
        longest = options.prefix + max(options.suffixes) if reuse else max(options.prompts)
        with served(options, longest + 256, options.cache_share, reuse=reuse) as bench:
            rows += _rows(bench, options, reuse)
            probe, info = bench.probe, bench.info
    if not rows:
        raise BenchError("Name a prompt or a suffix, and a share that fits.")
    report(
        f"prefill: {info.name}, {info.quant}, {info.num_moe_layers} layers, chunks of "
        f"{info.chunk_tokens}",
        rows,
        COLUMNS,
        options.json,
        probe=probe,
    )
    return int(any(row["right"] != "all" for row in rows))


def _rows(bench: Served, options: argparse.Namespace, turns: bool) -> list[dict[str, Any]]:
    rows = []
    for share, slots in bench.shares(options.cache_share):
        if turns:
            found = [
                turn(bench, share, options.prefix, suffix, options.repeats)
                for suffix in options.suffixes
            ]
        else:
            found = [fresh(bench, share, tokens, options.repeats) for tokens in options.prompts]
        rows += [{"share": share, "slots": slots, **row} for row in found]
    return rows


def fresh(
    bench: Served, share: float, tokens: int, repeats: int, warm_up: int = 0
) -> dict[str, Any]:
    """Return the row of new prompts of one length, behind one of `warm_up` tokens; 0 = of as many.

    The first one at a cache size always warms up, else it would fill the cache.
    """
    first, *starts = bench.starts(repeats + 1, tokens)
    bench.say(first, warm_up or tokens, REPLY_TOKENS)
    replies = [bench.say(start, tokens, REPLY_TOKENS) for start in starts]
    good, count = _judge(bench, starts, tokens, replies)
    return _row("fresh", bench, share, replies) | {"right": _right(good, count)}


def turn(bench: Served, share: float, prefix: int, suffix: int, repeats: int) -> dict[str, Any]:
    """Return the row of a suffix as the next turn of a conversation about a long text.

    The engine must reuse what it has read.
    """
    replies = []
    good = count = 0
    for start in bench.starts(repeats, prefix + suffix):
        first = bench.say(start, prefix, PREFIX_REPLY_TOKENS)
        end = start + prefix + PREFIX_REPLY_TOKENS
        messages = (
            _said("user", bench.walk.prompt(start, prefix)),
            _said("assistant", first.text),
            _said("user", bench.walk.prompt(end, suffix)),
        )
        reply = bench.client.start(messages, REPLY_TOKENS)
        bench.client.finish(reply)
        replies.append(reply)
        one = bench.walk.judge(end, suffix, reply.text)
        good, count = good + one[0], count + one[1]
    return _row(f"+{suffix}", bench, share, replies) | {"right": _right(good, count)}


def _row(turn: str, bench: Served, share: float, replies: list[Reply]) -> dict[str, Any]:
    times = [reply.ttft_s for reply in replies]
    done = [reply.finished for reply in replies if reply.finished]
    reused = median([float(one.usage.reused_tokens) for one in done])
    tokens = median([float(reply.prompt_tokens) for reply in replies])
    limit_s = prefill_limit_s(bench.sizes, bench.rates, share)
    middle = median(times)
    return {
        "turn": turn,
        "tokens": round(tokens),
        "reused": round(reused),
        "ttft s": middle,
        "min": min(times),
        "max": max(times),
        "all": times,
        "engine s": median([one.trace.ttft_s for one in done]),
        "tok/s": (tokens - reused) / middle if middle else 0.0,
        "limit s": limit_s or None,
        "of limit": limit_s / middle if limit_s and middle else None,
    }


def _judge(bench: Served, starts: list[int], tokens: int, replies: list[Reply]) -> tuple[int, int]:
    pairs = zip(starts, replies, strict=True)
    both = [bench.walk.judge(start, tokens, reply.text) for start, reply in pairs]
    return sum(good for good, _ in both), sum(count for _, count in both)


def _right(good: int, count: int) -> str:
    return "all" if good == count else f"{good}/{count}"


def _said(role: Literal["user", "assistant"], text: str) -> ChatMessage:
    return ChatMessage(role=role, parts=(Part(text=text),))


def _parser() -> argparse.ArgumentParser:
    parser = common_parser(__doc__)
    parser.add_argument("--cache-share", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument("--prompts", type=int, nargs="*", default=[512, 4096, 16384, 32768])
    parser.add_argument("--suffixes", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--prefix", type=int, default=4096, help="of the turns")
    parser.add_argument("--repeats", type=int, default=3)
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
