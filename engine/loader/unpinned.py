"""A second try where a device refuses memory while main memory is pinned for it (case M-12).

Some drivers count pinned memory against the device: it then refuses although much shows as free.
Called by `engine.loader.open`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from engine.memory.budget import format_bytes
from engine.moe.pool import ExpertPool
from engine.protocol.errors import BudgetError
from kernels.device.base import MEMORY_ERRORS, Device, memory_refusals

Built = TypeVar("Built")
REFUSALS: tuple[type[Exception], ...] = (BudgetError, *MEMORY_ERRORS)


def build_or_unpin(
    build: Callable[[ExitStack], Built], pool: ExpertPool, device: Device, stack: ExitStack
) -> tuple[Built, str]:
    """Build on the device; once more with the pool unpinned if the device refuses memory.

    `build` is given the stack that learns how to free its parts.

    Returns: what was built, and why the pool is not pinned any more, as a sentence; "" if it is as
        it was.
    Raises: what `build` raises, at once if nothing was pinned.
    """
    try:
        with memory_refusals(), ExitStack() as first:
            built = build(first)
            stack.push(first.pop_all())
            return built, ""
    except REFUSALS as problem:
        pinned, free = pool.storage.numel(), device.free_bytes()
        why = str(problem).rstrip(".")
        reason = (
            f"The device refused memory with {format_bytes(free)} free, while "
            f"{format_bytes(pinned)} of main memory were pinned for it: {why}. "
            "So they are not pinned any more, and experts cross the link more slowly."
        )
        if not pool.unpin(reason):
            raise
    return build(stack), reason
