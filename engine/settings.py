"""What an engine process was told at its start. The only reader of environment and arguments.

Frozen and handed down; nothing below reads the environment again. Called by `engine.__main__`,
`engine.cli` and tests.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from engine.protocol.errors import InvalidRequest
from engine.protocol.places import HOME_VARIABLE, DataRoot, data_root

ENGINE_VERSION = "0.1.0"
THREADS_VARIABLE = "FREETOKEN_THREADS"
DEVICE_BYTES_VARIABLE = "FREETOKEN_DEVICE_BYTES"
LOG_VARIABLE = "FREETOKEN_LOG"
HUB_TOKEN_VARIABLE = "FREETOKEN_HUB_TOKEN"
HUB_PROXY_VARIABLE = "FREETOKEN_HUB_PROXY"

LogLevel = Literal["debug", "info", "warning", "error"]
_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Facts of one engine or job process.

    Attributes:
        home: the data root; everything the engine writes lies below it.
        threads: CPU threads for torch; 0 = torch's own choice.
        runtime: folder of an installed runtime, whose libraries are taken; None = our own.
        device_bytes: emulated device memory on CPU-only machines; 0 = chosen from the model.
        log_level: of the log on stderr.
        job: name of the job to run, "" = serve commands.
        spec: the job's arguments.
        hub_token: access token of a model hub; from the environment only, never shown.
        hub_proxy: proxy to it, which may hold a password; from the environment only.
        heartbeat_s: seconds between heartbeats.
        drain_s: after the end of stdin, how long accepted work may still take.
        stats_s: seconds between Stats while something runs; doubled while idle.
        cache_map_s: seconds between cache maps while something runs.
        max_rows: replies that are decoded together.
        reuse: a prompt begins with what earlier ones with the same beginning left.
    """

    home: DataRoot
    threads: int = 0
    runtime: Path | None = None
    device_bytes: int = 0
    log_level: LogLevel = "info"
    job: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    hub_token: str = field(default="", repr=False)
    hub_proxy: str = field(default="", repr=False)
    heartbeat_s: float = 1.0
    drain_s: float = 120.0
    stats_s: float = 0.25
    cache_map_s: float = 0.5
    max_rows: int = 8
    reuse: bool = True


def read_settings(
    arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> EngineSettings:
    """Return the settings; arguments win over the environment.

    Both default to those of this process. Raises: InvalidRequest naming the bad value.
    """
    given = _parser().parse_args(list(sys.argv[1:] if arguments is None else arguments))
    around = os.environ if environ is None else environ
    return EngineSettings(
        home=data_root(given.home or around.get(HOME_VARIABLE)),
        threads=_count("--threads", given.threads or around.get(THREADS_VARIABLE) or "0"),
        runtime=Path(given.runtime) if given.runtime else None,
        device_bytes=_count(
            "--device-bytes", given.device_bytes or around.get(DEVICE_BYTES_VARIABLE) or "0"
        ),
        log_level=_level(given.log_level or around.get(LOG_VARIABLE) or "info"),
        job=given.job,
        spec=_spec(given.spec),
        hub_token=around.get(HUB_TOKEN_VARIABLE) or "",
        hub_proxy=around.get(HUB_PROXY_VARIABLE) or "",
        drain_s=_seconds("--drain-s", given.drain_s),
        reuse=not given.no_reuse,
    )


class _Parser(argparse.ArgumentParser):
    """argparse exits with 2, which means something else here; raise instead."""

    def error(self, message: str) -> NoReturn:
        raise InvalidRequest(f"Bad arguments: {message}.", "Run with --help to see them.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m engine", description="FreeToken engine: JSON Lines on stdio.")
    parser.add_argument("--job", default="", help="run one job instead of serving")
    parser.add_argument("--spec", default="{}", help="the job's arguments as a JSON object")
    parser.add_argument("--home", default="", help=f"data root (also {HOME_VARIABLE})")
    parser.add_argument("--runtime", default="", help="folder with the libraries to take")
    parser.add_argument("--threads", default="", help=f"CPU threads (also {THREADS_VARIABLE})")
    parser.add_argument(
        "--device-bytes", default="", help=f"emulated memory (also {DEVICE_BYTES_VARIABLE})"
    )
    parser.add_argument("--log-level", default="", help=f"{', '.join(_LEVELS)} ({LOG_VARIABLE})")
    parser.add_argument("--drain-s", default="120", help="seconds for open work after stdin ended")
    parser.add_argument("--no-reuse", action="store_true", help="read each prompt as a whole")
    return parser


def _count(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidRequest(f"{name} is {text!r}; it must be a whole number, 0 or more.")
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise InvalidRequest(f"{name} is {text!r}; it must be a number of seconds, 0 or more.")
    return value


def _level(text: str) -> LogLevel:
    for level in _LEVELS:
        if level == text.lower():
            return level
    raise InvalidRequest(f"The log level is {text!r}; it must be one of {', '.join(_LEVELS)}.")


def _spec(text: str) -> dict[str, Any]:
    try:
        spec = json.loads(text)
    except ValueError as problem:
        raise InvalidRequest(f"--spec is no JSON: {problem}.") from problem
    if not isinstance(spec, dict):
        raise InvalidRequest("--spec must be a JSON object.")
    return spec
