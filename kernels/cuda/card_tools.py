"""The tools of an NVIDIA card; see `kernels.cuda.tools`. Imported when a card is in use."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from kernels.cuda.compile import compile_source
from kernels.cuda.driver import Module, architecture
from kernels.cuda.tuning import Card
from kernels.device.cuda_calls import device_pointer
from kernels.device.cuda_graph import StepGraph


class CudaTools:
    """Tools of an NVIDIA card; compiled kernels are kept under `cache`."""

    compiles_ahead = True

    def __init__(self, device: torch.device, cache: Path) -> None:
        self._device, self._cache = device, cache
        self.card = Card.of(device.index or 0)

    def compile(self, source: str, defines: Mapping[str, int]) -> Callable[[], Module]:
        """Compile, or read what was compiled before."""
        index = self._device.index or 0
        image = compile_source(source, defines, architecture(index), self._cache)
        return partial(Module, image, index)

    def record(self, launch: Callable[[int], None]) -> StepGraph:
        """Capture a graph."""
        return StepGraph(self._device, launch)

    def shared_memory(self, num_bytes: int) -> torch.Tensor:
        """Allocate pinned memory, which the card sees at the same time."""
        return torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=True)

    def address(self, memory: torch.Tensor) -> int:
        """Ask the driver."""
        return device_pointer(memory.data_ptr())
