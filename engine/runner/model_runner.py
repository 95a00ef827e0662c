"""Runs one step: builds the batch, runs the model, samples on the device.

Knows rows and pages, not requests: who owns a row, when it ends and what its text says is the
scheduler's. Called by `engine.scheduler` on one thread.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import PAGE_TOKENS, ForwardBatch
from engine.models.base import Model
from engine.protocol.errors import BudgetError, InternalError
from engine.protocol.messages import Sampling
from engine.runner.chooser import Chooser, Recording
from engine.runner.sampler import Past, RowSampler, sample, take_the_likeliest
from engine.runner.work import RowWork
from kernels.device.base import MEMORY_ERRORS, Device, memory_refusals


class StepHandle(Protocol):
    """A step under way."""

    def wait(self) -> tuple[int, ...]:
        """Return the sampled id of each work with `sample`, in their order.

        Raises: InternalError if the model's output was not a number.
        """
        ...


class StepOutput(NamedTuple):
    """What a decode program leaves.

    Attributes:
        logits: [R, V] float32.
        greedy_ids: [R], each row's likeliest id, -1 if a logit is not a number.
        next_ids: [R], the ids that `go_on` begins with: the likeliest, unless others are written
            over them. None = it cannot go on.
    """

    logits: Tensor
    greedy_ids: Tensor
    next_ids: Tensor | None = None


class DecodeProgram(Protocol):
    """A whole decode step that needs no Python between its kernels."""

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Queue one step; what it returns is overwritten by the next one."""
        ...

    def go_on(self, page_tables: Tensor) -> StepOutput | None:
        """Queue the last step's rows once more, each with its `next_ids`, one place on.

        Shapes: page_tables [B, P], of the same rows in the same order.
        Returns: None, and nothing is queued, if the last step's buffers cannot serve as they are.
        """
        ...

    def record(self, launch: Callable[[int], None]) -> Recording:
        """Record what `launch` queues after a step. Raises KernelError where it cannot be."""
        ...

    def check(self) -> None:
        """Raise DeviceError if a finished step went wrong on the device."""
        ...


class _Ahead(NamedTuple):
    """The last step's rows if each was sampled: what goes on with them, and ids not yet noted.

    `positions` are the next ones, () if the program's buffers cannot go on.
    """

    rows: tuple[int, ...]
    positions: tuple[int, ...]
    ids: Tensor


class _Step:
    """A step whose ids are on their way from the device; `check` sees what went wrong there."""

    def __init__(self, ids: Tensor, device: Device, check: Callable[[], None]) -> None:
        self._ids = ids.to("cpu", non_blocking=True, copy=True)  # the next step overwrites them
        self._arrived, self._check = device.record(), check

    def wait(self) -> tuple[int, ...]:
        self._arrived.synchronize()
        self._check()
        ids: tuple[int, ...] = tuple(self._ids.tolist())
        if any(token < 0 for token in ids):
            raise InternalError(
                "The model's output is not a number.",
                "The weights may be damaged: verify the model.",
            )
        return ids


class ModelRunner:
    """One model with its KV pool, and the device state of up to `max_rows` replies.

    `program` runs decode steps in the model's place.

    Attributes:
        latency: steps that may be launched before the last one's ids are waited for.
    """

    latency: Literal[0, 1]

    def __init__(
        self,
        model: Model,
        kv: KvPool,
        device: Device,
        max_rows: int,
        program: DecodeProgram | None = None,
    ) -> None:
        self._model, self._kv, self._program = model, kv, program
        self._seam, self._device = device, device.torch_device
        self.latency = 0 if program is None else 1
        self._rows: list[RowSampler | None] = [None] * max_rows
        self._pasts = [Past(model.spec.vocab_size, self._device) for _ in self._rows]
        self._chooser = Chooser(max_rows, self._device, None if program is None else program.record)
        self._last_ids = torch.zeros(max_rows, dtype=torch.int64, device=self._device)
        self._ahead: _Ahead | None = None
        self._table_key: tuple[tuple[int, ...], ...] = ()
        self._tables = torch.zeros(0, 0, dtype=torch.int64)

    @property
    def max_rows(self) -> int:
        """Rows that can be open at once."""
        return len(self._rows)

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states, as of keys and values."""
        return self._kv.dtype

    @memory_refusals()
    def open_row(
        self,
        row: int,
        sampling: Sampling,
        seed: int,
        prompt_ids: Sequence[int],
        output_ids: Sequence[int] = (),
    ) -> None:
        """Begin a reply in a free row.

        `output_ids` are tokens that were sampled earlier (a reply that is taken up again).

        Raises: ValueError if the row is open or does not exist; one of MEMORY_ERRORS, when it is
            still free.
        """
        if not 0 <= row < len(self._rows) or self._rows[row] is not None:
            raise ValueError(f"row {row} of {len(self._rows)} is not free")
        opened = RowSampler(sampling, seed, self._pasts[row])
        opened.note_prompt(prompt_ids)
        opened.note_output(output_ids)
        self._rows[row] = opened

    def close_row(self, row: int) -> None:
        """End a reply; a row that is not open stays so."""
        self._rows[row] = None

    def close(self) -> None:
        """Let go of model and recordings, so that their memory can go back; the last call."""
        self._chooser.close()
        del self._model, self._kv, self._program
        self._ahead = None
        self._rows.clear()
        self._pasts.clear()

    @memory_refusals()
    @torch.inference_mode()
    def launch(self, phase: Literal["prefill", "decode"], works: Sequence[RowWork]) -> StepHandle:
        """Run one step: one prompt chunk, or one token of each of several rows.

        Raises: ValueError for works that are no such step, when nothing has run; one of
            MEMORY_ERRORS.
        """
        rows = [self._check(phase, work) for work in works]
        if not works or (phase == "prefill" and len(works) != 1):
            raise ValueError(f"{len(works)} works are no {phase} step")
        if (again := self._go_on(works, rows)) is not None:
            return again
        batch = self._batch(phase, works)
        sampled = [i for i, work in enumerate(works) if work.sample]
        chosen = [rows[i] for i in sampled]
        positions = [works[i].context_tokens for i in sampled]
        if phase == "decode" and self._program is not None:
            output = self._program.run(batch)
            if len(sampled) == len(works):
                return self._look_ahead(works, rows, output)
            ids = self._pick(output, sampled, chosen, positions)
        else:
            logits = self._model.forward(batch)
            ids = sample(logits, chosen, positions) if sampled else self._last_ids[:0]
        if not sampled:
            return self._step(ids)
        places = torch.tensor([works[i].row for i in sampled]).to(self._device, non_blocking=True)
        self._last_ids.index_copy_(0, places, ids.clamp(min=0))
        return self._step(ids)

    def _go_on(self, works: Sequence[RowWork], rows: Sequence[RowSampler]) -> _Step | None:
        """Queue the last decode step once more if that is what `works` ask; else tidy up after it.

        Then no token is copied, and only rows that do not take their likeliest need more kernels
        than the program's.
        """
        ahead = self._ahead
        if ahead is None or self._program is None:
            return None
        asked = tuple(work.row for work in works), tuple(work.start for work in works)
        goes_on = all(work.sample and not work.tokens for work in works)
        if goes_on and asked == (ahead.rows, ahead.positions):
            output = self._program.go_on(self._page_tables(works))
            if output is not None:
                # Should choosing fail: the buffers are a place further, but the old ids are kept.
                self._ahead = ahead._replace(positions=())
                return self._look_ahead(works, rows, output)
        places = torch.tensor(ahead.rows).to(self._device, non_blocking=True)
        self._last_ids.index_copy_(0, places, ahead.ids.to(torch.int64).clamp(min=0))
        self._ahead = None  # last: a device without memory is asked again
        return None

    def _look_ahead(
        self, works: Sequence[RowWork], rows: Sequence[RowSampler], output: StepOutput
    ) -> _Step:
        """Take a token of each row of a program's step, so that the next one can go on from it."""
        positions = tuple(work.context_tokens for work in works)
        logits, ids, next_ids = output
        if not take_the_likeliest(rows):
            if next_ids is None:
                ids = sample(logits, rows, positions)
            else:
                ids = self._chooser.choose(logits, next_ids, rows, positions)
        self._ahead = _Ahead(tuple(work.row for work in works), positions, ids)
        return self._step(ids)

    def _step(self, ids: Tensor) -> _Step:
        """Bring ids on their way. They are chosen and counted: nobody may ask for them once more.

        Raises: BudgetError if the host has no memory for them, which is no MEMORY_ERROR.
        """
        check = _nothing_to_check if self._program is None else self._program.check
        try:
            return _Step(ids, self._seam, check)
        except MEMORY_ERRORS as problem:
            raise BudgetError(
                f"No memory was left for the tokens of a step: {problem}.",
                "Close other programs, or make the expert cache or the context smaller.",
            ) from problem

    def _pick(
        self,
        output: StepOutput,
        sampled: Sequence[int],
        rows: Sequence[RowSampler],
        positions: Sequence[int],
    ) -> Tensor:
        """Choose for some of a program's rows."""
        if not sampled:
            return self._last_ids[:0]
        wanted = torch.tensor(sampled).to(self._device, non_blocking=True)
        if take_the_likeliest(rows):
            return output.greedy_ids[wanted].to(torch.int64)
        return sample(output.logits[wanted], rows, positions)

    def _check(self, phase: str, work: RowWork) -> RowSampler:
        sampler = self._rows[work.row]
        if sampler is None:
            raise ValueError(f"row {work.row} is not open")
        if phase == "decode" and work.num_tokens != 1:
            raise ValueError(f"row {work.row} decodes {work.num_tokens} tokens")
        if phase == "prefill" and not work.tokens:
            raise ValueError(f"row {work.row} has an empty prompt chunk")
        if len(work.pages) * PAGE_TOKENS < work.context_tokens:
            raise ValueError(
                f"row {work.row} has {len(work.pages)} pages for {work.context_tokens} tokens"
            )
        return sampler

    def _batch(self, phase: Literal["prefill", "decode"], works: Sequence[RowWork]) -> ForwardBatch:
        return self._prompt_batch(works[0]) if phase == "prefill" else self._reply_batch(works)

    def _prompt_batch(self, work: RowWork) -> ForwardBatch:
        """Build a chunk's batch. Thousands of tokens: Python touches none of them one by one."""
        first, end = work.start, work.context_tokens
        pages = np.array(work.pages[first // PAGE_TOKENS : -(-end // PAGE_TOKENS)], np.int64)
        slots = (pages[:, np.newaxis] * PAGE_TOKENS + np.arange(PAGE_TOKENS)).reshape(-1)
        packed = np.empty((3, work.num_tokens), np.int64)
        packed[0] = np.fromiter(work.tokens, np.int64, work.num_tokens)
        packed[1] = np.arange(first, end)
        packed[2] = slots[first % PAGE_TOKENS :][: work.num_tokens]
        # one copy to the device for all of them
        ids, at, into = torch.from_numpy(packed).to(self._device, non_blocking=True).unbind(0)
        return ForwardBatch(
            phase="prefill",
            token_ids=ids,
            positions=at,
            kv_slots=into,
            page_tables=self._page_tables([work]),
            context_lens=(end,),
            logit_rows=(work.num_tokens - 1,) if work.sample else (),
        )

    def _reply_batch(self, works: Sequence[RowWork]) -> ForwardBatch:
        """Build a decode step's batch; few rows, for which a list is the shortest way."""
        ids = [token for work in works for token in work.tokens or (-1,)]
        at = [work.start for work in works]
        slots = [
            work.pages[work.start // PAGE_TOKENS] * PAGE_TOKENS + work.start % PAGE_TOKENS
            for work in works
        ]
        rows = [work.row for work in works]
        # one copy to the device for all of them
        packed = torch.tensor([ids, at, slots, rows]).to(self._device, non_blocking=True)
        given, positions, into, row_ids = packed.unbind(0)
        if -1 in ids:
            last = self._last_ids.index_select(0, row_ids)
            given = (
                last if not any(work.tokens for work in works) else given.where(given >= 0, last)
            )
        return ForwardBatch(
            phase="decode",
            token_ids=given,
            positions=positions,
            kv_slots=into,
            page_tables=self._page_tables(works),
            context_lens=tuple(work.context_tokens for work in works),
            logit_rows=tuple(i for i, work in enumerate(works) if work.sample),
        )

    def _page_tables(self, works: Sequence[RowWork]) -> Tensor:
        """Return [B, P] int64; made anew only when a page was added, every 16th token."""
        key = tuple(work.pages for work in works)
        if key != self._table_key:
            if max(map(max, key)) >= self._kv.num_pages:
                raise ValueError(f"a page lies beyond the {self._kv.num_pages} there are")
            width = max(map(len, key))
            padded = [pages + (0,) * (width - len(pages)) for pages in key]
            tables = torch.from_numpy(np.array(padded, np.int64))
            self._tables = tables.to(self._device, non_blocking=True)
            self._table_key = key
        return self._tables


def _nothing_to_check() -> None:
    """A model's own forward raises where it fails."""
