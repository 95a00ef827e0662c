"""Decode steps that were recorded once and are replayed: one recording per number of rows.

A number whose kernels are still being compiled is put together from smaller recordings: a row's
bits do not depend on the rows beside it.
Knows fixed buffers and when to record, not what a step computes: that is a `Nodes`, built by the
loader from the model's weights. Implements `engine.runner.model_runner.DecodeProgram`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.forward import ForwardBatch
from engine.runner.chooser import Recorder, Recording
from engine.runner.model_runner import StepOutput
from kernels.device.base import KernelError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """What a recorded step reads and writes; addresses stay the same from replay to replay.

    Attributes:
        token_ids, positions: int32 [R]; a step leaves in them what the next one of the same rows
            begins with, if each takes its likeliest token. Another may be put in its place.
        page_table: int32 [R, P]; a row's unused tail holds any valid page.
        logits: float32 [R, V].
        greedy_ids: int32 [R]; the likeliest id of each row, -1 if a logit is not a number. May be
            the same memory as token_ids.
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


@dataclass(frozen=True, slots=True)
class StepMaker:
    """How steps come to be and what surrounds them.

    Attributes:
        nodes: builds the kernels of a number of rows; may take seconds unless they are ready.
        is_ready: whether the kernels of a number of rows are there; those of one row always are.
        record: records what it is given.
        wake: called right before each step with the rows of the recordings it replays (CPU workers
            may sleep).
        check: raises DeviceError if a finished step went wrong.
    """

    nodes: Callable[[int], Nodes]
    is_ready: Callable[[int], bool]
    record: Recorder
    wake: Callable[[Sequence[int]], None]
    check: Callable[[], None]


class _Tables(NamedTuple):
    """Page tables of a batch, and the row of it from which on they were taken."""

    whole: Tensor
    first: int


class CapturedDecode:
    """Replays recorded steps."""

    def __init__(self, maker: StepMaker) -> None:
        self._maker = maker
        self._steps: dict[int, tuple[Nodes, Recording]] = {}
        self._tables: dict[int, _Tables] = {}  # what each number of rows was last given
        self._whole_rows = 0  # of the last step, if one recording served it
        self._refused: set[int] = set()  # numbers of rows that cannot be recorded here

    def prepare(self, num_rows: int) -> None:
        """Record the step of so many rows now, so that no reply waits for it."""
        self._step(num_rows)

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Queue one step of a decode batch."""
        groups = self._recorded_groups(batch.num_tokens)
        self._whole_rows = groups[0] if len(groups) == 1 else 0
        steps = [self._step(rows) for rows in groups]
        self._maker.wake(groups)
        parts: list[tuple[Tensor, Tensor]] = []
        first = 0
        for rows, (nodes, recording) in zip(groups, steps, strict=True):
            self._give(nodes.buffers, batch, first)
            recording.replay()
            if rows == batch.num_tokens:
                return _output(nodes.buffers)
            # the next group may overwrite it
            parts.append((nodes.buffers.logits.clone(), nodes.buffers.greedy_ids.clone()))
            first += rows
        return StepOutput(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def go_on(self, page_tables: Tensor) -> StepOutput | None:
        """Queue the last step once more, with what it left in its buffers."""
        if self._whole_rows != page_tables.shape[0]:
            return None
        nodes, recording = self._step(self._whole_rows)
        self._give_tables(nodes.buffers, page_tables, 0)
        self._maker.wake((self._whole_rows,))
        recording.replay()
        return _output(nodes.buffers)

    def record(self, launch: Callable[[int], None]) -> Recording:
        """Record other work of the device."""
        return self._maker.record(launch)

    def check(self) -> None:
        """Raise DeviceError if a finished step went wrong."""
        self._maker.check()

    def close(self) -> None:
        """Let go of all recordings and of what they run on."""
        self._steps.clear()
        self._tables.clear()

    def _recorded_groups(self, num_rows: int) -> tuple[int, ...]:
        """Cut a step into numbers of rows that are recorded.

        Raises: KernelError if not even one row can be.
        """
        while True:
            groups = self._groups(num_rows)
            try:
                for rows in groups:
                    self._step(rows)
            except KernelError as problem:
                if rows == 1:
                    raise
                _log.warning("a step of %d rows cannot be recorded", rows, exc_info=problem)
                self._refused.add(rows)
            else:
                return groups

    def _groups(self, num_rows: int) -> tuple[int, ...]:
        """Cut a step into numbers of rows whose kernels are there, the largest first."""
        groups: list[int] = []
        while (left := num_rows - sum(groups)) > 0:
            groups.append(next(rows for rows in range(left, 0, -1) if self._is_ready(rows)))
        return tuple(groups)

    def _is_ready(self, num_rows: int) -> bool:
        if num_rows == 1 or num_rows in self._steps:
            return True
        return num_rows not in self._refused and self._maker.is_ready(num_rows)

    def _step(self, num_rows: int) -> tuple[Nodes, Recording]:
        """Return a number of rows' nodes, whose memory the recording uses, and the recording."""
        step = self._steps.get(num_rows)
        if step is None:
            nodes = self._maker.nodes(num_rows)
            step = nodes, self._maker.record(nodes.launch)
            self._steps[num_rows] = step
        return step

    def _give(self, buffers: StepBuffers, batch: ForwardBatch, first: int) -> None:
        """Copy the rows from `first` on."""
        part = slice(first, first + buffers.num_rows)
        buffers.token_ids.copy_(batch.token_ids[part])
        buffers.positions.copy_(batch.positions[part])
        self._give_tables(buffers, batch.page_tables, first)

    def _give_tables(self, buffers: StepBuffers, tables: Tensor, first: int) -> None:
        """Copy page tables if they changed: the tensor is new then."""
        rows = buffers.num_rows
        last = self._tables.get(rows)
        if last is None or last.whole is not tables or last.first != first:
            buffers.page_table[:, : tables.shape[1]].copy_(tables[first : first + rows])
            self._tables[rows] = _Tables(tables, first)


def _output(buffers: StepBuffers) -> StepOutput:
    return StepOutput(buffers.logits, buffers.greedy_ids, buffers.token_ids)
