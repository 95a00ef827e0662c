"""Experts passing through staging memory: whole layers ahead of time, or single ones on demand.

Knows records and copies, not tokens, residency or slots; so the hot set stays where it is. Two
halves take turns: while compute reads one, the other is filled. Called by `engine.moe.executor`.
"""

from collections.abc import Iterator, Sequence

import torch

from engine.moe.meter import CopyMeter
from engine.moe.pool import ExpertPool
from engine.protocol.errors import BudgetError
from kernels.device.base import Device, DeviceMemoryError, Event
from kernels.layouts import RecordLayout

MIN_STAGING_RECORDS = 2


def staging_bytes(layout: RecordLayout, staging_records: int) -> int:
    """Return what a stream takes of the device's memory."""
    return max(MIN_STAGING_RECORDS, staging_records) * layout.record_bytes


class LayerStream:
    """Staging for `staging_records` records, in two halves.

    `layer` needs room for two layers (2 * E); `records` works with any size. One user at a time:
    what an earlier call returned may be overwritten by the next one.

    Raises: BudgetError if the device has no room.
    """

    def __init__(self, device: Device, pool: ExpertPool, staging_records: int) -> None:
        self._device = device
        self._pool = pool
        self._half_records = max(MIN_STAGING_RECORDS, staging_records) // 2
        size = 2 * self._half_records * pool.layout.record_bytes
        try:
            self._region = device.region(size, size)
        except DeviceMemoryError as problem:
            raise BudgetError(f"No room for the staging of experts: {problem}.") from problem
        shape = (2, self._half_records, pool.layout.record_bytes)
        self._halves = self._region.tensor.view(shape).unbind(0)
        self._copies = device.stream()
        self._turn = 0  # the half that the next copies go to; strictly alternating
        self._ahead: tuple[int, int, Event] | None = None  # layer, half, end of its copy

    @property
    def staging_records(self) -> int:
        """Records that fit, both halves together."""
        return 2 * self._half_records

    @property
    def num_bytes(self) -> int:
        """Device memory of the staging."""
        return self.staging_records * self._pool.layout.record_bytes

    def layer(self, moe_layer: int, meter: CopyMeter) -> torch.Tensor:
        """Return a layer's records on the device, and start copying the next layer.

        The copy of layer l was started by the call for l - 1, so it overlaps with that compute;
        only the first one is waited for in full. The compute queue waits, not the host.

        Returns: uint8 [E, record_bytes], valid until the next call.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == moe_layer:
            _, half, event = ahead
        else:
            half, event = self._start_layer(moe_layer, meter)
        self._device.wait(event)
        following = moe_layer + 1
        if following < self._pool.num_layers:
            self._ahead = (following, *self._start_layer(following, meter))
        return self._halves[half][: self._pool.num_experts]

    def records(
        self, wanted: Sequence[int], meter: CopyMeter
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (record, its bytes on the device) for each wanted record, in order.

        Groups of half the staging: while the caller computes one, the next is copied. A record's
        bytes are valid until the generator is asked for the next one.
        """
        self._ahead = None
        size = self._half_records
        groups = [wanted[first : first + size] for first in range(0, len(wanted), size)]
        started = self._start_group(groups[0], meter) if groups else None
        for number, group in enumerate(groups):
            if started is None:
                return
            half, event = started
            last = number + 1 == len(groups)
            started = None if last else self._start_group(groups[number + 1], meter)
            self._device.wait(event)
            for place, record in enumerate(group):
                yield record, self._halves[half][place]

    def close(self) -> None:
        """End the copy queue and give the staging back."""
        self._copies.close()
        self._ahead = None
        self._halves = ()
        self._region.close()

    def _next_half(self) -> tuple[int, Event]:
        """Take the half whose turn it is.

        Returns: the half, and a point of compute behind which nobody reads it: its readers were
        queued before now, because callers compute one half before they ask for the next.
        """
        half, self._turn = self._turn, 1 - self._turn
        return half, self._device.record()

    def _start_layer(self, moe_layer: int, meter: CopyMeter) -> tuple[int, Event]:
        """Queue the copy of a whole layer; returns its half and its end."""
        half, after = self._next_half()
        source = self._pool.layer(moe_layer)
        event = self._copies.copy(self._halves[half][: len(source)], source, after)
        meter.add(event, source.numel())
        return half, event

    def _start_group(self, group: Sequence[int], meter: CopyMeter) -> tuple[int, Event]:
        """Queue copies of some records; returns their half and the end of the last."""
        half, after = self._next_half()
        event = after
        for place, record in enumerate(group):
            source = self._pool.record(record)
            event = self._copies.copy(self._halves[half][place], source, after)
            meter.add(event, source.numel())
        return half, event
