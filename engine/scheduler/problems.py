"""The sentences for what can go wrong in a step. Called by `engine.scheduler.scheduler`."""

from engine.protocol.errors import BudgetError, DeviceError, EngineError, InternalError
from engine.scheduler.request import Request


def no_room(request: Request, capacity_tokens: int) -> BudgetError:
    """Return why a waiting request cannot run any more; a pool may shrink meanwhile."""
    return BudgetError(
        f"The prompt has {len(request.prompt):,} tokens; the context memory now holds "
        f"{capacity_tokens:,}.",
        "Give the context more memory.",
    )


def out_of_memory(problem: Exception) -> BudgetError:
    """Return what a step ends with when the device refused memory."""
    return BudgetError(
        f"The device is out of memory: {problem}.",
        "Make the expert cache or the context smaller.",
    )


def lost_device(problem: Exception) -> DeviceError:
    """Return what everything ends with when the device is gone."""
    return DeviceError(
        f"The device does not answer any more: {problem}",
        "Restart the engine. If it happens again, try a smaller prompt chunk.",
    )


def failed_step(problem: Exception) -> EngineError:
    """Return a bug as an error of ours."""
    if isinstance(problem, EngineError):
        return problem
    return InternalError(f"The step failed: {problem!r}.", "Try again.")


def second_failure(problem: EngineError) -> InternalError:
    """Return what ends the engine: one bug costs a request, two the process."""
    return InternalError(f"A second internal error: {problem.message}", "Restart the engine.")
