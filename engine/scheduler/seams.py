"""What the scheduler asks of others, and what it is told once per load. No tensors.

The runner and the service fulfil these; tests bring doubles.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.protocol.errors import EngineError
from engine.protocol.messages import FinishReason, Sampling
from engine.runner.work import RowWork
from engine.scheduler.batch import Phase
from engine.scheduler.growth import ContextGrowth
from engine.scheduler.request import Request
from engine.scheduler.tally import Counters


class StepHandle(Protocol):
    """A step in flight."""

    def wait(self) -> tuple[int, ...]:
        """Return the sampled ids, in the order of the works that wanted one."""
        ...


class Runner(Protocol):
    """What the scheduler needs of `engine.runner.model_runner.ModelRunner`."""

    @property
    def latency(self) -> Literal[0, 1]:
        """1 = the next step may be launched before this one's ids are known."""
        ...

    def open_row(self, row: int, sampling: Sampling, seed: int, prompt_ids: Sequence[int]) -> None:
        """Prepare a row for a new reply; if that fails it is still free."""
        ...

    def close_row(self, row: int) -> None:
        """Forget a row."""
        ...

    def launch(self, phase: Phase, works: Sequence[RowWork]) -> StepHandle:
        """Run one forward."""
        ...


class Sink(Protocol):
    """Who hears what happens to requests; called on the scheduler's thread."""

    def started(self, request: Request) -> None:
        """It left the queue for the first time."""
        ...

    def token(self, request: Request, token_id: int) -> bool:
        """It has one more token. Returns whether the reply is over (end token, stop string)."""
        ...

    def finished(self, request: Request, reason: FinishReason, problem: EngineError | None) -> None:
        """It is over; exactly once per submitted request."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed per load.

    Attributes:
        context_tokens: the model's limit.
        chunk_tokens: prompt tokens per step.
        max_rows: requests that run together.
        reuse: keep what ended requests computed for prompts that begin alike.
    """

    context_tokens: int
    chunk_tokens: int = 256
    max_rows: int = 8
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a scheduler asks of others.

    Attributes:
        counters: snapshot of the expert counters.
        relieve: give device memory back; False if there is none to give.
        memory_errors: exceptions that mean "device out of memory".
        lost_errors: exceptions that mean "the device is gone".
        clock: seconds, monotonic.
        growth: lets the context grow; None = its size is fixed.
    """

    counters: Callable[[], Counters]
    relieve: Callable[[], bool]
    memory_errors: tuple[type[Exception], ...] = ()
    lost_errors: tuple[type[Exception], ...] = ()
    clock: Callable[[], float] = time.monotonic
    growth: ContextGrowth | None = None
