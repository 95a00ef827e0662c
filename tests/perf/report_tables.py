"""A report's sections as people read them: one table each, at most `WIDTH` columns wide.

What a row is held against (the limit, the goal, the best way that was forced, a peer) stands beside
it, with the verdict.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from tests.perf import serve_load
from tests.perf.report_plan import POLICIES, SECTIONS
from tests.perf.report_store import Row, Store
from tests.perf.serve import DEFAULT_POLICY
from tests.perf.switched_engine import AUTO, WAYS
from tests.perf.tables import table

WIDTH = 110
NEAR = 0.97  # of the best: as good
PROMPT_GOAL = 1.1  # of the longer one of computing and copying
POOL_GOAL = 0.85  # of the reading loop
PEERS_CARD = "H200"
PEERS_DECODE = {0.125: 42.3, 0.25: 57.3, 0.5: 118.4, 1.0: 382.9}
PEERS_PROMPT = {
    (512, 0.125): 0.532, (512, 0.25): 0.452, (512, 0.5): 0.320, (512, 1.0): 0.075,
    (4096, 0.125): 0.535, (4096, 0.25): 0.459, (4096, 0.5): 0.326, (4096, 1.0): 0.088,
    (16384, 0.125): 1.08, (16384, 0.25): 0.921, (16384, 0.5): 0.689, (16384, 1.0): 0.469,
}  # fmt: skip
"""The better of FreeToken 0.1.3 and llama.cpp on such a card: tokens/s, and seconds."""


def text(store: Store) -> str:
    """Return all tables."""
    parts = []
    machines: dict[str, None] = {}
    for section, title in SECTIONS.items():
        if rows := store.rows(section):
            machines.update(dict.fromkeys(row["machine"] for row in rows))
            lines = [f"{section}: {title}", *_how(rows), TABLES[section](rows)]
            parts.append("\n".join(lines))
    return "\n\n".join(["\n".join(machines), *parts]) if parts else "Nothing was measured."


def wrong(store: Store) -> list[str]:
    """Name the sections whose replies were not all right, or whose hashes differ."""
    return [
        section
        for section in SECTIONS
        if any(row.get("right", "all") != "all" for row in store.rows(section))
        or (section == "same" and len({row["hash"] for row in store.rows(section)}) > 1)
    ]


def verdict(mine: Sequence[float], others: Sequence[Sequence[float]]) -> tuple[float, str]:
    """Hold the rates of what the engine chose against those of each way that was forced.

    Rates are (median, least, most). Returns: the share of the best median, and "ok" within 3 %,
    "spread" if the two overlap, else "SLOWER".
    """
    best = max(others, key=lambda one: one[0])
    share = mine[0] / best[0] if best[0] else 1.0
    if share >= NEAR:
        return share, "ok"
    return share, "spread" if mine[2] >= best[1] else "SLOWER"


def _how(rows: Iterable[Row]) -> list[str]:
    """Return how rows were measured; more than one line if they are not all alike."""
    return list(dict.fromkeys(row["how"] for row in rows if row.get("how")))


def _decode(rows: list[Row]) -> str:
    shown = [
        {
            "share": _percent(row["share"]),
            **_picked(row, "tok/s", "min", "max", "hit", "q"),
            **_links(row),
            "limit": row["limit"],
            "of it": row["of limit"],
            **_picked(row, "us/layer", "ttft s"),
            "vram": row["vram GB"],
            "right": _right(row),
        }
        for row in _by(rows, "share")
    ]
    return table(shown, list(shown[0]))


def _decode_beside_peers(rows: list[Row]) -> str:
    lines = _decode(rows).splitlines()
    peers = [_peer(row, PEERS_DECODE.get(row["share"]), row["tok/s"]) for row in _by(rows, "share")]
    if not any(peers):
        return "\n".join(lines)
    beside = table([{"x peer": peer} for peer in peers], ["x peer"]).splitlines()
    return "\n".join(f"{a}  {b}" for a, b in zip(_even(lines), beside, strict=True))


def _batch(rows: list[Row]) -> str:
    shown = [
        {
            "share": _percent(row["share"]),
            **_picked(row, "batch", "tok/s", "each", "hit", "q"),
            **_links(row),
            "of limit": row["of limit"],
            **_picked(row, "us/layer", "ttft s"),
            "right": _right(row),
        }
        for row in _by(rows, "share", "batch")
    ]
    return table(shown, list(shown[0]))


def _threads(rows: list[Row]) -> str:
    shown = []
    for (threads, share), group in _grouped(rows, "threads", "share"):
        of = {row["policy"]: row for row in group}
        line: Row = {"threads": threads or "own", "share": _percent(share)}
        line |= {policy: of[policy]["tok/s"] if policy in of else None for policy in POLICIES}
        forced = [_rates(row) for policy, row in of.items() if policy != DEFAULT_POLICY]
        mine = of.get(DEFAULT_POLICY)
        if mine:
            if forced:
                line["of best"], line["verdict"] = verdict(_rates(mine), forced)
            line |= {"q": mine["q"], **_links(mine)}
        line["right"] = _all_right(group)
        shown.append(line)
    columns = ("threads", "share", *POLICIES, "of best", "verdict", "q", "link", "cpu", "right")
    return table(shown, columns)


def _prefill(rows: list[Row]) -> str:
    shown = []
    compute_s = {  # all experts resident: nothing is copied
        row["prompt"]: row["ttft s"] for row in rows if row["share"] == 1.0 and not row["chunk"]
    }
    for (tokens, share), group in _grouped(rows, "prompt", "share"):
        of = {bool(row["chunk"]): row for row in group}
        whole, chunked = of.get(False), of.get(True)
        line: Row = {"prompt": tokens, "share": _percent(share)}
        if whole:
            line |= _picked(whole, "ttft s", "min", "max", "tok/s")
            line["limit s"] = copy_s = whole["limit s"]
            if copy_s:
                line["goal s"] = goal_s = PROMPT_GOAL * max(copy_s, compute_s.get(tokens, 0.0))
                line["of goal"] = whole["ttft s"] / goal_s
            line["x peer"] = _peer(whole, PEERS_PROMPT.get((tokens, share)), whole["ttft s"])
        if chunked:
            line["chunked s"] = chunked["ttft s"]
            if whole:
                line["x"] = chunked["ttft s"] / whole["ttft s"]
        line["right"] = _all_right(group)
        shown.append(line)
    columns = (
        "prompt", "share", "ttft s", "min", "max", "tok/s", "limit s", "goal s", "of goal",
        "x peer", "chunked s", "x", "right",
    )  # fmt: skip
    return table(shown, columns)


def _suffix(rows: list[Row]) -> str:
    shown = []
    for (share, tokens), group in _grouped(rows, "share", "prompt"):
        of = {row["way"]: row for row in group}
        line: Row = {"share": _percent(share), "turn": tokens, "limit s": group[0]["limit s"]}
        line["reused"] = group[0].get("reused")
        line |= {f"{way} s": of[way]["ttft s"] if way in of else None for way in WAYS}
        forced = [_speeds(row) for way, row in of.items() if way != AUTO]
        if AUTO in of and forced:
            line["of best"], line["verdict"] = verdict(_speeds(of[AUTO]), forced)
        line["right"] = _all_right(group)
        shown.append(line)
    ways = [f"{way} s" for way in WAYS]
    return table(
        shown, ("share", "turn", "reused", "limit s", *ways, "of best", "verdict", "right")
    )


def _resize(rows: list[Row]) -> str:
    columns = (
        "change", "slots", "GB", "count", "pause ms", "max pause", "waited ms", "evicted",
        "text gap ms", "quiet gap ms", "right",
    )  # fmt: skip
    return table(rows, columns)


def _same(rows: list[Row]) -> str:
    shown = []
    for (threads, policy), group in _grouped(rows, "threads", "policy"):
        shares = [row["q"] for row in group if row["q"] is not None]
        line = {
            "threads": threads,
            "policy": policy,
            "combinations": len(group),
            "shares": len({row["share"] for row in group}),
            "rules": len({row["eviction"] for row in group}),
            "resized": sum(row["resizes"] for row in group),
            "hashes": len({row["hash"] for row in group}),
            "hit": _range([row["hit"] for row in group]),
            "q": _range(shares),
            "right": _all_right(group),
        }
        shown.append(line)
    hashes = {row["hash"] for row in rows}
    found = f"1 hash, {min(hashes)}" if len(hashes) == 1 else f"{len(hashes)} HASHES"
    return f"{table(shown, list(shown[0]))}\n{len(rows)} combinations, {found}"


def _pool(rows: list[Row]) -> str:
    shown = [
        {
            "format": row["format"],
            "threads": f"{row['threads']}{' (own)' if row['is default'] else ''}",
            "read GB/s": row["read_gbps"],
            "pool GB/s": row["pool_gbps"],
            "part": row["fraction"],
            "goal": "met" if row["fraction"] >= POOL_GOAL else "NOT MET",
            **{f"us {units}": value for units, value in row["us"].items()},
        }
        for row in rows
    ]
    return table(shown, list(shown[0]))


def _load(rows: list[Row]) -> str:
    return table(rows, serve_load.COLUMNS[:-1])


def _probe(rows: list[Row]) -> str:
    shown = [
        {
            "main memory, best": row["main_gbps"],
            "CPU alone": row["cpu"],
            "link": row["link_gbps"],
            "device memory": row["device_gbps"],
            "answer us": row["handshake_us"],
        }
        for row in rows
    ]
    return f"{table(shown, list(shown[0]))}\nGB/s"


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "probe": _probe,
    "decode": _decode_beside_peers,
    "same": _same,
    "threads": _threads,
    "prefill": _prefill,
    "batch": _batch,
    "suffix": _suffix,
    "resize": _resize,
    "fp8": _decode,
    "deep": _decode,
    "pool": _pool,
    "load": _load,
}


def _peer(row: Row, theirs: float | None, mine: float) -> float | None:
    """Return ours as a multiple of a peer's; None on other machines."""
    if not theirs or PEERS_CARD not in row["machine"]:
        return None
    return mine / theirs


def _rates(row: Row) -> tuple[float, float, float]:
    return row["tok/s"], row["min"], row["max"]


def _speeds(row: Row) -> tuple[float, float, float]:
    """Return a time's inverse, so that more is better."""
    return 1 / row["ttft s"], 1 / row["max"], 1 / row["min"]


def _right(row: Row) -> str:
    """Return whether the replies were right, or that a prompt was not read as it should be."""
    return f"reused {row['reused']}" if row["reused"] else str(row["right"])


def _all_right(rows: Iterable[Row]) -> str:
    return next((row["right"] for row in rows if row["right"] != "all"), "all")


def _percent(share: float) -> str:
    return f"{share * 100:g}%"


def _range(values: Sequence[float]) -> str | None:
    return f"{min(values):.2f}..{max(values):.2f}" if values else None


def _picked(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _links(row: Row) -> Row:
    return {"link": row["link GB/s"], "cpu": row["cpu GB/s"]}


def _by(rows: Iterable[Row], *names: str) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def _grouped(rows: Iterable[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    return [(one, list(group)) for one, group in groupby(sorted(rows, key=key), key)]


def _even(lines: Sequence[str]) -> list[str]:
    width = max(map(len, lines))
    return [line.ljust(width) for line in lines]
