"""The measurements themselves: copies, the expert kernel, and both at once, as medians.

Uses the production paths: a record goes from pool to slot as a fill does, an expert is computed
from its host record as a miss on the CPU is. Knows no files and no messages. Called by
`engine.jobs.profile`.
"""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.moe.branch import Job, compute_jobs
from kernels.api import expert_kernel
from kernels.device.base import Device, DeviceMemoryError, Region
from kernels.layouts import RecordLayout

GB = 1e9
JOINT_BATCH = 4  # experts a layer computes while copies run


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: measurements per point; the median counts.
        round_s: seconds of one.
        pool_bytes: host memory to walk through; above any cache of the processor.
    """

    rounds: int
    round_s: float
    pool_bytes: int


class Links:
    """Host records and device slots of one layout, to measure the links between them.

    Args:
        layout: of one expert's record.
        device: where fills go.
        effort: how long, and how much memory.
        check: called between pieces of work; raises to cancel.

    Raises: DeviceMemoryError if there is no room.
    """

    def __init__(
        self, layout: RecordLayout, device: Device, effort: Effort, check: Callable[[], None]
    ) -> None:
        self.layout = layout
        self._device = device
        self._effort = effort
        self._check = check
        size = max(effort.pool_bytes, layout.record_bytes)
        self._host = device.host_buffer(size)
        _fill_with_values(self._host.tensor)
        try:
            self._target: Region = device.region(size, size)
        except DeviceMemoryError:
            self._host.close()
            raise
        self._target.tensor.zero_()  # a first touch costs page faults, which are no copies
        self._num_records = size // layout.record_bytes
        self._kernel = expert_kernel(layout, torch.device("cpu"))
        self._hidden = torch.ones(1, layout.hidden)
        self._next = 0

    def close(self) -> None:
        """Give the memory back."""
        self._target.close()
        self._host.close()

    def fill_rate(self, num_bytes: int) -> float:
        """B_P for copies of this size, in bytes/s."""
        places = max(1, self._host.tensor.numel() // num_bytes)

        def copy(index: int) -> int:
            start = index % places * num_bytes
            target = self._target.tensor[start : start + num_bytes]
            self._device.copy(target, self._host.tensor[start : start + num_bytes]).synchronize()
            return min(num_bytes, target.numel())

        return self._median(copy)

    def cpu_rate(self, batch: int) -> float:
        """B_H where one token's layer computes `batch` experts, in bytes of records/s."""
        return self._median(lambda _: self._compute(batch))

    def joint_rates(self) -> tuple[float, float]:
        """Fill and CPU rates while both run, in bytes/s."""
        pairs = [self._joint_round() for _ in range(self._effort.rounds)]
        return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)

    def _compute(self, batch: int) -> int:
        """Compute the next `batch` experts for one token; returns their bytes."""
        size = self.layout.record_bytes
        work = []
        for k in range(batch):
            index = (self._next + k) % self._num_records
            record = self._host.tensor[index * size : (index + 1) * size]
            work.append((Job(index, ((0, k),)), record))
        self._next += batch
        out = torch.empty(1, batch, self.layout.hidden)
        compute_jobs(self._kernel, work, self._hidden, out)
        return batch * size

    def _median(self, work: Callable[[int], int]) -> float:
        """Return the median rate of `work`, which returns the bytes it moved."""
        work(0)
        rates = []
        for _ in range(self._effort.rounds):
            self._check()
            done, count = 0, 0
            start = time.perf_counter()
            while (took := time.perf_counter() - start) < self._effort.round_s or not count:
                done += work(count)
                count += 1
            rates.append(done / took if took > 0 else 0.0)
        return statistics.median(rates)

    def _joint_round(self) -> tuple[float, float]:
        """Both links for one round; only the time when both ran counts."""
        self._check()
        stop = threading.Event()
        filled = 0
        size = self.layout.record_bytes

        def fill() -> None:
            nonlocal filled
            index = 0
            while not stop.is_set():
                start = index % self._num_records * size
                target = self._target.tensor[start : start + size]
                self._device.copy(target, self._host.tensor[start : start + size]).synchronize()
                filled += size
                index += 1

        thread = threading.Thread(target=fill, name="fill")
        start = time.perf_counter()
        thread.start()
        computed = 0
        try:
            while time.perf_counter() - start < self._effort.round_s or not computed:
                computed += self._compute(JOINT_BATCH)
            took = time.perf_counter() - start
            in_time = filled
        finally:
            stop.set()
            thread.join()
        return max(in_time, size) / took, computed / took


def _fill_with_values(memory: torch.Tensor) -> None:
    """Write bytes 0..63, which are finite and ordinary values in every encoding."""
    generator = torch.Generator().manual_seed(1)
    block = torch.randint(0, 64, (1 << 20,), dtype=torch.uint8, generator=generator)
    for start in range(0, memory.numel(), block.numel()):
        part = memory[start : start + block.numel()]
        part.copy_(block[: part.numel()])
