"""The engine with one switch for measurements: how a chunk's missing experts are loaded.

`python -m tests.perf.switched_engine --switch FILE --engine MODULE ...`. Before each chunk FILE is
read: "stream" and "demand" name the way, anything else leaves the choice to the engine. One load
thus serves both sides of a comparison. All else is MODULE.
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from unittest import mock

from engine.moe.device_planner import PrefillRates, prefers_demand
from engine.settings import read_settings
from engine.system import hard_exit, number_cards_by_bus, settle_compilers

AUTO, STREAM, DEMAND = "auto", "stream", "demand"
WAYS = (AUTO, STREAM, DEMAND)

Choice = Callable[[int, int, int, float, PrefillRates], bool]


def switched(file: Path, choose: Choice) -> Choice:
    """Return `choose`, unless the file names a way."""

    def choice(
        num_tokens: int, top_k: int, num_experts: int, missing_bytes: float, rates: PrefillRates
    ) -> bool:
        word = file.read_text(encoding="utf-8") if file.exists() else AUTO
        if word in (STREAM, DEMAND):
            return word == DEMAND
        return choose(num_tokens, top_k, num_experts, missing_bytes, rates)

    return choice


def main() -> int:
    """Serve until asked to stop. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switch", type=Path, required=True)
    parser.add_argument("--engine", default="engine.__main__", help="whose main is run")
    options, rest = parser.parse_known_args()
    number_cards_by_bus()  # both before torch is imported, as the engine itself does
    settle_compilers(read_settings(rest).home.caches)
    from engine.moe import device_prefill

    sys.argv[1:] = rest
    with mock.patch.object(
        device_prefill, "prefers_demand", switched(options.switch, prefers_demand)
    ):
        return int(import_module(options.engine).main())


if __name__ == "__main__":
    CODE = main()
    sys.stderr.flush()
    hard_exit(CODE)
