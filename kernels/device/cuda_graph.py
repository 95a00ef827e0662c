"""One step's kernels, captured once and replayed with one call. Knows no kernel.

Beside `kernels.device.cuda` the only module that touches `torch.cuda`. Source: CUDA graphs as torch
exposes them.
"""

from collections.abc import Callable

import torch
from torch import cuda  # noqa: TID251 - part of the seam that the ban protects

from kernels.device.base import MEMORY_ERRORS, DeviceLostError, KernelError

# What another way to run a model does not mend.
_UNMENDED: tuple[type[Exception], ...] = (*MEMORY_ERRORS, DeviceLostError)


class StepGraph:
    """What `record(stream)` launches, ready to be replayed on torch's current stream.

    `record` gets the raw handle of the capturing stream; torch operations inside it are captured
    too. Whatever it launches must have been loaded before, and its addresses must stay valid.

    Raises: KernelError where it cannot be recorded; what `record` raises.
    """

    def __init__(self, device: torch.device, record: Callable[[int], None]) -> None:
        self._graph = cuda.CUDAGraph()
        side = cuda.Stream(device)  # type: ignore[no-untyped-call]
        before = cuda.current_stream(device)
        side.wait_stream(before)
        try:
            # Other threads of the process may call the driver meanwhile.
            with cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                record(side.cuda_stream)
        except torch.AcceleratorError as problem:
            if "captur" not in str(problem):  # as all errors of capturing have it, and no other
                raise
            first = problem.__context__  # what broke it, and hides behind the capture's end
            if isinstance(first, _UNMENDED):
                raise first from None
            raise KernelError(f"A step cannot be recorded: {first or problem}") from problem
        finally:
            cuda.set_stream(before)  # torch does not if the capture's end fails
        before.wait_stream(side)

    def replay(self) -> None:
        """Queue the step once more; returns at once."""
        self._graph.replay()


def current_stream(device: torch.device) -> int:
    """Return the raw handle of torch's current stream."""
    return int(cuda.current_stream(device).cuda_stream)
