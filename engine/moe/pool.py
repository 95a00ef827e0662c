"""All experts of all layers in host memory: the only truth, read-only after loading.

Knows records and their numbers, not who is resident. Filled by `engine.checkpoint`, read by
`engine.moe.cache`, `engine.moe.stream` and the CPU side of the executor.
"""

from typing import Literal

import torch

from kernels.device.base import HostBuffer
from kernels.layouts import RecordLayout

MemoryClass = Literal["pinned", "pageable"]


class ExpertPool:
    """Record `layer * num_experts + expert`, one after the other.

    Attributes:
        layout: how one record is laid out.
        storage: uint8 [N, record_bytes] over the buffer, N = num_layers * num_experts.

    Raises: ValueError if the buffer is too small.
    """

    def __init__(
        self, layout: RecordLayout, num_layers: int, num_experts: int, buffer: HostBuffer
    ) -> None:
        self.layout = layout
        self.num_layers = num_layers
        self.num_experts = num_experts
        needed = pool_bytes(layout, num_layers, num_experts)
        if buffer.tensor.numel() < needed:
            raise ValueError(f"a pool of {needed} bytes in a buffer of {buffer.tensor.numel()}")
        self._buffer = buffer
        self.storage = buffer.tensor[:needed].view(-1, layout.record_bytes)
        self._records = self.storage.unbind(0)

    @property
    def num_records(self) -> int:
        """N."""
        return self.num_layers * self.num_experts

    def record(self, index: int) -> torch.Tensor:
        """Return one record, uint8 [record_bytes]."""
        return self._records[index]

    def layer(self, moe_layer: int) -> torch.Tensor:
        """Return the records of a layer, uint8 [E, record_bytes]."""
        first = moe_layer * self.num_experts
        return self.storage[first : first + self.num_experts]

    @property
    def is_pinned(self) -> bool:
        """Whether the device can read the records directly."""
        return self._buffer.pinned

    def memory_class(self, index: int) -> MemoryClass:
        """Say whether the device can read this record directly. One class per pool for now."""
        if not 0 <= index < self.num_records:
            raise IndexError(f"record {index} of {self.num_records}")
        return "pinned" if self._buffer.pinned else "pageable"

    def unpin(self, reason: str) -> bool:
        """Let the pin go; returns whether there was one. Build what reads the pool anew."""
        return self._buffer.unpin(reason)

    @property
    def pin_problem(self) -> str:
        """Why the pool is not pinned, as a sentence; "" if it is or need not be."""
        return self._buffer.reason

    @property
    def placement(self) -> str:
        """On which memory nodes the pool lies, as a sentence; "" where there is one."""
        return self._buffer.placement


def pool_bytes(layout: RecordLayout, num_layers: int, num_experts: int) -> int:
    """Return the bytes of a pool."""
    return num_layers * num_experts * layout.record_bytes
