"""Decode steps that were recorded once and are replayed: one recording per number of rows.

Knows fixed buffers and when to record, not what a step computes: that is a `Nodes`, built by the
loader from the model's weights. Implements `engine.runner.model_runner.DecodeProgram`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.forward import ForwardBatch
from engine.runner.model_runner import StepOutput


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """What a recorded step reads and writes; addresses stay the same from replay to replay.

    Attributes:
        token_ids, positions: int32 [R].
        page_table: int32 [R, P]; a row's unused tail holds any valid page.
        logits: float32 [R, V].
        greedy_ids: int32 [R]; the likeliest id of each row, -1 if a logit is not a number.
    """

    token_ids: Tensor
    positions: Tensor
    page_table: Tensor
    logits: Tensor
    greedy_ids: Tensor

    @property
    def num_rows(self) -> int:
        """R."""
        return int(self.token_ids.shape[0])


class Nodes(Protocol):
    """The kernels of one decode step, over their own buffers."""

    @property
    def buffers(self) -> StepBuffers:
        """What they read and write."""
        ...

    def launch(self, stream: int) -> None:
        """Queue the step on a raw stream; called once, while it is recorded."""
        ...


class Recording(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Queue it once more."""
        ...


@dataclass(frozen=True, slots=True)
class StepMaker:
    """How steps come to be and what surrounds them.

    Attributes:
        nodes: builds the kernels of a number of rows; may take seconds the first time.
        record: records what it is given.
        wake: called right before each replay (CPU workers may sleep).
        check: raises DeviceError if a finished step went wrong.
    """

    nodes: Callable[[int], Nodes]
    record: Callable[[Callable[[int], None]], Recording]
    wake: Callable[[], None]
    check: Callable[[], None]


class CapturedDecode:
    """Replays recorded steps."""

    def __init__(self, maker: StepMaker) -> None:
        self._maker = maker
        self._steps: dict[int, tuple[Nodes, Recording]] = {}
        self._tables: dict[int, Tensor] = {}  # what each number of rows was last given

    def prepare(self, num_rows: int) -> None:
        """Record the step of so many rows now, so that no reply waits for it."""
        self._step(num_rows)

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Queue one step of a decode batch."""
        nodes, recording = self._step(batch.num_tokens)
        buffers = nodes.buffers
        buffers.token_ids.copy_(batch.token_ids)
        buffers.positions.copy_(batch.positions)
        self._give_tables(buffers, batch.page_tables)
        self._maker.wake()
        recording.replay()
        return StepOutput(buffers.logits, buffers.greedy_ids)

    def check(self) -> None:
        """Raise DeviceError if a finished step went wrong."""
        self._maker.check()

    def _step(self, num_rows: int) -> tuple[Nodes, Recording]:
        """Return a number of rows' nodes, whose memory the recording uses, and the recording."""
        step = self._steps.get(num_rows)
        if step is None:
            nodes = self._maker.nodes(num_rows)
            step = nodes, self._maker.record(nodes.launch)
            self._steps[num_rows] = step
        return step

    def _give_tables(self, buffers: StepBuffers, tables: Tensor) -> None:
        """Copy the page tables; the runner makes a new tensor only when a page was added."""
        if self._tables.get(buffers.num_rows) is not tables:
            buffers.page_table[:, : tables.shape[1]].copy_(tables)
            self._tables[buffers.num_rows] = tables
