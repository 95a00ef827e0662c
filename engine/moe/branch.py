"""The CPU's share of a layer: experts computed from their host records, while the device works.

Knows records and rows, not slots or policy. Two ways behind one protocol: `InlineBranch` where the
device is the CPU itself, `ThreadedBranch` beside an accelerator. Called by `engine.moe.executor`.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch

from engine.moe.pool import ExpertPool
from kernels.api import ExpertKernel


class Job(NamedTuple):
    """An expert, and the routes (token, k) that want it."""

    record: int
    routes: tuple[tuple[int, int], ...]


class CpuBranch(Protocol):
    """One layer's CPU work at a time: `publish`, then `wait` or `cancel`."""

    @property
    def num_bytes(self) -> int:
        """Record bytes read since load."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds of computing since load."""
        ...

    def publish(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        """Hand work over: hidden [T, H] float32 on the device."""
        ...

    def wait(self, rows: torch.Tensor) -> None:
        """Finish the work and write its rows into rows [T, K, H]. Raises what the work raised."""
        ...

    def cancel(self) -> None:
        """Drop published work, if there is any."""
        ...

    def close(self) -> None:
        """End what runs."""
        ...


def compute_routes(
    kernel: ExpertKernel, job: Job, record: torch.Tensor, hidden: torch.Tensor, out: torch.Tensor
) -> None:
    """Compute one expert's rows: the one way that device and CPU share.

    Shapes: record uint8 [record_bytes], hidden [T, H], out [T, K, H]; all where `kernel` computes.
    """
    kernel.load(record)
    for token, k in job.routes:
        out[token, k].copy_(kernel.row(hidden[token]))


class _Totals:
    """Bytes and seconds of one branch."""

    def __init__(self, pool: ExpertPool, clock: Callable[[], float]) -> None:
        self._record_bytes = pool.layout.record_bytes
        self._clock = clock
        self.num_bytes = 0
        self.seconds = 0.0

    def measure(self, work: Callable[[], None], num_records: int) -> None:
        start = self._clock()
        work()
        self.seconds += self._clock() - start
        self.num_bytes += num_records * self._record_bytes


class InlineBranch:
    """Computes in `wait`, on the calling thread."""

    def __init__(self, pool: ExpertPool, kernel: ExpertKernel, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._kernel = kernel
        self._totals = _Totals(pool, clock)
        self._work: tuple[torch.Tensor, Sequence[Job]] | None = None

    @property
    def num_bytes(self) -> int:
        """Record bytes read since load."""
        return self._totals.num_bytes

    @property
    def seconds(self) -> float:
        """Seconds of computing since load."""
        return self._totals.seconds

    def publish(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        """Keep the work."""
        self._work = (hidden, jobs)

    def wait(self, rows: torch.Tensor) -> None:
        """Do the work."""
        if self._work is None:
            return
        hidden, jobs = self._work
        self._work = None

        def work() -> None:
            for job in jobs:
                record = self._pool.record(job.record)
                compute_routes(self._kernel, job, record, hidden, rows)

        self._totals.measure(work, len(jobs))

    def cancel(self) -> None:
        """Forget the work."""
        self._work = None

    def close(self) -> None:
        """Forget the work."""
        self.cancel()


class ThreadedBranch:
    """Computes on one worker thread; activations go to the host and rows come back.

    `kernel` must belong to this branch alone and compute on the CPU.
    """

    def __init__(self, pool: ExpertPool, kernel: ExpertKernel, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._kernel = kernel
        self._totals = _Totals(pool, clock)
        self._open: _Task | None = None
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cpu-experts", daemon=True)
        self._thread.start()

    @property
    def num_bytes(self) -> int:
        """Record bytes read since load."""
        return self._totals.num_bytes

    @property
    def seconds(self) -> float:
        """Seconds of computing since load."""
        return self._totals.seconds

    def publish(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        """Copy the tokens to the host and wake the worker."""
        self._open = _Task(hidden.to("cpu"), jobs)
        self._queue.put(self._open)

    def wait(self, rows: torch.Tensor) -> None:
        """Wait for the worker and move its rows to the device."""
        task, self._open = self._open, None
        if task is None:
            return
        task.done.wait()
        if task.problem is not None:
            raise task.problem
        tokens = torch.tensor([t for t, _ in task.routes], device=rows.device)
        ks = torch.tensor([k for _, k in task.routes], device=rows.device)
        rows[tokens, ks] = task.rows.to(rows.device)

    def cancel(self) -> None:
        """Wait for the worker and drop its rows."""
        task, self._open = self._open, None
        if task is not None:
            task.done.wait()

    def close(self) -> None:
        """End the worker."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                self._totals.measure(partial(self._work, task), len(task.jobs))
            except RuntimeError as problem:  # handed to whoever waits
                task.problem = problem
            finally:
                task.done.set()

    def _work(self, task: "_Task") -> None:
        place = 0
        for job in task.jobs:
            self._kernel.load(self._pool.record(job.record))
            for token, _ in job.routes:
                task.rows[place].copy_(self._kernel.row(task.hidden[token]))
                place += 1


class _Task:
    """One layer's work for the worker."""

    def __init__(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        self.hidden = hidden
        self.jobs = jobs
        self.routes = [route for job in jobs for route in job.routes]
        self.rows = torch.empty(len(self.routes), hidden.shape[1])
        self.done = threading.Event()
        self.problem: RuntimeError | None = None
