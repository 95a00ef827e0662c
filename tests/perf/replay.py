"""What a policy of slots would have hit: `dev.py bench replay ROUTES.npz ...`, needs no GPU.

Replays recorded routes, see `tests.perf.replay_tables`: hit rates exactly, speeds by a model of a
step. Each list of an option makes rows, so `--parts 1 2 4` compares. The policy `oracle` evicts
who is needed last (Belady's rule): a bound. Routes come from `tests.perf.synthetic_routes`, and of
the built-in model from `python -m recipe traces` in `resources/models`.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.perf.replay_tables import (
    UNIT_BYTES,
    Conversation,
    Counts,
    Frequency,
    Oracle,
    Ranking,
    Recency,
    Replay,
    Rules,
)
from tests.perf.tables import table

PRODUCT = Rules()
POLICIES = ("lru", "frequency", "oracle")
COLUMNS = (
    "routes", "share", "policy", "parts", "store", "growth", "prompt", "dense", "q", "hit",
    "missed MB", "fills", "tok/s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepModel:
    """Time of a decode step: layer after layer, missed units at the rate of both links.

    The defaults fit one H200 with 16 cores to 3 % at an eighth, a quarter and half of the experts.

    Attributes:
        layer_us: a layer without what it misses.
        missed_gbps: both links together.
        unit_bytes: of a unit.
    """

    layer_us: float = 57.0
    missed_gbps: float = 130.0
    unit_bytes: int = UNIT_BYTES

    def rate(self, layers: int, missed_units: float) -> float:
        """Return steps/s when a step misses so many units."""
        missed_s = missed_units * self.unit_bytes / (self.missed_gbps * 1e9)
        return 1.0 / (layers * self.layer_us * 1e-6 + missed_s)


def main(arguments: list[str] | None = None) -> int:
    """Replay and print; 1 with a sentence for a file that holds no routes."""
    options = _parser().parse_args(arguments)
    model = StepModel(options.layer_us, options.missed_gbps, options.unit_bytes)
    rows: list[dict[str, Any]] = []
    for file in options.files:
        try:
            talks, experts = read_conversations(file)
        except (OSError, ValueError, KeyError) as problem:
            print(f"{file} holds no routes: {problem}", file=sys.stderr)
            return 1
        for share, policy, rules in product(options.share, options.policy, _rules(options)):
            slots = max(1, round(share * talks[0].reply.shape[1] * experts))
            counts = replay(talks, experts, slots, policy, rules)
            rows.append(_row(file, share, policy, rules, counts, model, talks))
    print(table(rows, COLUMNS))
    return 0


def replay(
    talks: Sequence[Conversation], experts: int, slots: int, policy: str, rules: Rules = PRODUCT
) -> Counts:
    """Return the sums over the replies of conversations that follow each other on one card.

    Prompts change who is resident, and count nothing.
    """
    layers = talks[0].reply.shape[1]
    tables = Replay(layers, experts, slots, ranking_of(policy, talks, experts, rules), rules)
    for talk in talks:
        if len(talk.prompt):
            tables.prompt(talk.prompt)
        for routes in talk.reply:
            tables.step(routes)
    return tables.counts


def ranking_of(
    policy: str, talks: Sequence[Conversation], experts: int, rules: Rules = PRODUCT
) -> Ranking:
    """Return what a policy of `POLICIES` ranks by."""
    layers = talks[0].reply.shape[1]
    if policy == "lru":
        return Recency(layers * experts)
    if policy == "oracle":
        return Oracle(layers * experts, experts, talks)
    return Frequency(layers * experts, layers, rules)


def read_conversations(file: Path) -> tuple[list[Conversation], int]:
    """Return the conversations of a file of routes, and the experts of a layer.

    The last token of each is sampled, not decoded. Files are those of `tests.perf.synthetic_routes`
    and of the built-in model's recipe. Raises: OSError, KeyError or ValueError for another file.
    """
    with np.load(file) as arrays:
        if "route" in arrays:
            everything = arrays["route"].astype(np.int64)
            ends = np.cumsum(arrays["length"])
            pieces = np.split(everything, ends[:-1])
            prompts = arrays["prompt"].tolist()
            experts = int(arrays["experts"])
        else:
            numbers = sorted(name.removeprefix("chat-") for name in arrays if "chat-" in name)
            pieces = [arrays[f"chat-{number}"].astype(np.int64) for number in numbers]
            prompts = [int(arrays[f"prompt-{number}"]) for number in numbers]
            experts = 1 + max(int(piece.max()) for piece in pieces)
    talks = [
        Conversation(piece[:prompt], piece[prompt:-1])
        for piece, prompt in zip(pieces, prompts, strict=True)
    ]
    return talks, experts


def _rules(options: argparse.Namespace) -> list[Rules]:
    return [
        Rules(
            growth=growth,
            units=options.units,
            parts=parts,
            store_part=store,
            link_share=link,
            prompt_use=use,
            dense_units=dense,
            dense_scope=options.dense_scope,
        )
        for parts, store, growth, use, dense, link in product(
            options.parts,
            options.store_part,
            options.growth,
            options.prompt_use,
            options.dense_units,
            options.link_share,
        )
    ]


def _row(
    file: Path,
    share: float,
    policy: str,
    rules: Rules,
    counts: Counts,
    model: StepModel,
    talks: Sequence[Conversation],
) -> dict[str, Any]:
    missed = counts.missed / counts.steps
    return {
        "routes": file.stem,
        "share": share,
        "policy": policy,
        "parts": rules.parts,
        "store": rules.store_part,
        "growth": rules.growth,
        "prompt": rules.prompt_use,
        "dense": rules.dense_units,
        "q": rules.link_share,
        "hit": counts.hit / (counts.hit + counts.missed),
        "missed MB": missed * model.unit_bytes / 1e6,
        "fills": counts.fills / counts.steps,
        "tok/s": model.rate(talks[0].reply.shape[1], missed),
    }


def _parser() -> argparse.ArgumentParser:
    rules, model = PRODUCT, StepModel()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="ROUTES")
    parser.add_argument("--share", type=float, nargs="+", default=[0.125, 0.25, 0.5])
    parser.add_argument("--policy", nargs="+", default=["frequency"], choices=POLICIES)
    parser.add_argument("--parts", type=int, nargs="+", default=[rules.parts])
    parser.add_argument("--store-part", type=int, nargs="+", default=[rules.store_part])
    parser.add_argument("--growth", type=float, nargs="+", default=[rules.growth])
    parser.add_argument("--prompt-use", type=float, nargs="+", default=[rules.prompt_use])
    parser.add_argument("--link-share", type=float, nargs="+", default=[rules.link_share])
    parser.add_argument("--dense-units", type=int, nargs="+", default=[rules.dense_units])
    parser.add_argument(
        "--dense-scope", choices=("begun", "next", "all"), default=rules.dense_scope
    )
    parser.add_argument("--units", type=int, default=rules.units, help="of an expert")
    parser.add_argument("--unit-bytes", type=int, default=model.unit_bytes)
    parser.add_argument("--layer-us", type=float, default=model.layer_us)
    parser.add_argument("--missed-gbps", type=float, default=model.missed_gbps)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
