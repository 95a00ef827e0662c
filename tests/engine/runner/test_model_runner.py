"""The runner: rows and pages in, ids out, with a model whose answer is arithmetic."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from engine.cache.kv import KvPool
from engine.forward import ForwardBatch
from engine.models.spec import ModelSpec
from engine.protocol.errors import BudgetError, InternalError
from engine.protocol.messages import Sampling
from engine.runner import model_runner
from engine.runner.model_runner import ModelRunner
from engine.runner.work import RowWork
from kernels.device.base import DeviceMemoryError
from kernels.device.cpu import CpuDevice

VOCAB = 64
GREEDY = Sampling(temperature=0.0)


@dataclass
class Sizes:
    """What the runner reads of a spec."""

    vocab_size: int = VOCAB


@dataclass
class Arithmetic:
    """A model that answers 3 * token + position, and keeps the batches it saw."""

    spec: ModelSpec = field(default_factory=lambda: cast("ModelSpec", Sizes()))
    batches: list[ForwardBatch] = field(default_factory=list)
    broken: bool = False
    problem: Exception | None = None

    def forward(self, batch: ForwardBatch) -> Tensor:
        if self.problem:
            raise self.problem
        self.batches.append(batch)
        answers = (3 * batch.token_ids + batch.positions) % VOCAB
        logits = torch.zeros(batch.num_tokens, VOCAB)
        logits[torch.arange(batch.num_tokens), answers] = float("nan") if self.broken else 1.0
        return logits[list(batch.logit_rows)]


@pytest.fixture
def model() -> Arithmetic:
    return Arithmetic()


@pytest.fixture
def runner(model: Arithmetic) -> ModelRunner:
    device = CpuDevice(1 << 20)
    return ModelRunner(model, KvPool(1, 1, 2, torch.float32, device, 16, 16), device, 4)


def work(row: int, tokens: tuple[int, ...], start: int, **changes: Any) -> RowWork:
    """A work of a sequence whose pages are 10, 3, 7 from row 0 on, then one less per row."""
    fields = {"pages": (10 - row, 3 + row, 7 + row), "sample": True, **changes}
    return RowWork(row, tokens, start, **fields)


def test_prefill_when_chunked_then_slots_follow_the_pages(
    runner: ModelRunner, model: Arithmetic
) -> None:
    """A chunk over a page border lands in two pages; only the last chunk wants a token."""
    runner.open_row(0, GREEDY, 0, (1, 2))
    assert runner.launch("prefill", [work(0, tuple(range(14)), 0, sample=False)]).wait() == ()
    assert runner.launch("prefill", [work(0, (9, 8, 7, 6), 14)]).wait() == ((3 * 6 + 17) % VOCAB,)
    first, second = model.batches
    assert first.logit_rows == ()
    assert second.logit_rows == (3,)
    assert second.token_ids.tolist() == [9, 8, 7, 6]
    assert second.positions.tolist() == [14, 15, 16, 17]
    assert second.kv_slots.tolist() == [10 * 16 + 14, 10 * 16 + 15, 3 * 16, 3 * 16 + 1]
    assert second.page_tables.tolist() == [[10, 3, 7]]
    assert (second.context_lens, second.phase) == ((18,), "prefill")


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("start", [0, 1, 15, 16, 31, 37])
def test_prefill_when_it_begins_inside_a_page_then_each_token_has_its_place(
    runner: ModelRunner, model: Arithmetic, start: int, count: int
) -> None:
    """Pages lie in any order, and more of them may be there than the chunk reaches."""
    pages = (5, 2, 13, 0, 9, 1)
    tokens = tuple(range(VOCAB - count, VOCAB))
    runner.open_row(2, GREEDY, 0, tokens)
    runner.launch("prefill", [work(2, tokens, start, pages=pages, sample=False)])
    batch, places = model.batches[-1], range(start, start + count)
    assert batch.token_ids.tolist() == [*tokens]
    assert batch.positions.tolist() == [*places]
    assert batch.kv_slots.tolist() == [pages[at // 16] * 16 + at % 16 for at in places]
    assert batch.page_tables.tolist() == [[*pages]]
    assert (batch.context_lens, batch.logit_rows) == ((start + count,), ())
    indices = (batch.token_ids, batch.positions, batch.kv_slots, batch.page_tables)
    assert {tensor.dtype for tensor in indices} == {torch.int64}


def test_decode_when_no_tokens_are_given_then_the_last_ids_go_on(
    runner: ModelRunner, model: Arithmetic
) -> None:
    """Ids stay on the device: each row goes on from its own, in any order of rows."""
    for row, token in ((0, 5), (2, 11)):
        runner.open_row(row, GREEDY, 0, (token,))
        runner.launch("prefill", [work(row, (token,), 0)]).wait()
    assert runner.launch("decode", [work(2, (), 1), work(0, (), 1)]).wait() == (
        (3 * 33 + 1) % VOCAB,
        (3 * 15 + 1) % VOCAB,
    )
    batch = model.batches[-1]
    assert batch.token_ids.tolist() == [33, 15]
    assert batch.kv_slots.tolist() == [8 * 16 + 1, 10 * 16 + 1]
    assert batch.page_tables.tolist() == [[8, 5, 9], [10, 3, 7]]
    assert (batch.context_lens, batch.positions.tolist()) == ((2, 2), [1, 1])
    indices = (batch.token_ids, batch.positions, batch.kv_slots, batch.page_tables)
    assert {tensor.dtype for tensor in indices} == {torch.int64}


def test_decode_when_waited_late_then_the_same_ids(runner: ModelRunner) -> None:
    """The next step may be launched before the last one's ids are asked for."""
    runner.open_row(1, GREEDY, 0, (5,))
    steps = [runner.launch("prefill", [work(1, (5,), 0)])]
    steps += [runner.launch("decode", [work(1, (), 1 + i)]) for i in range(5)]
    got, token = [step.wait()[0] for step in steps], 5
    for position, seen in enumerate(got):
        token = (3 * token + position) % VOCAB
        assert seen == token


def test_decode_when_some_tokens_are_given_then_only_those_replace(
    runner: ModelRunner, model: Arithmetic
) -> None:
    """A row that was recomputed is fed its known token beside rows that go on."""
    for row in (0, 1):
        runner.open_row(row, GREEDY, 0, (7,))
        runner.launch("prefill", [work(row, (7,), 0)]).wait()
    runner.launch("decode", [work(0, (), 1), work(1, (40,), 1)]).wait()
    assert model.batches[-1].token_ids.tolist() == [21, 40]


def test_decode_when_pages_have_other_counts_then_tables_are_padded(
    runner: ModelRunner, model: Arithmetic
) -> None:
    """And a page that is added shows up in the next step."""
    for row in (0, 1):
        runner.open_row(row, GREEDY, 0, (7,))
    runner.launch("decode", [work(0, (1,), 3, pages=(4,)), work(1, (1,), 20, pages=(5, 6))])
    assert model.batches[-1].page_tables.tolist() == [[4, 0], [5, 6]]
    runner.launch("decode", [work(0, (1,), 16, pages=(4, 9)), work(1, (1,), 21, pages=(5, 6))])
    assert model.batches[-1].page_tables.tolist() == [[4, 9], [5, 6]]


def test_seed_when_a_reply_is_taken_up_again_then_it_goes_on_alike(runner: ModelRunner) -> None:
    """Recomputing a preempted row draws what it would have drawn: seed and position decide."""
    options = Sampling(temperature=3.0, frequency_penalty=0.5, repetition_penalty=1.1)

    def reply(first: tuple[int, ...], count: int, row: int) -> list[int]:
        runner.open_row(row, options, 77, (5, 6), first)
        tokens = (5, 6, *first)
        out = list(runner.launch("prefill", [work(row, tokens, 0)]).wait())
        for i in range(count - 1):
            out += runner.launch("decode", [work(row, (), len(tokens) + i)]).wait()
        runner.close_row(row)
        return out

    whole = reply((), 12, 0)
    assert len(set(whole)) > 4
    assert reply(tuple(whole[:5]), 7, 3) == whole[5:]


def test_wait_when_logits_are_nan_then_an_error(runner: ModelRunner, model: Arithmetic) -> None:
    """A broken model is a sentence, not a stream of nonsense; the device is not harmed by it."""
    model.broken = True
    runner.open_row(0, GREEDY, 0, (1,))
    step = runner.launch("prefill", [work(0, (1,), 0)])
    late = runner.launch("decode", [work(0, (), 1)])
    assert model.batches[-1].token_ids.min() >= 0
    for handle in (step, late):
        with pytest.raises(InternalError, match="not a number"):
            handle.wait()


@pytest.mark.parametrize(
    ("phase", "works"),
    [
        ("prefill", [work(0, (1,), 0), work(1, (1,), 0)]),
        ("prefill", [work(0, (), 0)]),
        ("prefill", [work(0, (1, 2), 47)]),
        ("prefill", [work(0, (1,), 0, pages=(16,))]),
        ("decode", [work(0, (1, 2), 0)]),
        ("decode", [work(2, (1,), 0)]),
        ("decode", [work(0, (1,), 16, pages=(3,))]),
        ("decode", [work(0, (1,), 0, pages=(16,))]),
        ("decode", []),
    ],
)
def test_launch_when_it_is_no_step_then_refused_before_it_runs(
    runner: ModelRunner, model: Arithmetic, phase: Any, works: list[RowWork]
) -> None:
    """A wrong page or row would overwrite another reply's memory."""
    runner.open_row(0, GREEDY, 0, (1,))
    runner.open_row(1, GREEDY, 0, (1,))
    with pytest.raises(ValueError, match=r"row|page|prefill|step"):
        runner.launch(phase, works)
    assert model.batches == []


def test_open_row_when_it_is_taken_then_refused(runner: ModelRunner) -> None:
    """Two replies never share a row; a closed one is free again."""
    runner.open_row(3, GREEDY, 0, (1,))
    for row in (3, 4, -1):
        with pytest.raises(ValueError, match="is not free"):
            runner.open_row(row, GREEDY, 0, (1,))
    runner.close_row(3)
    runner.open_row(3, GREEDY, 0, (1,))


@pytest.mark.parametrize(
    ("problem", "seen"),
    [
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            DeviceMemoryError,
        ),
        (torch.AcceleratorError("CUDA error: out of memory"), DeviceMemoryError),
        (torch.OutOfMemoryError("CUDA out of memory."), torch.OutOfMemoryError),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), torch.AcceleratorError),
        (RuntimeError("The size of tensor a must match"), RuntimeError),
    ],
)
def test_launch_when_a_library_of_the_card_is_out_of_memory_then_it_shows_as_memory(
    runner: ModelRunner, model: Arithmetic, problem: RuntimeError, seen: type[Exception]
) -> None:
    """So a step gives memory back and goes on; other failures stay what they are."""
    runner.open_row(0, GREEDY, 0, (1,))
    model.problem = problem
    with pytest.raises(seen) as caught:
        runner.launch("prefill", [work(0, (1,), 0)])
    assert type(caught.value) is seen
    model.problem = None
    assert runner.launch("prefill", [work(0, (1,), 0)]).wait() == (3,)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_launch_when_no_memory_is_left_for_chosen_ids_then_never_asked_again(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, phase: Any
) -> None:
    """They are noted and counted by then: a second launch would go on from the wrong token."""

    def refuse(*_: Any) -> None:
        raise DeviceMemoryError("no pinned memory")

    runner.open_row(0, GREEDY, 0, (5,))
    monkeypatch.setattr(model_runner, "_Step", refuse)
    with pytest.raises(BudgetError, match="no pinned memory"):
        runner.launch(phase, [work(0, (5,), 0)])
