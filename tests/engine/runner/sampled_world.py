"""A made-up model on the plain way and on recorded steps, side by side.

Its logits come from a table by token, position and page, so that a wrong id, place or page table
shows as other tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import PAGE_TOKENS, ForwardBatch
from engine.models.spec import ModelSpec
from engine.protocol.messages import Sampling
from engine.runner.captured import StepBuffers
from engine.runner.model_runner import ModelRunner, StepHandle
from engine.runner.work import RowWork
from kernels.device.cpu import CpuDevice
from kernels.reference.sampling import greedy
from tests.engine.runner.test_captured import Machine
from tests.engine.runner.test_model_runner import VOCAB, Sizes

NUM_ROWS = 4
NUM_PAGES = 32
BROKEN = 60  # after this token the logits are NaN, in the test that asks for it
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(3)) * 2
GREEDY = Sampling(temperature=0.0)
USUAL = Sampling(temperature=0.7, top_p=0.8, top_k=20)
SAMPLINGS = (
    GREEDY,
    USUAL,
    Sampling(temperature=1.3),
    Sampling(temperature=0.9, top_p=0.7),
    Sampling(temperature=1.1, min_p=0.05),
    Sampling(temperature=0.9, top_k=12, repetition_penalty=1.4),
    Sampling(temperature=0.9, top_k=12, repetition_penalty=1.2),
    Sampling(temperature=0.0, presence_penalty=1.5, frequency_penalty=0.5),
)


def logits_of(tokens: Tensor, positions: Tensor, pages: Tensor, broken: bool = False) -> Tensor:
    """What the model answers; [T] each -> [T, V]."""
    logits = TABLE[(3 * tokens.long() + positions.long() + 7 * pages.long()) % VOCAB].clone()
    if broken:
        logits[tokens == BROKEN] = float("nan")
    return logits


@dataclass
class Model:
    """The plain way."""

    spec: ModelSpec = field(default_factory=lambda: cast("ModelSpec", Sizes()))

    def forward(self, batch: ForwardBatch) -> Tensor:
        at = (batch.positions // PAGE_TOKENS).unsqueeze(1)
        tables = batch.page_tables.expand(batch.num_tokens, -1)
        pages = tables.gather(1, at).squeeze(1)
        return logits_of(batch.token_ids, batch.positions, pages)[list(batch.logit_rows)]


@dataclass
class Steps(Machine):
    """The recorded way."""

    one_memory: bool = True  # for the ids that a step leaves and those that it begins with
    broken_token: bool = False

    def nodes(self, rows: int) -> "Nodes":
        self.built.append(rows)
        ids, positions, likeliest = (torch.zeros(rows, dtype=torch.int32) for _ in range(3))
        table = torch.zeros(rows, 8, dtype=torch.int32)
        likeliest = ids if self.one_memory else likeliest
        return Nodes(self, StepBuffers(ids, positions, table, torch.zeros(rows, VOCAB), likeliest))

    @property
    def recordings(self) -> int:
        """Made, those of steps included."""
        return self.events.count("record")


@dataclass
class Nodes:
    machine: Steps
    buffers: StepBuffers

    def launch(self, stream: int) -> None:
        one = self.buffers
        self.machine.events.append("step")
        at = (one.positions.long() // PAGE_TOKENS).unsqueeze(1)
        pages = one.page_table.gather(1, at).squeeze(1)
        one.logits.copy_(logits_of(one.token_ids, one.positions, pages, self.machine.broken_token))
        one.greedy_ids.copy_(greedy(one.logits))
        one.token_ids.copy_(one.greedy_ids)
        one.positions.add_(1)


def runner_of(machine: Steps | None) -> ModelRunner:
    device = CpuDevice(1 << 20)
    pool = KvPool(1, 1, 2, torch.float32, device, NUM_PAGES, NUM_PAGES)
    program = None if machine is None else machine.program()
    return ModelRunner(cast("Any", Model()), pool, device, NUM_ROWS, program)


@dataclass
class Reply:
    """What the scheduler knows of a row."""

    tokens: list[int]
    pages: tuple[int, ...]


class Pair:
    """Both ways side by side. The recorded one's ids are taken one step late."""

    def __init__(self, machine: Steps) -> None:
        self.machine = machine
        self.plain, self.recorded = runner_of(None), runner_of(machine)
        self.replies: dict[int, Reply] = {}
        self._late: tuple[StepHandle, tuple[int, ...]] | None = None

    def open(self, row: int, sampling: Sampling, seed: int, prompt: tuple[int, ...]) -> None:
        """Begin a reply and read its prompt in two chunks; whoever had the row is cancelled."""
        for runner in (self.plain, self.recorded):
            runner.close_row(row)
            runner.open_row(row, sampling, seed, prompt)
        self.replies[row] = Reply(list(prompt), (row, row + 4, row + 8))
        self.fill(row, sample=True)

    def fill(self, row: int, sample: bool) -> None:
        """Read what the row has so far; without `sample` all but its last token."""
        reply = self.replies[row]
        tokens = tuple(reply.tokens if sample else reply.tokens[:-1])
        for part in (slice(0, len(tokens) // 2), slice(len(tokens) // 2, None)):
            if tokens[part]:
                wanted = sample and part.stop is None
                self.launch(
                    "prefill", [RowWork(row, tokens[part], part.start, reply.pages, wanted)]
                )

    def preempt(self, row: int) -> None:
        """Give the row's pages away and come back on others; its last id is still with it."""
        reply = self.replies[row]
        reply.pages = tuple((page + 12) % NUM_PAGES for page in reply.pages)
        self.fill(row, sample=False)

    def decode(
        self, rows: Sequence[int], given: bool = False, unsampled: int | None = None
    ) -> None:
        """One token of each row: from its last id, or from a given one."""
        works = []
        for row in rows:
            reply = self.replies[row]
            if len(reply.tokens) > len(reply.pages) * PAGE_TOKENS - 2:
                continue
            if given:
                reply.tokens[-1] = (reply.tokens[-1] + 1) % VOCAB
            tokens = (reply.tokens[-1],) if given or row == unsampled else ()
            place = len(reply.tokens) - 1
            pages = reply.pages[: max(1, place // PAGE_TOKENS + 1)]
            works.append(RowWork(row, tokens, place, pages, row != unsampled))
        if works:
            self.launch("decode", works)

    def launch(self, phase: Any, works: list[RowWork]) -> None:
        """Run one step on both ways."""
        handle = self.recorded.launch(phase, works)
        self.settle()
        ids = self.plain.launch(phase, works).wait()
        self._late = handle, ids
        for work, token in zip([work for work in works if work.sample], ids, strict=True):
            self.replies[work.row].tokens.append(token)

    def settle(self) -> None:
        """Take the ids that are still on their way."""
        if self._late is not None:
            handle, ids = self._late
            self._late = None
            assert handle.wait() == ids
