"""Errors as data: a closed set of codes, and one exception that carries code, sentence and hint.

Knows neither Qt nor torch. Raised where a fact is known; caught at the three doors named in
ARCHITECTURE.md ("Errors").
"""

from enum import IntEnum, StrEnum


class ErrorCode(StrEnum):
    """What kind of thing went wrong; the app maps each code to its own translated words."""

    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED_CHECKPOINT = "unsupported_checkpoint"
    CORRUPT_CHECKPOINT = "corrupt_checkpoint"
    BUDGET = "budget"
    DISK_FULL = "disk_full"
    FILE_ACCESS = "file_access"
    CANCELLED = "cancelled"
    NETWORK = "network"
    TOKEN = "token"
    GATED = "gated"
    NOT_FOUND = "not_found"
    DEVICE = "device"
    PROTOCOL = "protocol"
    INTERNAL = "internal"


class ExitCode(IntEnum):
    """Exit codes of an engine process."""

    OK = 0
    FAILED = 1
    PROTOCOL = 2
    DEVICE = 3
    INTERNAL = 4
    CANCELLED = 5


class EngineError(Exception):
    """A failure that a person can read.

    Attributes:
        code: the kind; decides what dies (request, load or process).
        message: a sentence with value and limit, e.g. "needs 9.1 GiB, 7.6 GiB free".
        hint: the next action as a sentence, or "".
        request_id: the request that failed, or "".
    """

    code = ErrorCode.INTERNAL

    def __init__(self, message: str, hint: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.request_id = request_id


class InvalidRequest(EngineError):
    """The caller can mend it: bad parameter, prompt too long. That request fails."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedCheckpoint(EngineError):
    """Known to be no model of ours; the key or file is named. The load fails."""

    code = ErrorCode.UNSUPPORTED_CHECKPOINT


class CorruptCheckpoint(EngineError):
    """Damaged or incomplete; the file is named. The load fails."""

    code = ErrorCode.CORRUPT_CHECKPOINT


class BudgetError(EngineError):
    """Does not fit; carries the sum and what would fit. The load or request fails."""

    code = ErrorCode.BUDGET


class DiskFull(EngineError):
    """The disk cannot take what is to be written; names disk, need and free bytes."""

    code = ErrorCode.DISK_FULL


class FileAccess(EngineError):
    """A file or folder cannot be read or written (rights, vanished, read-only)."""

    code = ErrorCode.FILE_ACCESS


class Cancelled(EngineError):
    """The person asked to stop; never shown as a failure."""

    code = ErrorCode.CANCELLED


class NetworkError(EngineError):
    """A hub or the proxy before it cannot be reached, or the connection broke. The job fails.

    Attributes:
        may_retry: it may go away by itself.
        is_busy: the other side answered, and asks to come again.
        wait_s: how long the other side asks to wait; 0 = not said.
    """

    code = ErrorCode.NETWORK

    def __init__(
        self,
        message: str,
        hint: str = "",
        request_id: str = "",
        *,
        may_retry: bool = False,
        is_busy: bool = False,
        wait_s: float = 0.0,
    ) -> None:
        super().__init__(message, hint, request_id)
        self.may_retry = may_retry
        self.is_busy = is_busy
        self.wait_s = wait_s


class TokenNeeded(EngineError):
    """The hub wants an access token, or another one. The job fails."""

    code = ErrorCode.TOKEN


class GatedModel(EngineError):
    """The model's licence must be accepted on its page first. The job fails."""

    code = ErrorCode.GATED


class NotOnHub(EngineError):
    """The hub has no such model, revision or file. The job fails."""

    code = ErrorCode.NOT_FOUND


class DeviceError(EngineError):
    """Driver, lost GPU, failed launch. The engine exits; the app offers a restart."""

    code = ErrorCode.DEVICE


class ProtocolError(EngineError):
    """The two sides speak different major versions. The engine exits."""

    code = ErrorCode.PROTOCOL


class InternalError(EngineError):
    """A broken invariant of ours. The request fails; twice, and the engine exits."""

    code = ErrorCode.INTERNAL
