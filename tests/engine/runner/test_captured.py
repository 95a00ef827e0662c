"""Recorded decode steps, with a recorder that replays plain Python."""

import weakref
from dataclasses import dataclass, field

import pytest
import torch

from engine.cache.kv import KvPool
from engine.protocol.errors import DeviceError, InternalError
from engine.protocol.messages import Sampling
from engine.runner.captured import CapturedDecode, StepBuffers, StepMaker
from engine.runner.model_runner import ModelRunner
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

    def nodes(self, rows: int) -> "Nodes":
        self.built.append(rows)
        numbers = [torch.zeros(rows, dtype=torch.int32) for _ in range(3)]
        table = torch.zeros(rows, 8, dtype=torch.int32)
        return Nodes(self, StepBuffers(*numbers[:2], table, torch.zeros(rows, VOCAB), numbers[2]))

    def record(self, launch) -> "Tape":
        self.events.append("record")
        return Tape(launch)

    def check(self) -> None:
        if self.broken:
            raise DeviceError(self.broken)

    def program(self) -> CapturedDecode:
        return CapturedDecode(
            StepMaker(self.nodes, self.record, lambda: self.events.append("wake"), self.check)
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


@pytest.fixture
def runner(machine: Machine) -> ModelRunner:
    device = CpuDevice(1 << 20)
    pool = KvPool(1, 1, 2, torch.float32, device, 16, 16)
    return ModelRunner(Arithmetic(), pool, device, 4, machine.program())


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
    assert machine.events == ["record", *["wake", "step"] * 2, "record", "wake", "step"]


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
