"""A job process: one job, its events on stdout, JobDone or Error last.

The end of stdin or SIGTERM asks it to stop; it leaves nothing half-written. Called by
`engine.__main__` with `--job NAME`.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable

from engine.jobs.registry import get_job
from engine.protocol.errors import EngineError, InternalError
from engine.protocol.messages import Event, JobDone
from engine.settings import EngineSettings

_log = logging.getLogger(__name__)


def run_job(settings: EngineSettings, emit: Callable[[Event], None], in_fd: int) -> int:
    """Run the job that the settings name.

    The spec gets `home`, the data root, if it does not name one.
    Returns: 0. Raises: EngineError; Cancelled if it was asked to stop.
    """
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(in_fd, stop), name="stdin", daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        job = get_job(settings.job)
        spec = {"home": str(settings.home.root), **settings.spec, **_secrets(settings)}
        result = job(spec, emit, stop.is_set)
    except EngineError:
        raise
    except Exception as problem:
        _log.exception("the job failed")
        raise InternalError(f"The job {settings.job} failed: {problem!r}.") from problem
    finally:
        signal.signal(signal.SIGTERM, before)
    emit(JobDone(job=settings.job, result=result))
    return 0


def _secrets(settings: EngineSettings) -> dict[str, str]:
    """What a job may know and the command line, which others can read, must not hold."""
    given = {"hub_token": settings.hub_token, "hub_proxy": settings.hub_proxy}
    return {name: value for name, value in given.items() if value}


def _watch(in_fd: int, stop: threading.Event) -> None:
    """Read stdin to its end: the parent closes it to cancel, and it closes when the parent dies."""
    try:
        while os.read(in_fd, 4096):
            continue
    except OSError as problem:
        _log.info("stdin ended: %s", problem)
    stop.set()
