"""The CPU as a device: "VRAM" is ordinary memory under an emulated budget.

Compute is done when a torch call returns, so events of compute have always passed. Copies of
`copy` are done at once too; a `stream` copies on a thread of its own, beside compute.
"""

import mmap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from kernels.device import host, numa
from kernels.device.base import CopyStream, DeviceMemoryError, Event, Region, check_resize
from kernels.device.memory import CopiedRegion, PlainBuffer

BUDGET_SHARE = 0.5  # of main memory, if nobody names a budget


class PassedEvent:
    """An event of work that was done when it was queued."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def done(self) -> bool:
        """True."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def seconds(self) -> float:
        """Seconds the copy took."""
        return self._seconds


class CpuDevice:
    """The processor. `budget_bytes` is what regions may map together."""

    def __init__(self, budget_bytes: int | None = None) -> None:
        self.name = "cpu"
        self.title = host.cpu_title()
        self.torch_device = torch.device("cpu")
        self.emulated = True
        self.inline = True
        self.keeps_addresses = host.CAN_MAP
        self._budget = _default_budget() if budget_bytes is None else budget_bytes
        self._mapped = 0

    def total_bytes(self) -> int:
        """The emulated budget."""
        return self._budget

    def free_bytes(self) -> int:
        """Budget that no region has mapped."""
        return max(0, self._budget - self._mapped)

    def region(self, reserve_bytes: int, initial_bytes: int) -> Region:
        """Reserve a range of addresses and map its first bytes. Raises DeviceMemoryError."""
        if host.CAN_MAP:
            return _MappedRegion(self._charge, reserve_bytes, initial_bytes)
        return _BudgetedRegion(self._charge, reserve_bytes, initial_bytes)

    def host_buffer(self, num_bytes: int, piece_bytes: int = 0) -> PlainBuffer:
        """Allocate ordinary memory, never pinned. Raises DeviceMemoryError with need and room."""
        return plain_buffer(num_bytes)

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> PassedEvent:
        """Copy now."""
        return PassedEvent(_timed_copies(((dst, src),), after))

    def stream(self) -> CopyStream:
        """Open a copy thread."""
        return _CopyThread()

    def record(self) -> PassedEvent:
        """Compute has always passed."""
        return PassedEvent()

    def wait(self, event: Event) -> None:
        """Block until `event`: compute runs on the calling thread."""
        event.synchronize()

    def synchronize(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Nothing to end."""

    def _charge(self, num_bytes: int) -> None:
        """Take `num_bytes` (or give back, if negative) of the budget. Raises DeviceMemoryError."""
        if num_bytes > self.free_bytes():
            raise DeviceMemoryError(
                f"needs {num_bytes} bytes more, {self.free_bytes()} of the emulated budget of "
                f"{self._budget} bytes are free"
            )
        self._mapped += num_bytes


def plain_buffer(num_bytes: int, reason: str = "") -> PlainBuffer:
    """Allocate pageable memory, spread over memory nodes where there are several.

    It begins at a page's boundary, so that two share no page.
    Raises: DeviceMemoryError with need and room.
    """
    try:
        raw = torch.empty(num_bytes + host.PAGE_BYTES, dtype=torch.uint8)
    except RuntimeError as problem:  # how torch says that malloc failed
        free = host.memory().free_bytes
        raise DeviceMemoryError(
            f"needs {num_bytes} bytes of main memory, {free} are free"
        ) from problem
    tensor = raw[:0]
    if num_bytes:  # a storage of its own, because torch asks a storage's first byte for a pin
        skip = -raw.data_ptr() % host.PAGE_BYTES
        tensor = torch.frombuffer(raw.numpy(), dtype=torch.uint8, count=num_bytes, offset=skip)
    return PlainBuffer(tensor, reason, numa.spread(tensor.data_ptr(), num_bytes))


def _default_budget() -> int:
    return int(host.memory().total_bytes * BUDGET_SHARE)


Charge = Callable[[int], None]


class _MappedRegion:
    """Address space reserved once; addresses of the common prefix never change."""

    def __init__(self, charge: Charge, reserve_bytes: int, initial_bytes: int) -> None:
        check_resize(initial_bytes, reserve_bytes)
        self._charge = charge
        self._reserved = reserve_bytes
        try:
            self._mapping: mmap.mmap | None = host.reserve(reserve_bytes)
        except OSError as problem:
            raise DeviceMemoryError(
                f"the system gives no address range of {reserve_bytes} bytes: {problem.strerror}"
            ) from problem
        charge(initial_bytes)
        self._whole = torch.frombuffer(self._mapping, dtype=torch.uint8)
        self._tensor = self._whole[:initial_bytes]

    @property
    def tensor(self) -> torch.Tensor:
        return self._tensor

    @property
    def reserved_bytes(self) -> int:
        return self._reserved

    def resize(self, num_bytes: int) -> None:
        check_resize(num_bytes, self._reserved)
        self._charge(num_bytes - self._tensor.numel())
        self._tensor = self._whole[:num_bytes]
        if self._mapping is not None:
            host.give_back(self._mapping, num_bytes)

    def close(self) -> None:
        if self._mapping is None:
            return
        self._charge(-self._tensor.numel())
        # Pages go at once; the addresses go when the last tensor that points there is gone.
        host.give_back(self._mapping, 0)
        self._mapping = None
        self._whole = self._tensor = torch.empty(0, dtype=torch.uint8)


class _BudgetedRegion(CopiedRegion):
    """Where addresses cannot be reserved: allocate anew and copy, within the budget."""

    def __init__(self, charge: Charge, reserve_bytes: int, initial_bytes: int) -> None:
        self._charge = charge
        charge(initial_bytes)
        try:
            super().__init__(_allocate, _freed, reserve_bytes, initial_bytes)
        except (DeviceMemoryError, ValueError):
            charge(-initial_bytes)
            raise

    def resize(self, num_bytes: int) -> None:
        check_resize(num_bytes, self.reserved_bytes)
        more = num_bytes - self.tensor.numel()
        self._charge(more)
        try:
            super().resize(num_bytes)
        except DeviceMemoryError:
            self._charge(-more)
            raise

    def close(self) -> None:
        self._charge(-self.tensor.numel())
        super().close()


def _allocate(num_bytes: int) -> torch.Tensor:
    return plain_buffer(num_bytes).tensor


def _freed() -> None:
    """Nothing to do: the allocator returns large blocks itself."""


class _ThreadEvent:
    """The end of one copy on a copy thread."""

    def __init__(self, future: Future[float]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        self._future.result()  # raises what the copy raised

    def seconds(self) -> float:
        if not self._future.done() or self._future.exception() is not None:
            return 0.0
        return self._future.result()


class _CopyThread:
    """Copies in order on one thread; torch releases the interpreter while it copies."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="copy-stream")

    def copy(
        self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None
    ) -> _ThreadEvent:
        return self.copy_all(((dst, src),), after)

    def copy_all(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Event | None = None
    ) -> _ThreadEvent:
        return _ThreadEvent(self._worker.submit(_timed_copies, pairs, after))

    def close(self) -> None:
        self._worker.shutdown()


def _timed_copies(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Event | None) -> float:
    """Copy once `after` has passed; returns the copies' own seconds."""
    if after is not None:
        after.synchronize()
    start = time.perf_counter()
    for dst, src in pairs:
        dst.copy_(src)
    return time.perf_counter() - start
