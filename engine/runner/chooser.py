"""The next tokens of a recorded step's rows, written where its next replay reads them.

The kernels of a set of options are recorded once they have served for a while and then replayed.
Knows fixed buffers, not what a step computes. Called by `engine.runner.model_runner`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.runner.sampler import RowSampler, Way, choose, numbers
from kernels.device.base import MEMORY_ERRORS, KernelError

RECORD_AFTER = 16  # steps in a row: recording takes as long as several steps
MAX_RECORDINGS = 4  # each holds the memory of its kernels
_REFUSALS: tuple[type[Exception], ...] = (KernelError, *MEMORY_ERRORS)
_log = logging.getLogger(__name__)


class Recording(Protocol):
    """Work of the device that was recorded."""

    def replay(self) -> None:
        """Queue it once more."""
        ...


Recorder = Callable[[Callable[[int], None]], Recording]
"""Records what a function of the raw stream queues; does not run it. Raises KernelError."""


class _Key(NamedTuple):
    """What a recording depends on: the addresses it uses, and the ways of its rows."""

    logits: int
    ids: int
    ways: tuple[Way, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class _Choice:
    """What is queued, on tensors that stay where they are."""

    logits: Tensor
    ids: Tensor
    uniforms: Tensor
    chosen: Tensor
    ways: tuple[Way, ...]

    def launch(self, _stream: int) -> None:
        """Queue it on the current stream."""
        choose(self.logits, self.ways, self.uniforms, self.ids)
        self.chosen.copy_(self.ids)


class Chooser:
    """Chooses tokens in fixed buffers. `record` = None: nothing is recorded."""

    def __init__(self, max_rows: int, device: torch.device, record: Recorder | None) -> None:
        self._record = record
        self._uniforms = torch.zeros(max_rows, dtype=torch.float64, device=device)
        self._chosen = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self._kept: OrderedDict[_Key, tuple[_Choice, Recording]] = OrderedDict()
        self._last: _Key | None = None
        self._times = 0  # that `_last` was asked for, one after another

    def choose(
        self, logits: Tensor, ids: Tensor, rows: Sequence[RowSampler], positions: Sequence[int]
    ) -> Tensor:
        """Put each row's token over the likeliest one in `ids`, and count it.

        Shapes: logits [B, V] float32, ids [B] int32, both where they were the last time for so many
            rows, or the kernels are recorded anew.
        Returns: the tokens, [B] int64, -1 for a row whose logits hold NaN. The next call overwrites
            them; one that raises has not yet.
        """
        count = len(rows)
        uniforms, chosen = self._uniforms[:count], self._chosen[:count]
        # Queued behind the step before, which reads the last ones.
        uniforms.copy_(numbers(rows, positions), non_blocking=True)
        ways = tuple(row.way for row in rows)
        key = _Key(logits.data_ptr(), ids.data_ptr(), ways)
        recording = self._recording(key)
        if recording is None:
            choice = _Choice(logits, ids, uniforms, chosen, ways)
            recording = self._recorded(key, choice)
            if recording is None:
                choice.launch(0)
                return chosen
        recording.replay()
        return chosen

    def close(self) -> None:
        """Let go of all recordings."""
        self._kept.clear()
        self._record = self._last = None

    def _recording(self, key: _Key) -> Recording | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][1]

    def _recorded(self, key: _Key, choice: _Choice) -> Recording | None:
        """Record a choice that has been asked for often enough; None = it has to be launched."""
        self._times = self._times + 1 if key == self._last else 1
        self._last = key
        if self._record is None or self._times <= RECORD_AFTER:
            return None
        try:
            recording = self._record(choice.launch)
        except _REFUSALS as problem:
            _log.warning("choosing tokens is not recorded: %s", problem)
            self._record = None
            return None
        # The memory that a recording uses lives as long as its choice.
        self._kept[key] = choice, recording
        if len(self._kept) > MAX_RECORDINGS:
            self._kept.popitem(last=False)
        return recording
