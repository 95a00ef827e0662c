"""A region that grows and shrinks in place: one reserved address range, memory mapped in granules.

Addresses never change, so that captured graphs stay valid, and nothing is copied. Knows pages of
memory, not what lies in them. `kernels.device.cuda` gives the driver's calls.
Source: CUDA driver API, virtual memory management.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.device.base import DeviceMemoryError, check_resize

_MIB = 1 << 20
LARGE_GRANULE_BYTES = 64 * _MIB  # mapping a GiB takes 1 ms; in pieces of 2 MiB it takes 26 ms
GRANULES_OF_A_SMALL_RANGE = 64


class MemoryCalls(Protocol):
    """The driver's virtual memory, on one device. Sizes are multiples of `granule_bytes`."""

    @property
    def granule_bytes(self) -> int:
        """The least piece that can be mapped."""
        ...

    def reserve(self, num_bytes: int) -> int:
        """Return the address of a range without memory. Raises DeviceMemoryError."""
        ...

    def map(self, address: int, num_bytes: int) -> int:
        """Put fresh memory under a piece of a range; returns its handle.

        Raises: DeviceMemoryError; nothing is mapped then.
        """
        ...

    def unmap(self, address: int, num_bytes: int, handle: int) -> None:
        """Take the memory away from under a piece and give it back to the device."""
        ...

    def free(self, address: int, num_bytes: int) -> None:
        """Give a range back; nothing in it may be mapped."""
        ...

    def view(self, address: int, num_bytes: int) -> torch.Tensor:
        """Return mapped bytes as uint8 [num_bytes], without owning them."""
        ...


def granule_size(reserve_bytes: int, least_bytes: int) -> int:
    """Return the size of a region's granules: 64 MiB, less where the whole range is small.

    Returns: a multiple of `least_bytes`, so that a small range still divides into about 64 pieces.
    """
    wished = min(LARGE_GRANULE_BYTES, reserve_bytes // GRANULES_OF_A_SMALL_RANGE)
    return max(1, -(-wished // least_bytes)) * least_bytes


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a region asks of its device.

    Attributes:
        room: the bytes that are free, for the message of a refusal.
        retry: frees what the process itself only keeps in reserve, before a refusal is final.
        settle: waits until nothing runs that may use memory which is about to be unmapped.
    """

    room: Callable[[], int]
    retry: Callable[[], None]
    settle: Callable[[], None]


class VirtualRegion:
    """A `kernels.device.base.Region` over `calls`.

    Raises: DeviceMemoryError if the range or its first bytes are refused; all is freed then.
    """

    def __init__(
        self,
        calls: MemoryCalls,
        reserve_bytes: int,
        initial_bytes: int,
        around: Surroundings,
    ) -> None:
        check_resize(initial_bytes, reserve_bytes)
        self._calls, self._around = calls, around
        self._reserved = reserve_bytes
        self._granule = granule_size(reserve_bytes, calls.granule_bytes)
        self._range_bytes = max(1, -(-reserve_bytes // self._granule)) * self._granule
        self._handles: list[int] = []
        self._address = calls.reserve(self._range_bytes)
        try:
            self.resize(initial_bytes)
        except BaseException:
            self.close()
            raise

    @property
    def tensor(self) -> torch.Tensor:
        """The bytes asked for, uint8 [bytes]; what is mapped behind them is not shown."""
        return self._tensor

    @property
    def reserved_bytes(self) -> int:
        """The most that `resize` may ask for."""
        return self._reserved

    @property
    def address(self) -> int:
        """Where the region begins, for as long as it lives."""
        return self._address

    @property
    def mapped_bytes(self) -> int:
        """Device memory that the region takes: whole granules."""
        return len(self._handles) * self._granule

    def resize(self, num_bytes: int) -> None:
        """Map or unmap granules at the end; a refusal leaves the region as it was."""
        check_resize(num_bytes, self._reserved)
        wanted = -(-num_bytes // self._granule)
        before = len(self._handles)
        try:
            while len(self._handles) < wanted:
                self._handles.append(self._map_next())
        except DeviceMemoryError as problem:
            self._unmap_to(before)
            more = (wanted - before) * self._granule
            raise DeviceMemoryError(
                f"needs {more} bytes more, {self._around.room()} are free ({problem})"
            ) from problem
        self._unmap_to(wanted)
        self._tensor = self._calls.view(self._address, num_bytes)

    def close(self) -> None:
        """Unmap everything and give the range back."""
        if self._address:
            self._tensor = torch.empty(0, dtype=torch.uint8)
            self._unmap_to(0)
            self._calls.free(self._address, self._range_bytes)
            self._address = 0

    def _map_next(self) -> int:
        place = self._address + len(self._handles) * self._granule
        try:
            return self._calls.map(place, self._granule)
        except DeviceMemoryError:
            self._around.retry()
            return self._calls.map(place, self._granule)

    def _unmap_to(self, granules: int) -> None:
        if len(self._handles) > granules:
            self._around.settle()
        while len(self._handles) > granules:
            handle = self._handles.pop()
            place = self._address + len(self._handles) * self._granule
            self._calls.unmap(place, self._granule, handle)
