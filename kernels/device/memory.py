"""Regions and buffers made of plain torch tensors, for any device.

`CopiedRegion` resizes by allocating anew and copying; it is what a device without virtual memory
calls can do. `PlainBuffer` is pageable host memory, `PinnedBuffer` such memory that a system pins.
"""

from collections.abc import Callable
from weakref import finalize

import torch

from kernels.device.base import check_resize
from kernels.device.host import PAGE_BYTES

Allocate = Callable[[int], torch.Tensor]
Pin = Callable[[int, int], None]
"""(address, bytes); raises RuntimeError with the system's words if it refuses."""
Release = Callable[[int], None]
"""(address) of what was pinned."""


class CopiedRegion:
    """A region that moves when it is resized; old and new exist together for a moment.

    `allocate(bytes)` returns uint8 [bytes] or raises DeviceMemoryError; `freed` is called once the
    old memory is no longer referenced.
    """

    def __init__(
        self,
        allocate: Allocate,
        freed: Callable[[], None],
        reserve_bytes: int,
        initial_bytes: int,
    ) -> None:
        check_resize(initial_bytes, reserve_bytes)
        self._allocate = allocate
        self._freed = freed
        self._reserved = reserve_bytes
        self._tensor = allocate(initial_bytes)

    @property
    def tensor(self) -> torch.Tensor:
        """The mapped bytes, uint8 [mapped]."""
        return self._tensor

    @property
    def reserved_bytes(self) -> int:
        """The most that `resize` may ask for."""
        return self._reserved

    def resize(self, num_bytes: int) -> None:
        """Allocate, copy the common prefix, drop the old. A refusal changes nothing."""
        check_resize(num_bytes, self._reserved)
        fresh = self._allocate(num_bytes)
        common = min(num_bytes, self._tensor.numel())
        fresh[:common].copy_(self._tensor[:common])
        self._tensor = fresh
        self._freed()

    def close(self) -> None:
        """Drop the memory."""
        self._tensor = self._tensor[:0].clone()
        self._freed()


class PlainBuffer:
    """Pageable host memory over uint8 [bytes].

    Attributes:
        reason: why it is not pinned, as a sentence; "" if that means nothing here.
        placement: see `HostBuffer.placement`.
    """

    def __init__(self, tensor: torch.Tensor, reason: str = "", placement: str = "") -> None:
        self._tensor = tensor
        self.reason = reason
        self.placement = placement

    @property
    def tensor(self) -> torch.Tensor:
        """All bytes, uint8 [bytes]."""
        return self._tensor

    @property
    def pinned(self) -> bool:
        """Never."""
        return False

    @property
    def pinned_bytes(self) -> int:
        """None."""
        return 0

    def unpin(self, reason: str) -> bool:
        """Nothing is pinned."""
        return False

    def close(self) -> None:
        """Drop the memory."""
        self._tensor = torch.empty(0, dtype=torch.uint8)


class PinnedBuffer(PlainBuffer):
    """Host memory that is pinned piece by piece, first to last, until the system refuses one.

    Takes over `plain`. Pieces are of `piece_bytes` (the last one may be shorter) where those are
    whole pages from a page's boundary, since no page can be pinned twice; else all is one piece.
    """

    def __init__(
        self, plain: PlainBuffer, pin: Pin, release: Release, piece_bytes: int = 0
    ) -> None:
        super().__init__(plain.tensor, placement=plain.placement)
        held: list[int] = []
        # Before the memory goes, also where nobody closes, or where pinning is broken off.
        self._release = finalize(self, _release_all, release, held)
        self._release.atexit = False
        self._pinned_bytes = 0
        first, size = plain.tensor.data_ptr(), plain.tensor.numel()
        in_pieces = piece_bytes > 0 and not (first % PAGE_BYTES or piece_bytes % PAGE_BYTES)
        step = piece_bytes if in_pieces else max(1, size)
        for start in range(0, size, step):
            piece = min(step, size - start)
            try:
                pin(first + start, piece)
            except RuntimeError as problem:
                amount = "more" if start else f"{piece} bytes"
                self.reason = f"The driver refused to pin {amount}: {problem}."
                break
            held.append(first + start)
            self._pinned_bytes += piece

    @property
    def pinned(self) -> bool:
        """Whether all pieces are pinned."""
        return self._release.alive and self._pinned_bytes == self.tensor.numel()

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the pieces that are pinned, which are the first ones."""
        return self._pinned_bytes if self._release.alive else 0

    def unpin(self, reason: str) -> bool:
        """Let all pieces go."""
        if not self.pinned_bytes:
            return False
        self._release()
        self.reason = reason
        return True

    def close(self) -> None:
        """Let all pieces go, and drop the memory."""
        self._release()
        super().close()


def _release_all(release: Release, held: list[int]) -> None:
    for address in held:
        release(address)
