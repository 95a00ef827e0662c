"""Slots in device memory: slot number -> bytes. Knows no experts and no policy.

Owned by `engine.moe.cache`; every other place reads slots through it.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from engine.moe.slots import SlotId
from kernels.device.base import Device
from kernels.layouts import RecordLayout


class ExpertArena:
    """`slots` records, mapped out of a range reserved for `max_slots`.

    Raises: DeviceMemoryError if the device has no room.
    """

    def __init__(self, device: Device, layout: RecordLayout, max_slots: int, slots: int) -> None:
        self.max_slots = max_slots
        self._record_bytes = layout.record_bytes
        self._region = device.region(max_slots * layout.record_bytes, slots * layout.record_bytes)
        self._views = self._cut()

    @property
    def num_slots(self) -> int:
        """Mapped slots."""
        return len(self._views)

    @property
    def num_bytes(self) -> int:
        """Mapped bytes: slots times record."""
        return self.num_slots * self._record_bytes

    @property
    def address(self) -> int:
        """Where slot 0 begins on the device; with a region that grows in place, for good."""
        return self._region.tensor.data_ptr()

    def addresses(self, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where slots begin on the device; valid until the next resize."""
        return self.address + slots.astype(np.int64) * self._record_bytes

    def slot(self, slot: SlotId) -> torch.Tensor:
        """Return a slot's bytes, uint8 [record_bytes]; valid until the next resize."""
        return self._views[slot]

    def resize(self, slots: int) -> None:
        """Map `slots` slots; those that stay keep their contents. No work may be in flight.

        Raises: DeviceMemoryError or ValueError; the arena is then as before.
        """
        # A region that moves cannot free memory that views still hold.
        self._views = ()
        try:
            self._region.resize(slots * self._record_bytes)
        finally:
            self._views = self._cut()

    def close(self) -> None:
        """Give the memory back."""
        self._views = ()
        self._region.close()

    def _cut(self) -> tuple[torch.Tensor, ...]:
        return tuple(self._region.tensor.view(-1, self._record_bytes).unbind(0))
