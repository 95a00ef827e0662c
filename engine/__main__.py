"""`python -m engine`: serve commands on stdin and stdout, or run one job with `--job NAME`.

Claims fd 1 first, so that nothing but the protocol ever reaches it. The third door where errors
are caught: what arrives here ends the process with its exit code, and the last line on stderr
repeats it as JSON.
"""

import faulthandler
import logging
import sys
from contextlib import AbstractContextManager, nullcontext

from engine.pipe.stdio import Writer, claim_stdout
from engine.protocol.errors import EngineError, ErrorCode, ExitCode, FileAccess, InternalError
from engine.protocol.messages import encode, error_event
from engine.settings import EngineSettings, read_settings
from engine.system import die_with_parent, hard_exit, number_cards_by_bus, settle_compilers

EXIT_CODES: dict[ErrorCode, int] = {
    ErrorCode.PROTOCOL: ExitCode.PROTOCOL,
    ErrorCode.DEVICE: ExitCode.DEVICE,
    ErrorCode.INTERNAL: ExitCode.INTERNAL,
    ErrorCode.CANCELLED: ExitCode.CANCELLED,
}
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main() -> int:
    """Run the process. Returns its exit code."""
    protocol_fd = claim_stdout()
    die_with_parent()
    number_cards_by_bus()
    try:
        settings = read_settings()
        logging.basicConfig(stream=sys.stderr, level=settings.log_level.upper(), format=LOG_FORMAT)
        if settings.runtime is not None:
            sys.path.insert(0, str(settings.runtime))  # before what a full build brings
        settle_compilers(settings.home.caches)
        with _fault_log(settings):
            if settings.job:
                return _run_job(settings, protocol_fd)
            return _serve(settings, protocol_fd)
    except EngineError as problem:
        return _last_words(problem)
    except ModuleNotFoundError as problem:
        logging.getLogger(__name__).error("a library is missing", exc_info=problem)
        return _last_words(
            FileAccess(
                f"The engine's libraries are not installed: it lacks {problem.name}.",
                "Install the engine runtime in the app.",
            )
        )
    except Exception as problem:
        logging.getLogger(__name__).error("the engine failed", exc_info=problem)
        return _last_words(InternalError(f"The engine failed: {problem!r}."))


def _serve(settings: EngineSettings, protocol_fd: int) -> int:
    from engine.pipe.host import Host  # a job does not need the service
    from engine.service import EngineService

    host = Host(lambda emit: EngineService(emit, settings), settings.heartbeat_s, 0, protocol_fd)
    host.run()
    return ExitCode.OK


def _run_job(settings: EngineSettings, protocol_fd: int) -> int:
    from engine.jobs.run import run_job  # the engine does not need the jobs

    writer = Writer(protocol_fd)
    writer.start()
    try:
        return run_job(settings, writer.emit, in_fd=0)
    except EngineError as problem:
        writer.emit(error_event(problem))
        raise
    finally:
        writer.close()


def _fault_log(settings: EngineSettings) -> AbstractContextManager[object]:
    """Open the file that a crash in native code writes its stack to."""
    try:
        settings.home.logs.mkdir(parents=True, exist_ok=True)
        file = (settings.home.logs / "engine-faults.log").open("a", encoding="utf-8")
    except OSError as problem:  # a log is no reason not to start
        logging.getLogger(__name__).warning("no fault log: %s", problem)
        return nullcontext()
    faulthandler.enable(file)
    return file


def _last_words(problem: EngineError) -> int:
    """Repeat the error as the last line on stderr. Returns the exit code."""
    sys.stderr.flush()
    sys.stderr.write(encode(error_event(problem)).decode())
    sys.stderr.flush()
    return EXIT_CODES.get(problem.code, ExitCode.FAILED)


if __name__ == "__main__":
    CODE = main()
    sys.stderr.flush()
    # Daemon threads may sit in a blocked read; a normal exit could wait for their locks.
    hard_exit(CODE)
