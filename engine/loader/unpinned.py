"""What to do and say where main memory is not pinned for a device, or may not stay so.

Some drivers count pinned memory against the device: it then refuses although much shows as free,
and gets a second try without (case M-12). Others pin only a part (case M-02).
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
) -> tuple[Built, bool]:
    """Build on the device; once more with the pool unpinned if the device refuses memory.

    `build` is given the stack that learns how to free its parts.

    Returns: what was built, and whether the pool was unpinned for it; it then says why.
    Raises: what `build` raises, at once if nothing was pinned.
    """
    try:
        with memory_refusals(), ExitStack() as first:
            built = build(first)
            stack.push(first.pop_all())
            return built, False
    except REFUSALS as problem:
        pinned, free = pool.pinned_bytes, device.free_bytes()
        why = str(problem).rstrip(".")
        reason = (
            f"The device refused memory with {format_bytes(free)} free, while "
            f"{format_bytes(pinned)} of main memory were pinned for it: {why}. "
            "So they are not pinned any more."
        )
        if not pool.unpin(reason):
            raise
    return build(stack), True


def pin_notices(pool: ExpertPool, is_captured: bool) -> list[tuple[str, str]]:
    """Return the notice that says why not all of the pool is pinned and what comes of it, if so.

    `is_captured`: captured steps run, whose kernels read pinned layers only.
    """
    if not pool.pin_problem:
        return []
    left = pool.num_layers - pool.num_pinned_layers
    of_these = f" of the other {left} layers" if pool.num_pinned_layers else ""
    effect = f"Experts{of_these} cross the link more slowly."
    if is_captured:
        effect = f"Missing experts{of_these} are computed by the CPU."
    return [("not_pinned", f"{pool.pin_problem} {effect}")]
