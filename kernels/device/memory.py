"""Regions and buffers made of plain torch tensors, for any device.

`CopiedRegion` resizes by allocating anew and copying; it is what a device without virtual memory
calls can do. `PlainBuffer` is pageable host memory.
"""

from collections.abc import Callable

import torch

from kernels.device.base import check_resize

Allocate = Callable[[int], torch.Tensor]


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

    def unpin(self, reason: str) -> bool:
        """Nothing is pinned."""
        return False

    def close(self) -> None:
        """Drop the memory."""
        self._tensor = torch.empty(0, dtype=torch.uint8)
