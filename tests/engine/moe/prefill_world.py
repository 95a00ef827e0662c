"""Prefill on a device with a link: a residency of plain slots, and a device that checks order.

`OrderedDevice` knows two queues. A copy may write where earlier compute read only behind an event
that was recorded after those reads; compute may read a place only after it waited for the copy that
wrote it. Both are checked at the call, whatever the timing would have been.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from engine.moe.device_prefill import DevicePrefill, PrefillOptions
from engine.moe.router import Routing, kept
from kernels.cuda.residency import NO_SLOT
from kernels.device.fake import FakeDevice, FakeEvent
from kernels.reference.grouped import ReferenceGrouped
from tests.engine.moe.world import EXPERTS, LAYERS, LAYOUT, TOP_K, make_pool


class Slots:
    """A residency: slots in device memory, `admit` takes free ones, then the coldest allowed."""

    def __init__(self, device, pool, records: Sequence[int], num_slots: int) -> None:
        self.pool, self.offers, self.credits = pool, [], []
        self.memory = torch.zeros(num_slots, pool.layout.record_bytes, dtype=torch.uint8)
        self.memory = self.memory.to(device.torch_device)
        self.owner: dict[int, int] = {}
        self.heat: dict[int, float] = {}
        for slot, record in enumerate(records):
            self.owner[record] = slot
            self.memory[slot] = pool.record(record)

    def slots(self):
        found = np.full(self.pool.num_records, NO_SLOT, np.int32)
        for record, slot in self.owner.items():
            found[record] = slot
        return found.reshape(self.pool.num_layers, -1)

    def addresses(self, slots):
        return self.memory.data_ptr() + slots.astype(np.int64) * self.pool.layout.record_bytes

    def slot(self, slot: int) -> torch.Tensor:
        return self.memory[slot]

    def credit(self, moe_layer, uses, num_tokens) -> None:
        self.credits.append((moe_layer, uses.tolist(), num_tokens))

    def admit(self, records: Sequence[int], hotness: Sequence[float]) -> Mapping[int, int]:
        self.offers.append((tuple(records), tuple(hotness)))
        if not records:
            return {}
        layer = records[0] // self.pool.num_experts
        given: dict[int, int] = {}
        for record, heat in zip(records, hotness, strict=True):
            free = set(range(len(self.memory))) - set(self.owner.values())
            victims = [
                one
                for one in self.owner
                if one // self.pool.num_experts == layer and self.heat.get(one, 0.0) < heat
            ]
            if free:
                slot = min(free)
            elif victims:
                victim = min(victims, key=lambda one: (self.heat.get(one, 0.0), one))
                slot = self.owner.pop(victim)
            else:
                continue
            self.owner[record], self.heat[record] = slot, heat
            given[record] = slot
        return given


class OrderedDevice(FakeDevice):
    """The fake device, checking what must happen before what."""

    def __init__(self, budget_bytes: int | None = None) -> None:
        super().__init__(budget_bytes)
        self.time = 0  # reads queued so far
        self.read_at: dict[int, int] = {}  # address of a record -> time of its last read
        self.written: dict[int, FakeEvent] = {}  # address of a record -> the copy that wrote it
        self.waited: set[int] = set()
        self.step = LAYOUT.record_bytes

    def record(self):
        event = super().record()
        event.time = self.time
        return event

    def wait(self, event) -> None:
        super().wait(event)
        self.waited.add(id(event))

    def stream(self):
        return _OrderedStream(self, super().stream())

    def read(self, address: int) -> None:
        """Compute reads a record."""
        self.time += 1
        self.read_at[address] = self.time
        copy = self.written.get(address)
        assert copy is None or id(copy) in self.waited, "read before its copy was waited for"


class _OrderedStream:
    def __init__(self, device: OrderedDevice, inner) -> None:
        self._device, self._inner = device, inner
        self._passed = -1  # reads that earlier copies of this queue waited for
        self._keep = []  # ids of events must not be used again

    def copy(self, dst, src, after=None):
        device = self._device
        self._passed = max(self._passed, getattr(after, "time", -1))
        event = self._inner.copy(dst, src, after)
        self._keep.append(event)
        if dst.numel() % device.step == 0:
            for address in range(dst.data_ptr(), dst.data_ptr() + dst.numel(), device.step):
                assert device.read_at.get(address, 0) <= self._passed, "written while it is read"
                device.written[address] = event
                # the copies of a group share the event of its last one
                device.waited.discard(id(event))
        self._settle(event)
        return event

    def copy_all(self, pairs, after=None):
        return [self.copy(dst, src, after) for dst, src in pairs][-1]

    def _settle(self, event) -> None:
        """A queue is in order: waiting for a copy waits for the ones before it."""
        run, device, before = event._run, self._device, list(self._keep)

        def passed(target):
            run(target)
            device.waited.update(id(one) for one in before)

        event._run = passed

    def close(self) -> None:
        self._inner.close()


class SpyKernel:
    """The reference kernel, telling the device which records it reads."""

    def __init__(self, device, layout=LAYOUT, dtype=torch.float32) -> None:
        self._inner = ReferenceGrouped(layout, torch.device("cpu"), dtype)
        self._device = device
        self.chunks = []

    def begin(self, x, ids, table, chunk_tokens):
        task = self._inner.begin(x, ids, table, chunk_tokens)
        self.chunks.append((x.shape[0], chunk_tokens))
        routed = {int(table.ranks[expert]) for expert in ids.flatten().tolist()}
        spy, inner_compute = self, task.compute

        def compute(first, last):
            for rank in range(first, last):
                if rank in routed:
                    address = table.view(rank).data_ptr()
                    assert address == int(table.addresses[rank])
                    if isinstance(spy._device, OrderedDevice):
                        spy._device.read(address)
            inner_compute(first, last)

        task.compute = compute
        return task


class PrefillWorld:
    """A pool, some slots and a prefill; use it as a context manager."""

    def __init__(self, resident=(), num_slots=None, device=None, seed=0, **options) -> None:
        self.device = OrderedDevice() if device is None else device
        self.pool = make_pool(self.device, seed)
        size = max(1, len(resident)) if num_slots is None else num_slots
        self.slots = Slots(self.device, self.pool, resident, size)
        self.kernel = SpyKernel(self.device)
        self.prefill = DevicePrefill(
            self.pool, self.slots, self.device, self.kernel, PrefillOptions(**options)
        )

    def __enter__(self):
        return self

    def __exit__(self, *_problem):
        self.prefill.close()

    def run(self, chunk, last_chunk=True):
        """Run a chunk through all layers; returns each layer's output."""
        hidden, routings = chunk
        self.prefill.start(hidden.shape[0], TOP_K, last_chunk)
        return [self.add(layer, hidden, routing) for layer, routing in enumerate(routings)]

    def add(self, layer, hidden, routing, out=None, counted=None):
        """Run one layer; returns `out`, zeros at first, with its output added."""
        out = torch.zeros_like(hidden) if out is None else out
        self.prefill.add(layer, kept(hidden), routing, out, counted)
        return out


def chunk_of(tokens, seed=0):
    """Return (hidden [T, H], a Routing per layer)."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, LAYOUT.hidden, generator=generator)
    routings = []
    for _ in range(LAYERS):
        ids = torch.rand(tokens, EXPERTS, generator=generator).topk(TOP_K).indices
        weights = torch.rand(tokens, TOP_K, generator=generator)
        routings.append(Routing(ids.to(torch.int32), weights))
    return hidden, routings
