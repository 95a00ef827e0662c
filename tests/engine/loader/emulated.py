"""Captured steps without a GPU: the CUDA sources run by the emulator, the rest is the engine."""

import weakref
from collections.abc import Callable, Mapping

import torch

from kernels.cuda.tuning import Card
from tests.kernels.emulator import EmulatedFunction, EmulatedModule


class Tape:
    """A recording that runs its kernels anew. Like a graph it keeps nothing alive."""

    def __init__(self, launch: Callable[[int], None]) -> None:
        self._launch = weakref.WeakMethod(launch)

    def replay(self) -> None:
        """Run the step."""
        launch = self._launch()
        assert launch is not None, "the memory of a recorded step is gone"
        launch(0)


class LoadedKernels:
    """An emulated module that is counted while it is loaded."""

    def __init__(self, module: EmulatedModule, tools: "EmulatedTools") -> None:
        self._module, self._tools = module, tools
        tools.loaded.append(self)

    def function(self, name: str) -> EmulatedFunction:
        """Return a kernel."""
        return self._module.function(name)

    def close(self) -> None:
        """Unload: once, and when no recording can run any more."""
        assert not any(tape() for tape in self._tools.tapes)
        self._tools.loaded.remove(self)


class EmulatedTools:
    """Stands where `kernels.cuda.card_tools.CudaTools` stands on a card."""

    card = Card(num_multiprocessors=2, shared_bytes=100 << 10)
    compiles_ahead = False  # a C++ compiler takes too long to let it run beside a test

    def __init__(self) -> None:
        self.loaded: list[LoadedKernels] = []  # and not unloaded
        self.tapes: list[weakref.ref[Tape]] = []

    def compile(self, source: str, defines: Mapping[str, int]) -> "Callable[[], LoadedKernels]":
        """Compile for this CPU."""
        module = EmulatedModule(source, defines)
        return lambda: LoadedKernels(module, self)

    def record(self, launch: Callable[[int], None]) -> Tape:
        """Remember what to run."""
        tape = Tape(launch)
        self.tapes.append(weakref.ref(tape))
        return tape

    def shared_memory(self, num_bytes: int) -> torch.Tensor:
        """Return zeroed memory whose address is a multiple of 64."""
        raw = torch.zeros(num_bytes + 64, dtype=torch.uint8)
        skip = -raw.data_ptr() % 64
        return raw[skip : skip + num_bytes]

    def address(self, memory: torch.Tensor) -> int:
        """Return the host's address: both sides are the same here."""
        return memory.data_ptr()


def emulated_tools(*_: object) -> tuple[EmulatedTools, str]:
    """Offer captured steps on any device; for `open_model(open_tools=...)`."""
    return EmulatedTools(), ""
