"""How each task of a report is measured: from a task to its rows.

What goes through an engine uses the same functions as the benchmark of that name; the rest runs it.
"""

import json
import re
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.checkpoint.ftw import FtwReader
from engine.protocol.places import data_root
from tests.perf import serve_decode, serve_load, serve_prefill, serve_resize
from tests.perf.client import BenchError
from tests.perf.report_place import Place, child
from tests.perf.report_plan import DISK, Task
from tests.perf.report_store import Row
from tests.perf.serve import DEFAULT_POLICY, Served
from tests.perf.serve_decode import WARM_TOKENS
from tests.perf.switched_engine import AUTO

SAME_LINE = re.compile(
    r"\s*(?P<share>[\d.]+)%\s+(?P<policy>\w+)\s+threads (?P<threads>\d+)\s+(?P<eviction>\w+)\s+"
    r"(?P<resizes>resizes|-)\s+(?P<hash>[0-9a-f]{16})\s+ids (?P<right>\d+)/(?P<tokens>\d+)\s+"
    r"hit\s+(?P<hit>[\d.]+)%\s+q\s+(?P<q>[\d.]+|-)"
)
SAME_END = re.compile(r"\d+ combinations, ")
TINY_SAME = "--tiny --layers 2 --prompt 3 --tokens 6 --shares 0.25 --policies two_ended"
SAME_HEAD = "same: "
TINY_PROBE = "--quick --memory-mb 8 --threads 1"
POOL_GIB = 2.0
TINY_POOL_GIB, TINY_POOL = 0.01, "--calls 2"


class Kept(NamedTuple):
    """What is there of a task before it is whole.

    Attributes:
        rows: of an earlier call that ended in its middle.
        put: keeps the rows so far.
    """

    rows: Sequence[Row]
    put: Callable[[list[Row]], None]


def served_rows(place: Place, bench: Served, task: Task) -> list[Row]:
    """Measure a task on a loaded engine. Raises BenchError."""
    measure, facts = SERVED[task.section], task.facts
    bench.set_policy(facts.get("policy", DEFAULT_POLICY))
    if "share" in facts:
        before = bench.slots
        if bench.set_share(facts["share"]) != before and measure is _replies:
            bench.say(0, place.sizes.prompt, WARM_TOKENS)  # else the first row fills the cache
    facts = facts | {"how": f"{bench.sizes.layers} layers; {place.sizes.words(task.section)}"}
    return [facts | row for row in measure(place, bench, task)]


def other_rows(place: Place, task: Task, kept: Kept) -> list[Row]:
    """Measure a task that has no engine of ours."""
    return [task.facts | row for row in OTHERS[task.section](place, task.facts, kept)]


def _replies(place: Place, bench: Served, task: Task) -> list[Row]:
    warm_up, repeats, tokens = place.sizes.replies(task.section)
    options = Namespace(prompt=place.sizes.prompt, tokens=tokens, repeats=repeats, warm_up=warm_up)
    measure = serve_decode.row if warm_up else serve_decode.stretches
    return [measure(bench, options, task.facts.get("batch", 1), bench.slots)]


def _prefill(place: Place, bench: Served, task: Task) -> list[Row]:
    share, tokens, warm_up = (task.facts[name] for name in ("share", "prompt", "warm up"))
    return [serve_prefill.fresh(bench, share, tokens, place.sizes.prompt_repeats, warm_up)]


def _suffix(place: Place, bench: Served, task: Task) -> list[Row]:
    facts = task.facts
    place.switch.write_text(facts["way"], encoding="utf-8")
    try:
        sizes = place.sizes
        return [
            serve_prefill.turn(
                bench, facts["share"], sizes.prefix, facts["prompt"], sizes.turn_repeats
            )
        ]
    finally:
        place.switch.write_text(AUTO, encoding="utf-8")


def _resize(place: Place, bench: Served, task: Task) -> list[Row]:
    sizes = place.sizes
    options = Namespace(
        prompt=sizes.prompt,
        every=sizes.every,
        resizes=sizes.resizes,
        from_share=0.25,
        by_share=0.25,
    )
    rows, found = serve_resize.measure(bench, options)
    rows[-1] |= found
    return rows


def _probe(place: Place, facts: Mapping[str, Any], kept: Kept) -> list[Row]:
    if not place.figures.is_file():
        place.figures.parent.mkdir(parents=True, exist_ok=True)
        words = TINY_PROBE.split() if place.sizes.is_tiny else []
        with child("tests.perf.probe", "--json", str(place.figures), *words):
            pass
    figures = json.loads(place.figures.read_text(encoding="utf-8"))
    names = ("main_gbps", "device_gbps", "link_gbps", "handshake_us")
    most = max(figures["read"], key=lambda row: row["cpu"])
    return [{name: figures.get(name) for name in names} | {"cpu": most["cpu"]}]


def _same(place: Place, facts: Mapping[str, Any], kept: Kept) -> list[Row]:
    """One process for all numbers of threads, behind those that an earlier call came past."""
    rows = before_the_last(kept.rows)
    left = [count for count in facts["counts"] if count not in {row["threads"] for row in rows}]
    module = "tests.perf.emulated_same" if place.device == "cpu" else "tests.perf.same"
    words = TINY_SAME.split() if place.sizes.is_tiny else []
    words += ["--device", place.device, "--home", str(place.home)]
    words += ["--unresized", "few", "--threads", *map(str, left)]
    how, last, is_whole = "", "", False
    with child(module, *words, may_fail=True) as lines:
        for line in lines:
            last = line.strip() or last
            is_whole = is_whole or SAME_END.match(line) is not None
            how = how or (line.removeprefix(SAME_HEAD) if line.startswith(SAME_HEAD) else "")
            if row := same_row(line):
                rows.append(row | {"how": how})
                kept.put(rows)
    if not is_whole:
        raise BenchError(last)
    return rows


def before_the_last(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all numbers of threads but the last: one was whole when the next began."""
    return [row for row in rows if row["threads"] != rows[-1]["threads"]]


def same_row(line: str) -> Row | None:
    """Read a line of `tests.perf.same`; None if it is no combination."""
    if not (found := SAME_LINE.match(line)):
        return None
    right, tokens = int(found["right"]), int(found["tokens"])
    return {
        "threads": int(found["threads"]),
        "share": float(found["share"]) / 100,
        "policy": found["policy"],
        "eviction": found["eviction"],
        "resizes": found["resizes"] == "resizes",
        "hash": found["hash"],
        "hit": float(found["hit"]) / 100,
        "q": None if found["q"] == "-" else float(found["q"]),
        "right": "all" if right == tokens else f"{right}/{tokens}",
    }


def _pool(place: Place, facts: Mapping[str, Any], kept: Kept) -> list[Row]:
    words = TINY_POOL.split() if place.sizes.is_tiny else []
    gib = TINY_POOL_GIB if place.sizes.is_tiny else POOL_GIB
    words += ["--gib", f"{gib}", "--threads", *map(str, facts["counts"])]
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "pool.json"
        words += ["--encodings", facts["format"], "--json", str(file)]
        with child("tests.perf.pool", *words):
            pass
        rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))
    for row, count in zip(rows, facts["counts"], strict=True):
        row |= {"is default": not count, "how": f"records of {gib:g} GiB"}
    return rows


def _load(place: Place, facts: Mapping[str, Any], kept: Kept) -> list[Row]:
    folder = place.make(DISK)
    options = Namespace(device=place.device, threads=0, cores=0, repeats=1)
    bank = folder / FtwReader(folder).index.files[0].name
    home = data_root(str(place.home)).root
    row = serve_load.row(options, home, folder, bank, cold=facts["from"] == "disk")
    return [row | {"how": f"{FtwReader(folder).num_moe_layers} layers; one load each"}]


SERVED: dict[str, Callable[[Place, Served, Task], list[Row]]] = {
    "decode": _replies,
    "fp8": _replies,
    "deep": _replies,
    "batch": _replies,
    "threads": _replies,
    "prefill": _prefill,
    "suffix": _suffix,
    "resize": _resize,
}
OTHERS: dict[str, Callable[[Place, Mapping[str, Any], Kept], list[Row]]] = {
    "probe": _probe,
    "same": _same,
    "pool": _pool,
    "load": _load,
}
