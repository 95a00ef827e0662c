"""All experts of all layers in host memory: the only truth, read-only after loading.

Knows records and their numbers, not who is resident. Filled by `engine.checkpoint`, read by
`engine.moe.cache`, `engine.moe.stream` and the CPU side of the executor.
"""

from typing import Literal

import torch

from engine.memory.budget import format_bytes
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
        self._layer_bytes = layer_bytes(layout, num_experts)
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
        """Whether the device can read every record directly."""
        return self.num_pinned_layers == self.num_layers

    @property
    def pinned_bytes(self) -> int:
        """Main memory that is pinned."""
        return self._buffer.pinned_bytes

    @property
    def num_pinned_layers(self) -> int:
        """How many of the first layers the device can read directly."""
        return min(self.num_layers, self._buffer.pinned_bytes // self._layer_bytes)

    def is_layer_pinned(self, moe_layer: int) -> bool:
        """Whether the device can read the records of this layer directly. Raises IndexError."""
        if not 0 <= moe_layer < self.num_layers:
            raise IndexError(f"layer {moe_layer} of {self.num_layers}")
        return moe_layer < self.num_pinned_layers

    def memory_class(self, index: int) -> MemoryClass:
        """Say whether the device can read this record directly; as its whole layer."""
        if not 0 <= index < self.num_records:
            raise IndexError(f"record {index} of {self.num_records}")
        return "pinned" if self.is_layer_pinned(index // self.num_experts) else "pageable"

    def unpin(self, reason: str) -> bool:
        """Let every pin go; returns whether there was one. Build what reads the pool anew."""
        return self._buffer.unpin(reason)

    @property
    def pin_problem(self) -> str:
        """Why not every layer is pinned, with figures; "" if all are or need not be."""
        why, pinned = self._buffer.reason, self.num_pinned_layers
        if not why or not pinned:
            return why
        part, whole = format_bytes(pinned * self._layer_bytes), format_bytes(self.storage.numel())
        layers = f"{pinned} of {self.num_layers} layers"
        return f"Only {part} of {whole} could be pinned ({layers}). {why}"

    @property
    def placement(self) -> str:
        """On which memory nodes the pool lies, as a sentence; "" where there is one."""
        return self._buffer.placement


def pool_bytes(layout: RecordLayout, num_layers: int, num_experts: int) -> int:
    """Return the bytes of a pool."""
    return num_layers * layer_bytes(layout, num_experts)


def layer_bytes(layout: RecordLayout, num_experts: int) -> int:
    """Return the bytes of one layer of a pool: a piece that is pinned or not, as a whole."""
    return num_experts * layout.record_bytes
