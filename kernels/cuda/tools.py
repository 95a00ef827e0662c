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


class LoadedModule(KernelModule, Protocol):
    """Kernels on a card, until they are unloaded."""

    def close(self) -> None:
        """Unload; no kernel of it may run or lie in a recording that will be replayed."""
        ...


class Tools(Protocol):
    """One card's tools.

    Attributes:
        card: its sizes.
        compiles_ahead: a compiler on a thread of its own disturbs nobody.
    """

    card: Card
    compiles_ahead: bool

    def compile(self, source: str, defines: Mapping[str, int]) -> Callable[[], LoadedModule]:
        """Compile a source for the card, or take it from the cache. May run on any thread.

        Returns: what loads it, on the step loop's thread; raises KernelError with the driver's
            words.
        Raises: CompileError; OSError without a compiler.
        """
        ...

    def record(self, launch: Callable[[int], None]) -> Recording:
        """Record what `launch(stream)` queues. Raises KernelError where it cannot be recorded."""
        ...

    def shared_memory(self, num_bytes: int) -> torch.Tensor:
        """Return host memory that kernels read and write, zeroed: uint8 [num_bytes], 64-aligned."""
        ...

    def address(self, memory: torch.Tensor) -> int:
        """Return where kernels see pinned host memory."""
        ...
