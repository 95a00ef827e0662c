"""Missing records on their way through a ring of device memory, as far ahead as it allows.

Carries out what `engine.moe.device_planner` laid out; knows events and copies, not tokens, policy
or slots. A group's copies start once the last reader of their places has been queued and has run;
the compute queue waits for a group where it reads it. The host waits for nothing but its own
table's last upload. Called by `engine.moe.device_prefill`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine.moe.device_planner import Group, PrefillRates
from engine.moe.meter import CopyMeter
from engine.moe.pool import ExpertPool
from engine.protocol.errors import BudgetError
from kernels.device.base import CopyStream, Device, DeviceMemoryError, Event
from kernels.grouped import RecordTable

MIN_RING_RECORDS = 2


class RecordStream:
    """A ring of `ring_records` records and one copy queue.

    Attributes:
        meter: bytes and seconds of all record copies.

    Raises: BudgetError if the device has no room.
    """

    def __init__(self, device: Device, pool: ExpertPool, ring_records: int) -> None:
        self._device, self._pool = device, pool
        self._record_bytes = pool.layout.record_bytes
        self.ring_records = max(MIN_RING_RECORDS, ring_records)
        size = self.ring_records * self._record_bytes
        try:
            self._region = device.region(size, size)
        except DeviceMemoryError as problem:
            raise BudgetError(f"No room for the staging of experts: {problem}.") from problem
        self._places = self._region.tensor.view(self.ring_records, self._record_bytes)
        self._base = self._places.data_ptr()
        self._copies = device.stream()
        self.meter = CopyMeter()
        self._plan: Sequence[Group] = ()
        self._landed: list[Event] = []  # of each group whose copies are queued
        self._read: list[Event] = []  # of each group that is read to the end
        self._start = device.record()

    @property
    def num_bytes(self) -> int:
        """Device memory of the ring."""
        return self.ring_records * self._record_bytes

    def address(self, place: int) -> int:
        """Return where a record of the ring lies."""
        return self._base + place * self._record_bytes

    def view(self, place: int) -> torch.Tensor:
        """Return a record of the ring, uint8 [record_bytes]."""
        return self._places[place]

    def open(self, plan: Sequence[Group], tables: "PassTables") -> None:
        """Begin a plan and queue what the ring holds; the one before is given up.

        The tables go first, and compute waits for them: on a queue of their own they would arrive
        with the records, which share their link. Nothing is overwritten before what is queued now
        has read it.
        """
        self._plan, self._landed, self._read = plan, [], []
        self._start = self._device.record()
        uploaded = tables.upload(self._copies, self._start)
        self._pump()
        self._device.wait(uploaded)

    def wait(self, group: int) -> None:
        """Let the compute queue wait until a group has landed.

        Raises: LookupError if it cannot land: groups before it were not given back.
        """
        if group >= len(self._landed):
            raise LookupError(f"group {group} needs the place of one that is still in use")
        self._device.wait(self._landed[group])

    def give_back(self, group: int) -> None:
        """Say that the last reader of the next group is queued, and queue what now has room.

        Raises: ValueError if groups are not given back in order.
        """
        if group != len(self._read) or group >= len(self._landed):
            raise ValueError(f"group {group} is given back after {len(self._read)} others")
        self._read.append(self._device.record())
        self._pump()

    def close(self) -> None:
        """End the copy queue and give the ring back."""
        self._copies.close()
        self._plan = ()
        self._places = self._places[:0]
        self._region.close()

    def _pump(self) -> None:
        """Queue copies as far as places are free."""
        while len(self._landed) < len(self._plan):
            group = self._plan[len(self._landed)]
            if group.after > len(self._read):
                return
            self._landed.append(self._queue(group))

    def _queue(self, group: Group) -> Event:
        """Queue a group's runs; returns the end of the last. A group has one run at least."""
        after = self._read[group.after - 1] if group.after else self._start
        source, places = self._pool.layer(group.layer), self._places
        pairs = [
            (
                places[run.place : run.place + run.count],
                source[run.first : run.first + run.count],
            )
            for run in group.runs
        ]
        event = self._copies.copy_all(pairs, after)
        self.meter.add(event, sum(part.numel() for _, part in pairs))
        return event


def pass_table_bytes(num_layers: int, num_experts: int) -> int:
    """Return the size of `PassTables`: an address and a rank for each record."""
    return (8 + 4) * num_layers * num_experts


class PassTables:
    """Ranks and addresses of every layer's records: written by the host, copied in one piece."""

    def __init__(self, device: Device, num_layers: int, num_experts: int) -> None:
        self._split = 8 * num_layers * num_experts
        self._shape = (num_layers, num_experts)
        self._buffer = device.host_buffer(pass_table_bytes(num_layers, num_experts))
        self._host = self._buffer.tensor
        self._there = torch.zeros_like(self._host, device=device.torch_device)
        self._by_layer = tuple(
            zip(*(part.unbind(0) for part in self._parts(self._there)), strict=True)
        )
        self._uploaded: Event | None = None

    def wait(self) -> None:
        """Block until the last upload has read the host's side, so that it may be written anew."""
        if self._uploaded is not None:
            self._uploaded.synchronize()

    def write(
        self, first_layer: int, experts: NDArray[np.int64], addresses: NDArray[np.int64]
    ) -> None:
        """Note n layers: the experts by rank, and the addresses by expert. Shapes: [n, E]."""
        here = slice(first_layer, first_layer + len(experts))
        table, ranks = (part.numpy()[here] for part in self._parts(self._host))
        table[:] = np.take_along_axis(addresses, experts, 1)
        np.put_along_axis(ranks, experts, np.arange(experts.shape[1], dtype=np.int32)[None], 1)

    def upload(self, copies: CopyStream, after: Event) -> Event:
        """Copy everything; returns the end of the copy."""
        self._uploaded = copies.copy(self._there, self._host, after)
        return self._uploaded

    def of(self, layer: int, view: Callable[[int], torch.Tensor]) -> RecordTable:
        """Return a layer's table on the device."""
        addresses, ranks = self._by_layer[layer]
        return RecordTable(ranks, addresses, view)

    def close(self) -> None:
        """Give the host memory back."""
        self.wait()
        self._host = self._host[:0]
        self._buffer.close()

    def _parts(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        addresses = memory[: self._split].view(torch.int64).view(self._shape)
        return addresses, memory[self._split :].view(torch.int32).view(self._shape)


class LinkWatch:
    """Measures what the choice of loading rests on, from what happens anyway."""

    def __init__(self, meter: CopyMeter, clock: Callable[[], float]) -> None:
        self._meter, self._clock = meter, clock
        self._bytes, self._seconds = 0, 0.0  # at the last chunk
        self._first = (0.0, 0.0)  # clock and copy seconds at a demand chunk's first layer

    def learn_link(self, rates: PrefillRates) -> PrefillRates:
        """Learn from the chunks before; call it when a chunk begins."""
        num_bytes, seconds = self._meter.num_bytes, self._meter.seconds
        learned = rates.with_link(num_bytes - self._bytes, seconds - self._seconds)
        self._bytes, self._seconds = num_bytes, seconds
        return learned

    def learn_layer(self, rates: PrefillRates, layer: int, num_layers: int) -> PrefillRates:
        """Learn from a demand chunk; call it when the routes of a layer were read."""
        now = (self._clock(), self._meter.seconds)
        if layer == 0:
            self._first = now
        if layer == 0 or layer + 1 < num_layers:
            return rates
        elapsed, copying = (end - begin for begin, end in zip(self._first, now, strict=True))
        return rates.with_layer((elapsed - copying) / layer - rates.sync_s)
