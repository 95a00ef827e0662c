"""The CPU threads that compute missed experts while a decode step runs on the GPU.

The two sides talk through memory (`kernels/csrc/mailbox.h`): the GPU writes calls into the mail,
the threads write sums into the reply. Rows follow the canonical order, so a unit has the same bits
whoever computes it. Knows no model and no device; built and woken by `engine.moe`. Which CPUs to
take is `kernels.cpu.topology`'s choice.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import torch

from kernels.cpu import IsaTier, NativePoolConfig, load_native
from kernels.cpu.trial import tune
from kernels.cpu.tuning import USUAL, Prefetch
from kernels.layouts import RecordLayout

MAIL_ROWS = 8
MAIL_SUMS = 64
MAIL_HEAD_BYTES = 4096
REPLY_HEAD_BYTES = 4096
MAIL_ALIGN_BYTES = 64
LOOK_AHEAD_BYTES = 600 << 10  # beside one H200, 14 Xeon threads got 470 kB each in a pause
_FLOAT_BYTES = 4
_log = logging.getLogger(__name__)


def mail_bytes(hidden: int) -> int:
    """Return the size of the memory that the GPU writes calls to."""
    return MAIL_HEAD_BYTES + MAIL_ROWS * hidden * _FLOAT_BYTES


def reply_bytes(hidden: int) -> int:
    """Return the size of the memory that the pool writes sums to."""
    return REPLY_HEAD_BYTES + MAIL_SUMS * hidden * _FLOAT_BYTES


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """What a pool reads and writes, in host memory that must outlive it.

    Attributes:
        records: uint8 [num_records, record_bytes], or its address.
        num_records: records that a call may name.
        mail: address of `mail_bytes(H)` bytes, a multiple of 64, zeroed before the pool starts.
        reply: address of `reply_bytes(H)` bytes, a multiple of 64, zeroed before the pool starts.
    """

    records: torch.Tensor | int
    num_records: int
    mail: int
    reply: int


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How the threads behave; none of it changes a bit of a result.

    Attributes:
        pin: keep each thread on its CPU.
        tier: instruction set; None = the best of this machine.
        prefetch: how far ahead of its use memory is asked for.
        tune: look for better distances before the start, where there are records enough; takes
            `tuning.BUDGET_S` at most, and the threads take all their CPUs for so long.
        spin_s: how long a thread without work spins before it lets others run.
        park_s: how long it stays awake before it sleeps until `wake`.
        look_ahead_bytes: how much each thread fetches into its cache, while there is no call, of
            what the next layer is expected to miss, in whole units; 0 = nothing.
    """

    pin: bool = False
    tier: IsaTier | None = None
    prefetch: Prefetch = USUAL
    tune: bool = False
    spin_s: float = 100e-6
    park_s: float = 20e-3
    look_ahead_bytes: int = LOOK_AHEAD_BYTES


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool has done since its start.

    Attributes:
        calls: calls completed, refused ones too.
        units: units that entered a sum.
        num_bytes: their size.
        errors: calls refused.
        busy_ns: time from seeing a call to its end, over all calls.
        spread_ns: how long threads waited for the last one after their own last unit, on average,
            over all calls.
        ahead_bytes: fetched into the caches because the next layer was expected to miss them.
        fetched_units: computed by the thread that had fetched them; of `units`, but for a few that
            the GPU took as well.
    """

    calls: int
    units: int
    num_bytes: int
    errors: int
    busy_ns: int
    spread_ns: int
    ahead_bytes: int
    fetched_units: int


class CpuPool:
    """Threads that serve calls until `close`; also a context manager.

    A call that arrives while all threads sleep is served within about 10 ms; `wake` before a step
    is launched saves that time.

    Attributes:
        prefetch: how far ahead of its use memory is asked for.

    Raises: ValueError for memory that does not fit the layout, for distances that there are not,
        and for no CPUs.
    """

    def __init__(
        self,
        layout: RecordLayout,
        memory: PoolMemory,
        cpus: Sequence[int],
        options: PoolOptions = PoolOptions(),
    ) -> None:
        if not cpus:
            raise ValueError("a pool needs at least one CPU")
        for name, address in (("mail", memory.mail), ("reply", memory.reply)):
            if address <= 0 or address % MAIL_ALIGN_BYTES:
                raise ValueError(f"the {name} is at {address:#x}, no multiple of 64")
        native = load_native()
        config = pool_config(layout, memory, cpus, options)
        self.prefetch = options.prefetch
        if options.tune:
            tuning = tune(
                lambda: native.Trial(config),
                memory.num_records,
                layout.record_bytes,
                options.prefetch,
            )
            _log.info("prefetch of %d expert threads: %s", len(cpus), tuning)
            self.prefetch = tuning.chosen
            config.set_prefetch(self.prefetch.rows, self.prefetch.near_bytes)
        self._memory = memory  # a tensor of records lives as long as the threads that read it
        self._native = native.Pool(config)

    def wake(self) -> None:
        """Get sleeping threads up and keep all awake for `park_s`, because calls will come soon."""
        self._native.wake()

    def stats(self) -> PoolStats:
        """Return the counters; each by itself is exact, together they may be from two calls."""
        return PoolStats(**self._native.stats())

    def close(self) -> None:
        """End the call in hand, if there is one, and the threads. May be called again."""
        self._native.close()

    def __enter__(self) -> "CpuPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def pool_config(
    layout: RecordLayout, memory: PoolMemory, cpus: Sequence[int], options: PoolOptions
) -> NativePoolConfig:
    """Say it to the C++ side, which keeps addresses only.

    Raises: ValueError as `CpuPool`.
    """
    native = load_native()
    native_layout = native.PoolLayout(
        layout.encoding, layout.hidden, layout.intermediate, layout.group, layout.record_bytes
    )
    config = native.PoolConfig(
        native_layout,
        options.tier or native.isa_tier(),
        _address(layout, memory),
        memory.num_records,
        memory.mail,
        memory.reply,
    )
    config.cpus = list(cpus)
    config.pin = options.pin
    config.spin_ns = round(options.spin_s * 1e9)
    config.park_ns = round(options.park_s * 1e9)
    config.look_ahead_bytes = options.look_ahead_bytes
    config.set_prefetch(options.prefetch.rows, options.prefetch.near_bytes)
    return config


def _address(layout: RecordLayout, memory: PoolMemory) -> int:
    records = memory.records
    if isinstance(records, int):
        return records
    shape = (memory.num_records, layout.record_bytes)
    if (
        records.shape != shape
        or records.dtype != torch.uint8
        or not records.is_contiguous()
        or not records.is_cpu
    ):
        raise ValueError(
            f"expected torch.uint8 {list(shape)} in host memory, contiguous; "
            f"got {records.dtype} {list(records.shape)} on {records.device}"
        )
    return records.data_ptr()
