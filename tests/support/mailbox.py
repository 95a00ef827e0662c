"""The mailbox of `kernels/csrc/mailbox.h` in host memory, and the GPU's part played by the test."""

import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernels.cpu.pool import MAIL_HEAD_BYTES, REPLY_HEAD_BYTES, mail_bytes, reply_bytes

MAIL_JOBS, MAIL_SUMS, MAIL_ROWS, MAIL_WORKERS, MAIL_AHEAD = 64, 64, 8, 16, 16
UNIT_PARTS = 4
PATIENCE_S = 60.0


class MailJob(ctypes.Structure):
    """`freetoken::MailJob`."""

    _fields_ = [
        ("record", ctypes.c_int32),
        ("first", ctypes.c_int16),
        ("rows", ctypes.c_uint8),
        ("base", ctypes.c_uint8),
    ]


class Mail(ctypes.Structure):
    """`freetoken::Mail`."""

    _fields_ = [
        ("call", ctypes.c_uint32),
        ("jobs", ctypes.c_uint32),
        ("rows", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("unused", ctypes.c_uint32 * 12),
        ("stolen", ctypes.c_uint64 * MAIL_WORKERS),
        ("job", MailJob * MAIL_JOBS),
        ("ahead", ctypes.c_uint64 * MAIL_AHEAD),
    ]


class Reply(ctypes.Structure):
    """`freetoken::Reply`."""

    _fields_ = [
        ("done", ctypes.c_uint32),
        ("units", ctypes.c_uint32),
        ("nanoseconds", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("unused", ctypes.c_uint32 * 12),
        ("claim", ctypes.c_uint64),
        ("padding", ctypes.c_uint32 * 14),
    ]


@dataclass(frozen=True)
class Job:
    """An expert of a call: the list holds its units [first, units); `rows` says which rows."""

    record: int
    first: int
    rows: tuple[int, ...] = (0,)


class Mailbox:
    """Both memories, aligned, and what the GPU does with them.

    x86 keeps the order of a thread's stores, and so does the interpreter: the number of a call,
    written last, is seen last.
    """

    def __init__(self, hidden: int, call: int = 0) -> None:
        self._memory = [_aligned(mail_bytes(hidden)), _aligned(reply_bytes(hidden))]
        self.mail_address, self.reply_address = (part.data_ptr() for part in self._memory)
        self.mail = Mail.from_address(self.mail_address)
        self.reply = Reply.from_address(self.reply_address)
        self.mail.call = call
        x, sums = self._memory[0][MAIL_HEAD_BYTES:], self._memory[1][REPLY_HEAD_BYTES:]
        self.x = x.view(torch.float32).view(MAIL_ROWS, hidden)
        self.sums = sums.view(torch.float32).view(MAIL_SUMS, hidden)

    def fill(self, jobs: list[Job], x: torch.Tensor, limit: int | None = None) -> None:
        """Write a call except for its number. Shapes: x [rows, H]."""
        base = 0
        for place, job in enumerate(jobs):
            mask = sum(1 << row for row in job.rows)
            self.mail.job[place] = MailJob(job.record, job.first, mask, base)
            base += len(job.rows)
        self.x[: len(x)] = x
        self.mail.jobs, self.mail.rows = len(jobs), len(x)
        self.mail.limit = 2**32 - 1 if limit is None else limit

    def publish(self) -> int:
        """Give the call its number and return it."""
        call = (self.mail.call + 1) % 2**32
        self.mail.call = call
        return call

    def guess(self, jobs: Sequence[tuple[int, int]]) -> None:
        """Say which (record, first unit) the next layer will probably miss."""
        number = ((self.mail.ahead[0] >> 48) + 1) % 2**16
        for place, (record, first) in reversed(list(enumerate(jobs))):
            self.mail.ahead[place] = number << 48 | first << 32 | record

    def steal(self, worker: int, units: int) -> None:
        """Say that a GPU worker has taken this many units of the call in hand, all in all."""
        self.mail.stolen[worker] = self.mail.call << 32 | units

    @property
    def claimed(self) -> int:
        """Units of the call in hand that were begun from the front; more than any list: all."""
        claim = self.reply.claim
        call = claim >> 32
        if call == self.mail.call:
            return -(-(claim & 0xFFFFF) // UNIT_PARTS) + (claim >> 20 & 0xFFF)
        return 2**32 if call == (self.mail.call + 1) % 2**32 else 0

    @property
    def is_done(self) -> bool:
        """Has the pool completed the call in hand."""
        return self.reply.done == self.mail.call

    def until_done(self) -> Iterator[None]:
        """Go round until the pool has completed the call in hand."""
        end = time.monotonic() + PATIENCE_S
        while not self.is_done:
            assert time.monotonic() < end, "the pool has lost a call"
            yield

    def wait(self) -> None:
        """Wait for the pool to complete the call in hand."""
        for _ in self.until_done():
            time.sleep(0)


def _aligned(num_bytes: int) -> torch.Tensor:
    memory = torch.zeros(num_bytes + 64, dtype=torch.uint8)
    start = -memory.data_ptr() % 64
    return memory[start : start + num_bytes]
