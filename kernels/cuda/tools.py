"""What a loader needs of a card beside memory: compile, record, and memory that both sides see.

Interfaces only: `kernels.cuda.card_tools` has those of a card, tests bring an emulator. Used by
`engine.loader.captured`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from kernels.cuda.dense import KernelModule
from kernels.cuda.tuning import Card


class Recording(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Queue it once more."""
        ...


class Tools(Protocol):
    """One card's tools.

    Attributes:
        card: its sizes.
    """

    card: Card

    def load(self, source: str, defines: Mapping[str, int]) -> KernelModule:
        """Compile a source for the card, or take it from the cache, and load it.

        Raises: CompileError; OSError without a compiler; RuntimeError from the driver.
        """
        ...

    def record(self, launch: Callable[[int], None]) -> Recording:
        """Record what `launch(stream)` queues."""
        ...

    def shared_memory(self, num_bytes: int) -> torch.Tensor:
        """Return host memory that kernels read and write, zeroed: uint8 [num_bytes], 64-aligned."""
        ...

    def address(self, memory: torch.Tensor) -> int:
        """Return where kernels see pinned host memory."""
        ...
