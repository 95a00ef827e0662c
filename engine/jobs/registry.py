"""Which module runs which job: one dict literal, one line per job.

Modules are named, not imported: a job process loads the one it runs. Called by `engine.jobs.run`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import Event

JobRun = Callable[[dict[str, Any], Callable[[Event], None], Callable[[], bool]], dict[str, Any]]
"""(spec, emit, cancelled) -> result of JobDone. Raises: EngineError, Cancelled among them."""

JOBS: dict[str, str] = {
    "search": "engine.jobs.search",
    "download": "engine.jobs.download",
    "convert": "engine.jobs.convert",
    "move": "engine.jobs.move",
    "verify": "engine.jobs.verify",
    "profile": "engine.jobs.profile",
    "runtime": "engine.jobs.runtime",
    "selftest": "engine.jobs.runtime_selftest",
}


def get_job(name: str) -> JobRun:
    """Return a job's `run`. Raises: InvalidRequest listing the jobs there are."""
    module = JOBS.get(name)
    if module is None:
        raise InvalidRequest(f"There is no job {name!r}.", f"Jobs: {', '.join(sorted(JOBS))}.")
    return cast("JobRun", import_module(module).run)
