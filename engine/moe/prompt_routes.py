"""What a prompt chunk routes in a layer, counted on the device and read by the host later.

The host must not wait for a router before it has queued the layer's experts: the device would idle
meanwhile. So counts travel in the background. Called by `engine.moe.device_experts`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.device.base import Device, Event

PROMPT_LOSS = 0.99  # what a use still counts once a further token of the prompt was read
_WHOLE = 1024.0  # a use in fixed point: sums are then the same in any order
_ROUTE = 2.0**30  # above what the uses of the longest chunk add up to


@dataclass(frozen=True, slots=True)
class Routes:
    """One layer's routes.

    Attributes:
        uses: float32 [E], routes by expert, each weighing `PROMPT_LOSS` less than the next token's.
        counts: int64 [E], routes by expert.
        last: int64 [W, K], the experts of the last tokens.
    """

    uses: NDArray[np.float32]
    counts: NDArray[np.int64]
    last: NDArray[np.int64]

    @property
    def routed(self) -> list[int]:
        """The experts that any token routes to, ascending."""
        found: list[int] = np.flatnonzero(self.counts).tolist()
        return found


class Counted:
    """Counts on their way to the host; valid until the next layer is counted."""

    def __init__(self, numbers: torch.Tensor, arrived: Event, num_experts: int, top_k: int) -> None:
        self._numbers, self._arrived = numbers, arrived
        self._num_experts, self._top_k = num_experts, top_k

    def read(self) -> Routes:
        """Wait for them."""
        self._arrived.synchronize()
        numbers = self._numbers.numpy()
        sums, last = numbers[: self._num_experts], numbers[self._num_experts :]
        counts = np.floor(sums / _ROUTE)
        uses = (sums - counts * _ROUTE) / _WHOLE
        return Routes(
            uses.astype(np.float32),
            counts.astype(np.int64),
            last.astype(np.int64).reshape(-1, self._top_k),
        )


class RouteCounter:
    """Counts one layer after the other; `start` says how long the chunk is."""

    def __init__(self, device: Device, num_experts: int, top_k: int, last_tokens: int) -> None:
        self._device, self._num_experts, self._top_k = device, num_experts, top_k
        self._last_tokens = last_tokens
        self._buffer = device.host_buffer(8 * (num_experts + last_tokens * top_k))
        self._numbers = self._buffer.tensor.view(torch.float64)
        self._weights = torch.empty(0)

    def start(self, num_tokens: int) -> None:
        """Begin a chunk."""
        ages = torch.arange(num_tokens - 1, -1, -1, device=self._device.torch_device)
        # One sum for both: a route weighs at most _WHOLE, and a double holds 2^53 of them.
        weights = (PROMPT_LOSS**ages * _WHOLE).round().to(torch.float64) + _ROUTE
        self._weights = weights.repeat_interleave(self._top_k)

    def count(self, ids: torch.Tensor) -> Counted:
        """Queue the count of a layer. Shapes: ids [T, K]."""
        sums = torch.zeros(self._num_experts, dtype=torch.float64, device=ids.device)
        sums.scatter_add_(0, ids.flatten().to(torch.int64), self._weights)
        last = ids[max(0, len(ids) - self._last_tokens) :].flatten().to(torch.float64)
        packed = torch.cat((sums, last))
        numbers = self._numbers[: len(packed)]
        numbers.copy_(packed, non_blocking=True)
        return Counted(numbers, self._device.record(), self._num_experts, self._top_k)

    def end(self) -> None:
        """Let a chunk's memory go."""
        self._weights = torch.empty(0)

    def close(self) -> None:
        """Give the host memory back; nothing may be on its way."""
        self._numbers = self._numbers[:0]
        self._buffer.close()
