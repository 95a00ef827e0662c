"""The CPU's share of a layer: experts computed from their host records, while the device works.

Knows records and rows, not slots or policy. Two ways behind one protocol: `InlineBranch` where the
device is the CPU itself, `ThreadedBranch` beside an accelerator. Called by `engine.moe.executor`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import torch

from engine.moe.pool import ExpertPool
from kernels.api import ExpertKernel


class Job(NamedTuple):
    """An expert, and the routes (token, k) that want it."""

    record: int
    routes: Sequence[tuple[int, int]]


Work = Sequence[tuple[Job, torch.Tensor]]  # experts, each with the record to compute it from


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
        """Hand a layer's work over: hidden [T, H] float32 on the device, and jobs, if any."""
        ...

    def wait(self, rows: torch.Tensor, beside: Work = ()) -> None:
        """Finish the work and write its rows into rows [T, K, H].

        `beside` is work from the slots of an inline device, which has nobody else to do it.

        Raises: what the work raised.
        """
        ...

    def cancel(self) -> None:
        """Drop published work, if there is any."""
        ...

    def close(self) -> None:
        """End what runs."""
        ...


def compute_jobs(
    kernel: ExpertKernel,
    work: Work,
    hidden: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Compute experts from their records: the one way that device and CPU share.

    Shapes: each record uint8 [record_bytes], hidden [T, H], out [T, K, H] of which the jobs' routes
    are written; all where `kernel` computes.
    """
    for first in range(0, len(work), kernel.capacity):
        part = work[first : first + kernel.capacity]
        kernel.load([record for _, record in part])
        kernel.into(out, hidden, [job.routes for job, _ in part])


class InlineBranch:
    """Computes in `wait`, on the calling thread, together with the device's own share.

    One batch for both, because on one core a second round of small calls costs more than it tells;
    seconds are shared out by the number of experts.
    """

    def __init__(self, pool: ExpertPool, kernel: ExpertKernel, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._kernel = kernel
        self._clock = clock
        self._open: tuple[torch.Tensor, Sequence[Job]] | None = None
        self.num_bytes = 0
        self.seconds = 0.0

    def publish(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        """Keep the work."""
        self._open = (hidden, jobs)

    def wait(self, rows: torch.Tensor, beside: Work = ()) -> None:
        """Do all of the work."""
        if self._open is None:
            return
        (hidden, jobs), self._open = self._open, None
        work = [*beside, *((job, self._pool.record(job.record)) for job in jobs)]
        start = self._clock()
        compute_jobs(self._kernel, work, hidden, rows)
        if jobs:
            self.seconds += (self._clock() - start) * len(jobs) / len(work)
            self.num_bytes += len(jobs) * self._pool.layout.record_bytes

    def cancel(self) -> None:
        """Forget the work."""
        self._open = None

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
        self._clock = clock
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="cpu-experts")
        self._open: tuple[_Task, Future[float]] | None = None
        self.num_bytes = 0
        self.seconds = 0.0

    def publish(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        """Copy the tokens to the host and wake the worker, if there is work."""
        if jobs:
            task = _Task(hidden.to("cpu"), jobs)
            self._open = task, self._worker.submit(self._work, task)

    def wait(self, rows: torch.Tensor, beside: Work = ()) -> None:
        """Wait for the worker and move its rows to the device. The device did its own share."""
        if beside:
            raise ValueError(f"{len(beside)} experts left over by a device that computes itself")
        if self._open is None:
            return
        (task, future), self._open = self._open, None
        self.seconds += future.result()
        self.num_bytes += len(task.jobs) * self._pool.layout.record_bytes
        tokens, ks = (torch.tensor(part) for part in zip(*task.routes, strict=True))
        rows[tokens.to(rows.device), ks.to(rows.device)] = task.rows[tokens, ks].to(rows.device)

    def cancel(self) -> None:
        """Wait for the worker and drop its rows."""
        if self._open is not None:
            (_, future), self._open = self._open, None
            future.exception()

    def close(self) -> None:
        """End the worker."""
        self._worker.shutdown()

    def _work(self, task: "_Task") -> float:
        """Compute on the worker; returns the seconds it took."""
        start = self._clock()
        work = [(job, self._pool.record(job.record)) for job in task.jobs]
        with torch.inference_mode():  # a mode of the thread; the step loop's tensors need it
            compute_jobs(self._kernel, work, task.hidden, task.rows)
        return self._clock() - start


class _Task:
    """One layer's work for the worker, and the host memory of its rows."""

    def __init__(self, hidden: torch.Tensor, jobs: Sequence[Job]) -> None:
        self.hidden = hidden
        self.jobs = jobs
        self.routes = [route for job in jobs for route in job.routes]
        top_k = 1 + max(k for _, k in self.routes)
        self.rows = torch.empty(hidden.shape[0], top_k, hidden.shape[1])
