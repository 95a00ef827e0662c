"""The pipe's side of the service: lines to commands, results to events, and the heartbeat.

Knows the protocol and the service's face, not models. Called by `engine.__main__`. One of the
three doors where errors are caught (ARCHITECTURE.md, "Errors").
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from engine.pipe.stdio import Reader, Writer, parent_is_gone
from engine.protocol.errors import EngineError, InternalError, InvalidRequest, ProtocolError
from engine.protocol.messages import (
    PROTOCOL_VERSION,
    Command,
    Event,
    Heartbeat,
    Hello,
    decode_command,
    error_event,
)

_log = logging.getLogger(__name__)


class Service(Protocol):
    """What the pipe needs of `engine.service.EngineService`."""

    def handle(self, command: Command) -> None:
        """Take a command; thread-safe, never blocks."""
        ...

    def end_of_commands(self) -> None:
        """No command will come any more; finish what was accepted, within bounds."""
        ...

    def fail(self, problem: EngineError) -> None:
        """Stop `run`, which then raises `problem`."""
        ...

    def run(self) -> None:
        """Work on the calling thread until stopped."""
        ...


class Host:
    """One session over a pair of descriptors.

    Args:
        make_service: builds the service from the function that emits events.
        heartbeat_s: seconds between heartbeats.
        in_fd: where commands come from.
        out_fd: where events go.
        on_broken: called when nobody reads the events any more.
    """

    def __init__(
        self,
        make_service: Callable[[Callable[[Event], None]], Service],
        heartbeat_s: float,
        in_fd: int,
        out_fd: int,
        on_broken: Callable[[], None] = parent_is_gone,
    ) -> None:
        self._writer = Writer(out_fd, on_broken)
        self._service = make_service(self._writer.emit)
        self._reader = Reader(in_fd, self._on_line, self._service.end_of_commands)
        self._heartbeat_s = heartbeat_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Serve until Shutdown, the end of stdin, or a fatal error, which is raised.

        Raises: ProtocolError, DeviceError, InternalError; each was emitted as an Error before.
        """
        self._writer.start()
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        self._reader.start()
        try:
            self._service.run()
        except EngineError as problem:
            self._writer.emit(error_event(problem))
            raise
        finally:
            self._stopped.set()
            heart.join()
            self._writer.close()

    def _on_line(self, line: bytes | InvalidRequest) -> None:
        try:
            if isinstance(line, InvalidRequest):
                raise line
            command = decode_command(line)
            if isinstance(command, Hello) and command.protocol_version != PROTOCOL_VERSION:
                self._service.fail(_mismatch(command))
                return
            self._service.handle(command)
        except EngineError as problem:
            self._writer.emit(error_event(problem))
        except Exception as problem:  # noqa: BLE001  one bad line must not end the session
            _log.error("a command failed", exc_info=problem)
            wrapped = InternalError(f"The command failed: {problem!r}.")
            self._writer.emit(error_event(wrapped))

    def _beat(self) -> None:
        start = time.monotonic()
        while not self._stopped.wait(self._heartbeat_s):
            self._writer.emit(Heartbeat(uptime_s=round(time.monotonic() - start, 3)))


def _mismatch(command: Hello) -> ProtocolError:
    return ProtocolError(
        f"The app speaks protocol {command.protocol_version}, this engine speaks "
        f"{PROTOCOL_VERSION}.",
        "Install app and engine of the same release.",
    )
