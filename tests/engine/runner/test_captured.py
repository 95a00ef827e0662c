"""Recorded decode steps, with a recorder that replays plain Python."""

import weakref
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.kv import KvPool
from engine.protocol.errors import DeviceError, InternalError
from engine.protocol.messages import Sampling
from engine.runner.captured import CapturedDecode, StepBuffers, StepMaker
from engine.runner.model_runner import ModelRunner
from kernels.device.base import KernelError
from kernels.device.cpu import CpuDevice
from tests.engine.runner.test_model_runner import GREEDY, VOCAB, Arithmetic, work

NOT_A_NUMBER = 60  # the token after which the made-up step yields NaN


@dataclass
class Machine:
    """Steps that answer 3 * token + position like `Arithmetic`, and what happened around them."""

    built: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    tables: list[list[list[int]]] = field(default_factory=list)
    broken: str = ""
    compiling: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def nodes(self, rows: int) -> "Nodes":
        self.built.append(rows)
        numbers = [torch.zeros(rows, dtype=torch.int32) for _ in range(3)]
        table = torch.zeros(rows, 8, dtype=torch.int32)
        return Nodes(self, StepBuffers(*numbers[:2], table, torch.zeros(rows, VOCAB), numbers[2]))

    def record(self, launch) -> "Tape":
        self.events.append("record")
        made = launch.__self__
        if isinstance(made, Nodes) and made.buffers.num_rows in self.refused:
            raise KernelError("A step cannot be recorded.")
        return Tape(launch)

    def check(self) -> None:
        if self.broken:
            raise DeviceError(self.broken)

    def program(self) -> CapturedDecode:
        return CapturedDecode(
            StepMaker(
                self.nodes,
                lambda rows: rows not in self.compiling,
                self.record,
                lambda rows: self.events.append(f"wake {rows}"),
                self.check,
            )
        )


@dataclass
class Nodes:
    machine: Machine
    buffers: StepBuffers

    def launch(self, stream: int) -> None:
        one = self.buffers
        self.machine.events.append("step")
        self.machine.tables.append(one.page_table.tolist())
        answers = (3 * one.token_ids + one.positions) % VOCAB
        one.logits.zero_()
        one.logits[torch.arange(one.num_rows), answers.long()] = 1.0
        one.greedy_ids.copy_(answers.where(one.token_ids != NOT_A_NUMBER, -1))
        one.token_ids.copy_(one.greedy_ids)
        one.positions.add_(1)


class Tape:
    """A recording as a graph is one: it keeps nothing alive of what it runs on."""

    def __init__(self, launch) -> None:
        self._nodes = weakref.ref(launch.__self__)

    def replay(self) -> None:
        nodes = self._nodes()
        assert nodes is not None, "the memory of a recorded step is gone"
        nodes.launch(0)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def runner_of(machine: Machine, max_rows: int = 4, open_rows: int = 0) -> ModelRunner:
    """A runner of the machine's steps; its first rows are open, each prompted with its number."""
    device = CpuDevice(1 << 20)
    pool = KvPool(1, 1, 2, torch.float32, device, 16, 16)
    runner = ModelRunner(Arithmetic(), pool, device, max_rows, machine.program())
    for row in range(open_rows):
        runner.open_row(row, GREEDY, 0, (row,))
    return runner


@pytest.fixture
def runner(machine: Machine) -> ModelRunner:
    return runner_of(machine)


def test_decode_when_recorded_then_the_model_serves_prompts_only(
    runner: ModelRunner, machine: Machine
) -> None:
    """A recording per number of rows, made once; workers are woken before each replay."""
    for row, token in ((0, 5), (2, 11)):
        runner.open_row(row, GREEDY, 0, (token,))
        runner.launch("prefill", [work(row, (token,), 0)]).wait()
    assert machine.events == []
    assert runner.launch("decode", [work(0, (), 1)]).wait() == ((3 * 15 + 1) % VOCAB,)
    assert runner.launch("decode", [work(0, (), 2)]).wait() == ((3 * 46 + 2) % VOCAB,)
    both = runner.launch("decode", [work(2, (), 1), work(0, (), 3)]).wait()
    assert both == ((3 * 33 + 1) % VOCAB, (3 * ((3 * 46 + 2) % VOCAB) + 3) % VOCAB)
    assert machine.built == [1, 2]
    one, two = ["wake (1,)", "step"], ["wake (2,)", "step"]
    assert machine.events == ["record", *one * 2, "record", *two]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(2, 8)), st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_decode_while_kernels_are_compiled_then_smaller_recordings_give_the_same(
    compiling: set[int], sizes: list[int]
) -> None:
    """No reply waits for a compiler; each row gets its own token, position and pages."""
    machine = Machine(compiling=compiling)
    runner = runner_of(machine, 8, open_rows=8)
    for position, rows in enumerate(sizes):
        machine.tables.clear()
        works = [work(row, (7 * row,), position, pages=(row + 2,)) for row in range(rows)]
        ids = runner.launch("decode", works).wait()
        assert ids == tuple((21 * row + position) % VOCAB for row in range(rows))
        assert [table[0] for group in machine.tables for table in group] == [*range(2, rows + 2)]
    assert not compiling & set(machine.built)
    if sizes[-1] not in compiling:
        assert len(machine.tables) == 1


def test_rows_that_cannot_be_recorded_then_served_by_fewer_at_a_time() -> None:
    """Asked once only; a card that records not even one row says so (case E-06)."""
    machine = Machine(refused={4, 2})
    runner = runner_of(machine, open_rows=4)
    works = [work(row, (7 * row,), 0, pages=(row + 2,)) for row in range(4)]
    for _ in range(2):
        assert runner.launch("decode", works).wait() == tuple(21 * row % VOCAB for row in range(4))
    assert machine.built == [4, 3, 1]
    with pytest.raises(KernelError, match="cannot be recorded"):
        Machine(refused={1}).program().prepare(1)


def test_rows_when_their_kernels_are_there_then_one_recording_serves_them() -> None:
    """The pieces are for the meantime only."""
    machine = Machine(compiling={2, 3})
    runner = runner_of(machine, open_rows=3)
    for there in ((), (2,), (3,)):
        machine.compiling -= set(there)
        runner.launch("decode", [work(row, (row,), 1) for row in range(3)]).wait()
    assert [one for one in machine.events if one.startswith("wake")] == [
        "wake (1, 1, 1)",
        "wake (2, 1)",
        "wake (3,)",
    ]


def test_decode_when_launched_ahead_then_ids_arrive_one_step_late(runner: ModelRunner) -> None:
    """The scheduler may launch a step before it has taken the ids of the one before."""
    assert runner.latency == 1
    runner.open_row(1, GREEDY, 0, (5,))
    steps = [runner.launch("prefill", [work(1, (5,), 0)])]
    steps += [runner.launch("decode", [work(1, (), 1 + i)]) for i in range(5)]
    token = 5
    for position, step in enumerate(steps):
        token = (3 * token + position) % VOCAB
        assert step.wait() == (token,)


def test_tables_when_a_page_is_added_then_the_step_sees_it(
    runner: ModelRunner, machine: Machine
) -> None:
    """Tables are copied only when they changed, and never stay those of another batch."""
    runner.open_row(0, GREEDY, 0, (1,))
    for start, pages in ((14, (4,)), (15, (4,)), (16, (4, 9)), (17, (4, 9))):
        runner.launch("decode", [work(0, (1,), start, pages=pages)])
    assert [rows[0][:2] for rows in machine.tables] == [[4, 0], [4, 0], [4, 9], [4, 9]]


def test_sampling_when_rows_differ_then_each_keeps_its_way(runner: ModelRunner) -> None:
    """A row with a penalty or a temperature is sampled from the logits, not taken as it is."""
    runner.open_row(0, GREEDY, 0, (5,))
    runner.open_row(1, Sampling(temperature=0.0, presence_penalty=2.0), 0, (5,))
    works = [work(0, (5,), 1), work(1, (5,), 1)]
    assert runner.launch("decode", works).wait() == (16, 16)
    plain, penalised = runner.launch("decode", works).wait()
    assert plain == 16
    assert penalised != 16


def test_sampling_when_only_some_rows_want_a_token_then_only_theirs_come(
    runner: ModelRunner,
) -> None:
    """A recomputed row runs without being sampled."""
    for row in (0, 1):
        runner.open_row(row, GREEDY, 0, (5,))
    works = [work(0, (5,), 1, sample=False), work(1, (7,), 1)]
    assert runner.launch("decode", works).wait() == (22,)
    assert runner.launch("decode", [work(0, (5,), 2, sample=False)]).wait() == ()


def test_wait_when_a_step_failed_on_the_device_then_no_id_is_believed(
    runner: ModelRunner, machine: Machine
) -> None:
    """A dead CPU pool is an error with its sentence, never a wrong word."""
    runner.open_row(0, GREEDY, 0, (5,))
    step = runner.launch("decode", [work(0, (5,), 1)])
    machine.broken = "The CPU workers did not answer for 2 s."
    with pytest.raises(DeviceError, match="did not answer"):
        step.wait()


def test_wait_when_an_id_is_negative_then_an_error(runner: ModelRunner) -> None:
    """NaN logits end the reply instead of the process."""
    runner.open_row(0, GREEDY, 0, (5,))
    step = runner.launch("decode", [work(0, (NOT_A_NUMBER,), 1)])
    with pytest.raises(InternalError, match="not a number"):
        step.wait()


def test_decode_when_rows_come_go_and_return_then_each_keeps_its_last_id(
    runner: ModelRunner, machine: Machine
) -> None:
    """Steps of the same greedy rows go on in their buffers; whatever breaks the run must not show.

    Other rows, another order, a prompt, a given token, a row that was opened anew.
    """
    expected: dict[int, tuple[int, int]] = {}  # row to last id and position of the next token

    def prompt(row: int, token: int) -> None:
        runner.close_row(row)
        runner.open_row(row, GREEDY, 0, (token,))
        (answer,) = runner.launch("prefill", [work(row, (token,), 0)]).wait()
        expected[row] = answer, 1

    def decode(*rows: int, given: int | None = None) -> None:
        works = []
        for row in rows:
            last, position = expected[row]
            if given is not None:
                last = given
            works.append(work(row, () if given is None else (given,), position))
            expected[row] = (3 * last + position) % VOCAB, position + 1
        assert runner.launch("decode", works).wait() == tuple(expected[row][0] for row in rows)

    prompt(0, 5)
    prompt(1, 9)
    for rows in ((0,), (0,), (0,), (0, 1), (0, 1), (1, 0), (1,), (0,), (0, 1), (0, 1)):
        decode(*rows)
    prompt(2, 3)
    decode(0, 1)
    decode(0, 1, given=4)
    decode(0, 1)
    prompt(0, 7)
    decode(0)
    decode(0)
    decode(1)


def test_decode_when_it_goes_on_then_nothing_is_made_for_it(
    runner: ModelRunner, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the replays of a running reply lies no copy to the device."""
    runner.open_row(0, GREEDY, 0, (5,))
    runner.launch("prefill", [work(0, (5,), 0)]).wait()
    pages = (0, 1)
    for position in (1, 2):
        runner.launch("decode", [work(0, (), position, pages=pages)]).wait()

    def refuse(*_: object) -> None:
        raise AssertionError("a tensor was made")

    monkeypatch.setattr(torch, "tensor", refuse)
    for position in (3, 4):
        assert len(runner.launch("decode", [work(0, (), position, pages=pages)]).wait()) == 1


def test_last_ids_when_the_device_has_no_memory_for_them_then_they_are_kept_for_a_retry(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler gives memory back and asks again; no reply goes on from an old token."""
    for row in (0, 1):
        runner.open_row(row, GREEDY, 0, (5 + row,))
        runner.launch("prefill", [work(row, (5 + row,), 0)]).wait()
    (last,) = [runner.launch("decode", [work(0, (), position)]).wait() for position in (1, 2)][-1]

    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "tensor", refuse)
        with pytest.raises(torch.OutOfMemoryError):
            runner.launch("decode", [work(0, (), 3), work(1, (), 1)])
    ids = runner.launch("decode", [work(0, (), 3), work(1, (), 1)]).wait()
    assert ids == ((3 * last + 3) % VOCAB, (3 * (18 % VOCAB) + 1) % VOCAB)
