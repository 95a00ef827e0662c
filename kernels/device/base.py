"""What the engine may ask of a device: memory, copies and their order. No model, no cache.

Called by `engine.moe`, `engine.cache` and the loader. Every device runs two queues: *compute* (what
torch operations run on) and *copies*. Nothing orders the two but `record`, `after` and `wait`;
on a CPU they collapse into plain calls, which is a legal schedule of the same contract.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch


class DeviceMemoryError(RuntimeError):
    """The device has no room; nothing has changed. The message holds need and room."""


class DeviceLostError(RuntimeError):
    """The device does not answer any more; its contents are gone."""


class KernelError(RuntimeError):
    """The card's compiler or driver refuses a kernel of ours; another way may serve (E-06)."""


MEMORY_ERRORS: tuple[type[Exception], ...] = (DeviceMemoryError, torch.OutOfMemoryError)
"""How a refusal of memory shows within `memory_refusals`."""

LOST_ERRORS: tuple[type[Exception], ...] = (DeviceLostError, torch.AcceleratorError)
"""How a lost device shows: as our own error, or as torch's in the middle of any operation."""

_MEMORY_WORDS = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


@contextmanager
def memory_refusals() -> Iterator[None]:
    """Let refusals of memory inside the card's libraries show as DeviceMemoryError, too.

    torch tells those by their words only, as it does a lost card.
    """
    try:
        yield
    except MEMORY_ERRORS:
        raise
    except RuntimeError as problem:
        words = str(problem)
        if not any(refusal in words for refusal in _MEMORY_WORDS):
            raise
        raise DeviceMemoryError(words.splitlines()[0].rstrip(".")) from problem


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a person sees of a device before it is opened.

    `problem` is a sentence if the device is there but cannot be used, else "".
    """

    name: str
    title: str
    total_bytes: int
    free_bytes: int
    emulated: bool = False
    problem: str = ""


class Event(Protocol):
    """A point in a queue."""

    def done(self) -> bool:
        """Whether the queue has passed this point. Does not block."""
        ...

    def synchronize(self) -> None:
        """Block the host until the queue has passed this point."""
        ...

    def seconds(self) -> float:
        """Seconds that this copy took; 0.0 for events of no copy and while it is under way."""
        ...


class Region(Protocol):
    """A reserved range of device memory of which the first bytes are mapped."""

    @property
    def tensor(self) -> torch.Tensor:
        """The mapped bytes, uint8 [mapped]. Read it anew after each resize."""
        ...

    @property
    def reserved_bytes(self) -> int:
        """The most that `resize` may ask for."""
        ...

    def resize(self, num_bytes: int) -> None:
        """Map `num_bytes`; the common prefix keeps its contents.

        Call it with no work in flight on the region. A shrink really gives memory back.

        Raises: DeviceMemoryError if there is no room (the region is as before); ValueError beyond
        the reservation.
        """
        ...

    def close(self) -> None:
        """Give everything back. Tensors taken from here must not be used any more."""
        ...


class HostBuffer(Protocol):
    """Host memory that the device copies from."""

    @property
    def tensor(self) -> torch.Tensor:
        """All bytes, uint8 [bytes]."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether the device reads all of it directly."""
        ...

    @property
    def pinned_bytes(self) -> int:
        """How many of the first bytes the device reads directly: whole pieces."""
        ...

    @property
    def reason(self) -> str:
        """Why no more is pinned, as a sentence; "" if all is, or if pinning means nothing here."""
        ...

    @property
    def placement(self) -> str:
        """On which memory nodes it lies, or why not on all, as a sentence; "" where one has all."""
        ...

    def unpin(self, reason: str) -> bool:
        """Let every pinned piece go and keep the memory, for `reason`. Returns whether one was.

        Call it with no copy in flight that reads the buffer.
        """
        ...

    def close(self) -> None:
        """Give the memory back. Tensors taken from here must not be used any more."""
        ...


class CopyStream(Protocol):
    """A copy queue of its own, for copies that shall overlap with compute."""

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> Event:
        """Queue one copy, which starts once `after` has passed. Returns the event of its end.

        Shapes: equal and contiguous.
        """
        ...

    def copy_all(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Event | None = None
    ) -> Event:
        """Queue copies (target, source), one at least, as `copy` does: what one costs is paid once.

        Returns: the event of the last one's end; its seconds are those of all.
        """
        ...

    def close(self) -> None:
        """Wait for queued copies and end the queue."""
        ...


class Device(Protocol):
    """One device, opened by `kernels.device.registry.open_device`.

    Attributes:
        name: "cpu", "cuda:0", "fake".
        title: what the maker calls it.
        torch_device: where tensors for it live.
        emulated: its memory is ordinary host memory under an emulated budget.
        inline: compute is done when the call returns; there is nothing to overlap with.
        keeps_addresses: its regions grow and shrink in place.
    """

    name: str
    title: str
    torch_device: torch.device
    emulated: bool
    inline: bool
    keeps_addresses: bool

    def total_bytes(self) -> int:
        """Memory of the device, or the emulated budget."""
        ...

    def free_bytes(self) -> int:
        """What can still be mapped right now."""
        ...

    def region(self, reserve_bytes: int, initial_bytes: int) -> Region:
        """Reserve a range and map its first bytes. Raises DeviceMemoryError."""
        ...

    def host_buffer(self, num_bytes: int, piece_bytes: int = 0) -> HostBuffer:
        """Allocate host memory, pinned where the system allows it; it begins at a page's boundary.

        Pieces of `piece_bytes` are pinned from first to last until the system refuses one; what was
        pinned stays. All is one piece with 0, and where pieces are not whole pages. A copy must
        lie within one piece.
        Raises: DeviceMemoryError.
        """
        ...

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> Event:
        """Queue one copy on the device's own copy queue; see `CopyStream.copy`."""
        ...

    def stream(self) -> CopyStream:
        """Open one more copy queue; the caller closes it."""
        ...

    def record(self) -> Event:
        """Return the point that the compute queue has reached."""
        ...

    def wait(self, event: Event) -> None:
        """Let later compute start only after `event`. The host need not block."""
        ...

    def synchronize(self) -> None:
        """Block the host until all queues are empty. Raises DeviceLostError."""
        ...

    def close(self) -> None:
        """End the device's queues. Regions and buffers are closed by their owners."""
        ...


def check_resize(num_bytes: int, reserved_bytes: int) -> None:
    """Raise ValueError if a region cannot have this size."""
    if not 0 <= num_bytes <= reserved_bytes:
        raise ValueError(f"{num_bytes} bytes asked of a region of {reserved_bytes} bytes")
