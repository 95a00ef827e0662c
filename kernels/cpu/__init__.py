"""Python face of the C++ kernels; everything here works without them too.

The module `_native` is built in place by CMake (`dev.py bootstrap`) and is optional.
"""

import importlib
from typing import Literal, Protocol, cast

IsaTier = Literal["scalar", "avx2", "avx512"]
NATIVE_REVISION = 4  # of `kernels/csrc/module.cpp`; another one was built from other sources


class NativeKernel(Protocol):
    """One layout's expert kernel; addresses are those of C-contiguous host memory."""

    def each(self, records: list[int], x: int, out: int) -> None:
        """One token through every record: float32 x [H] -> out [B, H]."""
        ...

    def routes(self, routes: list[tuple[int, int, int]], x: int, out: int) -> None:
        """Compute routes (record, row of x [*, H], row of out [*, H]); float32.

        Neighbours that name the same record read it once, up to 8 at a time.
        """
        ...


class NativePoolConfig(Protocol):
    """What threads a pool has, and what they work on."""

    cpus: list[int]
    pin: bool
    spin_ns: int
    park_ns: int
    look_ahead_bytes: int

    def set_prefetch(self, rows: int, near_bytes: int) -> None:
        """Say how memory is asked for; ValueError for distances that there are not."""
        ...


class NativePool(Protocol):
    """Threads that serve the mailbox."""

    def wake(self) -> None:
        """Get parked threads up."""
        ...

    def close(self) -> None:
        """Let the threads end the call in hand and join them."""
        ...

    def stats(self) -> dict[str, int]:
        """Return the fields of `kernels.cpu.pool.PoolStats`."""
        ...


class NativeTrial(Protocol):
    """A pool's threads that serve nobody but the caller; `kernels/csrc/trial.h`."""

    def run(self, records: list[int], rows: int, near_bytes: int, patience_ns: int) -> int:
        """Return the nanoseconds of one call for all units of some records.

        0 if it took longer than `patience_ns`: the threads have ended then.
        """
        ...


class NativeModule(Protocol):
    """What `_native` offers; `kernels/csrc/module.cpp`."""

    def isa_tier(self) -> IsaTier:
        """Return the highest tier that this CPU and system can run."""
        ...

    def Experts(
        self,
        encoding: str,
        hidden: int,
        intermediate: int,
        group: int,
        round_to_bf16: bool,
        tier: str,
    ) -> NativeKernel:
        """Make a kernel; ValueError for a tier that the CPU cannot run."""
        ...

    def PoolLayout(
        self,
        encoding: str,
        hidden: int,
        intermediate: int,
        group: int,
        record_bytes: int,
    ) -> object:
        """Say how records lie."""
        ...

    def PoolConfig(
        self, layout: object, tier: str, records: int, num_records: int, mail: int, reply: int
    ) -> NativePoolConfig:
        """Say what a pool works on; ValueError for a tier that the CPU cannot run."""
        ...

    def Pool(self, config: NativePoolConfig) -> NativePool:
        """Start a pool's threads."""
        ...

    def Trial(self, config: NativePoolConfig) -> NativeTrial:
        """Start such threads with a mailbox of their own."""
        ...

    def read_rate(
        self, data: int, num_bytes: int, cpus: list[int], pin: bool, passes: int
    ) -> float:
        """Return at how many bytes per second threads read memory, one for each of `cpus`."""
        ...


def load_native() -> NativeModule:
    """Import the module.

    Raises: ImportError if it is not built, cannot be loaded, or was built from other sources.
    """
    module = importlib.import_module("kernels.cpu._native")
    if getattr(module, "revision", 0) != NATIVE_REVISION:
        raise ImportError("the C++ kernels were built from other sources: run dev.py bootstrap")
    return cast("NativeModule", module)


def isa_tier() -> IsaTier | None:
    """Return the highest instruction-set tier of this machine; None if `_native` is not built."""
    try:
        return load_native().isa_tier()
    except ImportError:
        return None


def expert_obstacle() -> str:
    """Return why the C++ kernels would not pay on this machine; "" if they do."""
    tier = isa_tier()
    if tier is None:
        return "it is not built here"
    return "this CPU has no AVX2 with FMA" if tier == "scalar" else ""
