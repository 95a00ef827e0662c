"""A device for tests: host memory, an accelerator's schedule, and faults on demand.

Copies really wait: they run when somebody waits for their event, so a missing wait shows as wrong
numbers. Every call is written down in `calls`.
"""

from collections import deque
from collections.abc import Callable, Sequence

import torch

from kernels.device.base import DeviceLostError, DeviceMemoryError, Event
from kernels.device.cpu import plain_buffer
from kernels.device.host import PAGE_BYTES
from kernels.device.memory import CopiedRegion, PinnedBuffer


class FakeEvent:
    """A point in a queue of the fake device. `run` does the work up to this point."""

    def __init__(self, run: Callable[["FakeEvent"], None] | None = None) -> None:
        self._run = run
        self.passed = run is None

    def done(self) -> bool:
        """Whether the work was done."""
        return self.passed

    def synchronize(self) -> None:
        """Do the queued work up to here."""
        if not self.passed and self._run is not None:
            self._run(self)

    def seconds(self) -> float:
        """One microsecond a copy: tests need a number that is never zero."""
        return 1e-6 if self._run is not None and self.passed else 0.0


class FakePins:
    """Pins nothing, by the rules of a driver that does.

    Attributes:
        held: bytes of the pieces that are pinned, by address.
        limit: how many pieces may be pinned at once; None = any number.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.held: dict[int, int] = {}
        self.limit = limit

    def pin(self, address: int, num_bytes: int) -> None:
        """Hold one piece. Raises RuntimeError over the limit, or for a page that is held."""
        if self.limit is not None and len(self.held) >= self.limit:
            raise RuntimeError("the fake device was told to refuse")
        own = _pages(address, num_bytes)
        others = [_pages(*piece) for piece in self.held.items()]
        if any(own.start < other.stop and other.start < own.stop for other in others):
            raise RuntimeError("part of it is pinned already")
        self.held[address] = num_bytes

    def release(self, address: int) -> None:
        """Let one go. Raises KeyError for what is not pinned."""
        del self.held[address]


class FakeDevice:
    """Records what is asked of it, and refuses on demand.

    Attributes:
        calls: (what, number of bytes) of every call, in order.
        refuse_growth: the next growths of any region are refused.
        pins: what is pinned; its limit makes host buffers come pageable, or only partly pinned.
        lost: copies and synchronize raise DeviceLostError.
    """

    def __init__(self, budget_bytes: int | None = None) -> None:
        self.name = "fake"
        self.title = "Fake device"
        self.torch_device = torch.device("cpu")
        self.emulated = True
        self.inline = False
        self.keeps_addresses = False
        self.calls: list[tuple[str, int]] = []
        self.refuse_growth = False
        self.pins = FakePins()
        self.lost = False
        self._budget = 1 << 30 if budget_bytes is None else budget_bytes
        self._regions: list[_FakeRegion] = []
        self._default = _FakeStream(self)
        self._streams = [self._default]

    def total_bytes(self) -> int:
        """The emulated budget."""
        return self._budget

    def free_bytes(self) -> int:
        """Budget that no region has mapped."""
        return self._budget - sum(region.tensor.numel() for region in self._regions)

    def region(self, reserve_bytes: int, initial_bytes: int) -> CopiedRegion:
        """Reserve; raises DeviceMemoryError beyond the budget."""
        self.calls.append(("region", initial_bytes))
        self.check_growth(initial_bytes)
        region = _FakeRegion(self, reserve_bytes, initial_bytes)
        self._regions.append(region)
        return region

    def host_buffer(self, num_bytes: int, piece_bytes: int = 0) -> PinnedBuffer:
        """Allocate; "pinned" up to the limit of `pins`."""
        self.calls.append(("host_buffer", num_bytes))
        plain = plain_buffer(num_bytes)
        return PinnedBuffer(plain, self.pins.pin, self.pins.release, piece_bytes)

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> FakeEvent:
        """Queue a copy; it runs when its event is waited for."""
        return self._default.copy(dst, src, after)

    def stream(self) -> "_FakeStream":
        """Open one more queue."""
        stream = _FakeStream(self)
        self._streams.append(stream)
        return stream

    def record(self) -> FakeEvent:
        """Compute has always passed."""
        return FakeEvent()

    def wait(self, event: Event) -> None:
        """Do the queued work up to `event`."""
        self.calls.append(("wait", 0))
        event.synchronize()

    def synchronize(self) -> None:
        """Do all queued work."""
        self.check_alive()
        for stream in self._streams:
            stream.drain()

    def close(self) -> None:
        """Write it down."""
        self.calls.append(("close", 0))

    def check_alive(self) -> None:
        """Raise DeviceLostError if the device was told to be lost."""
        if self.lost:
            raise DeviceLostError("The fake device is lost.")

    def check_growth(self, num_bytes: int) -> None:
        """Raise DeviceMemoryError if a region may not take `num_bytes` more."""
        if num_bytes > 0 and (self.refuse_growth or num_bytes > self.free_bytes()):
            raise DeviceMemoryError(f"needs {num_bytes} bytes more, {self.free_bytes()} are free")


class _FakeRegion(CopiedRegion):
    """A region that asks the device before it grows."""

    def __init__(self, device: FakeDevice, reserve_bytes: int, initial_bytes: int) -> None:
        self._device = device
        super().__init__(_zeros, _freed, reserve_bytes, initial_bytes)

    def resize(self, num_bytes: int) -> None:
        self._device.calls.append(("resize", num_bytes))
        self._device.check_growth(num_bytes - self.tensor.numel())
        super().resize(num_bytes)


class _FakeStream:
    """A queue of copies that nobody has waited for yet."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._queue: deque[tuple[torch.Tensor, torch.Tensor, Event | None, FakeEvent]] = deque()

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> FakeEvent:
        self._device.check_alive()
        self._device.calls.append(("copy", src.numel()))
        event = FakeEvent(self._run_to)
        self._queue.append((dst, src, after, event))
        return event

    def copy_all(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Event | None = None
    ) -> FakeEvent:
        return [self.copy(dst, src, after) for dst, src in pairs][-1]

    def drain(self) -> None:
        while self._queue:
            self._run_one()

    def close(self) -> None:
        self.drain()

    def _run_to(self, event: FakeEvent) -> None:
        while not event.passed:
            self._run_one()

    def _run_one(self) -> None:
        dst, src, after, event = self._queue.popleft()
        if after is not None:
            after.synchronize()
        self._device.check_alive()
        dst.copy_(src)
        event.passed = True


def _pages(address: int, num_bytes: int) -> range:
    return range(address // PAGE_BYTES, -(-(address + num_bytes) // PAGE_BYTES))


def _zeros(num_bytes: int) -> torch.Tensor:
    return torch.zeros(num_bytes, dtype=torch.uint8)


def _freed() -> None:
    """Nothing to do."""
