"""Sampled rows on recorded steps: the same tokens as on the plain way, whatever happens between."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.protocol.errors import InternalError
from engine.protocol.messages import Sampling
from engine.runner import chooser, sampler
from engine.runner.chooser import MAX_RECORDINGS, RECORD_AFTER, Chooser
from engine.runner.sampler import Past, RowSampler, sample
from engine.runner.work import RowWork
from kernels.device.base import DeviceMemoryError, KernelError
from tests.engine.runner.sampled_world import (
    BROKEN,
    GREEDY,
    NUM_ROWS,
    SAMPLINGS,
    TABLE,
    USUAL,
    Pair,
    Steps,
)
from tests.engine.runner.test_captured import Tape
from tests.engine.runner.test_model_runner import VOCAB

ROWS = st.integers(0, NUM_ROWS - 1)
ORDER = st.permutations(range(NUM_ROWS))
PROMPT = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6).map(tuple)
EVENTS = st.one_of(
    st.tuples(st.just("open"), ROWS, st.sampled_from(SAMPLINGS), st.integers(0, 99), PROMPT),
    st.tuples(st.just("decode"), ORDER, st.integers(1, 4)),
    st.tuples(st.just("all"), st.integers(1, 9)),
    st.tuples(st.just("given"), ORDER),
    st.tuples(st.just("unsampled"), ROWS),
    st.tuples(st.just("preempt"), ROWS),
    st.tuples(st.just("close"), ROWS),
    st.tuples(st.just("ready"), st.integers(2, NUM_ROWS)),
)


def play(pair: Pair, event: tuple[Any, ...]) -> None:
    """Let one thing happen."""
    kind, *values = event
    there = sorted(pair.replies)
    if kind == "open":
        pair.open(*values)
    elif kind == "decode":
        order, count = values
        pair.decode([row for row in order if row in pair.replies][:count])
    elif kind == "all":
        for _ in range(values[0]):
            pair.decode(there)
    elif kind == "given":
        pair.decode([row for row in values[0] if row in pair.replies], given=True)
    elif kind == "unsampled":
        pair.decode(there, unsampled=values[0])
    elif kind == "ready":
        pair.machine.compiling.discard(values[0])
    elif values[0] in pair.replies:
        if kind == "preempt":
            pair.preempt(values[0])
        else:
            for runner in (pair.plain, pair.recorded):
                runner.close_row(values[0])
            del pair.replies[values[0]]


@settings(max_examples=120, deadline=None)
@given(
    events=st.lists(EVENTS, min_size=4, max_size=25),
    compiling=st.sets(st.integers(2, NUM_ROWS)),
    one_memory=st.booleans(),
    after=st.sampled_from([0, 2, RECORD_AFTER]),
)
def test_replies_whatever_happens_then_those_of_the_plain_way(
    events: list[tuple[Any, ...]], compiling: set[int], one_memory: bool, after: int
) -> None:
    """Rows come, go, are cancelled, preempted and reordered; greedy, sampled and penalised ones."""
    pair = Pair(Steps(compiling=compiling, one_memory=one_memory))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chooser, "RECORD_AFTER", after)
        for row, sampling in ((0, USUAL), (2, SAMPLINGS[5]), (3, SAMPLINGS[5])):
            pair.open(row, sampling, row, (row + 1, 9))
        for event in events:
            play(pair, event)
        pair.settle()


@pytest.fixture
def machine() -> Steps:
    return Steps()


@pytest.fixture
def pair(machine: Steps) -> Pair:
    return Pair(machine)


@pytest.mark.parametrize("sampling", SAMPLINGS[1:], ids=str)
def test_reply_when_it_goes_on_then_only_numbers_are_copied(
    pair: Pair, machine: Steps, monkeypatch: pytest.MonkeyPatch, sampling: Sampling
) -> None:
    """No batch is made and no id moved; after a while choosing is one replay as well."""
    pair.open(1, sampling, 5, (3, 4))
    pair.decode([1])
    chosen: list[int] = []
    choose = sampler.choose

    def watched(logits: Tensor, *given: Any) -> None:
        chosen.append(len(machine.events))
        choose(logits, *given)

    def refuse(*_: object) -> None:
        raise AssertionError("a batch was made")

    monkeypatch.setattr(chooser, "choose", watched)
    monkeypatch.setattr(pair.recorded, "_batch", refuse)
    for _ in range(RECORD_AFTER):
        pair.decode([1])
    assert machine.recordings == 2  # of the step and of choosing
    assert machine.events[-3:] == ["wake (1,)", "step", "record"]
    assert len(chosen) == RECORD_AFTER


def test_recording_when_replies_follow_each_other_then_it_serves_them_all(
    pair: Pair, machine: Steps
) -> None:
    """A penalty's counts are the new reply's, the random numbers as well."""
    for seed in range(3):
        for row, sampling in ((0, SAMPLINGS[5]), (1, GREEDY), (3, USUAL)):
            pair.open(row, sampling, seed, (seed, 9))
        for _ in range(RECORD_AFTER + 2):
            pair.decode([0, 1, 3])
    pair.settle()
    assert machine.recordings == 2


def test_recordings_when_many_kinds_are_asked_for_then_few_are_kept(
    pair: Pair, machine: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was not used for the longest time goes; it is made anew when it is needed."""
    monkeypatch.setattr(chooser, "RECORD_AFTER", 1)

    def reply(kind: int) -> int:
        before = machine.recordings
        pair.open(0, Sampling(temperature=0.5 + kind / 10, top_k=20), 1, (2,))
        for _ in range(4):
            pair.decode([0])
        pair.settle()
        return machine.recordings - before

    assert reply(0) == 2  # the first with the step's own
    assert [reply(kind) for kind in range(1, MAX_RECORDINGS)] == [1] * (MAX_RECORDINGS - 1)
    assert reply(0) == 0
    assert reply(MAX_RECORDINGS) == 1
    assert reply(0) == 0
    assert reply(1) == 1


def test_recording_when_the_buffers_are_others_then_it_is_not_theirs() -> None:
    """It reads and writes where it was made, whatever it is asked for later."""
    made: list[Any] = []

    def record(launch: Any) -> Any:
        made.append(launch)
        return Tape(launch)

    choosing = Chooser(1, torch.device("cpu"), record)
    rows = [RowSampler(USUAL, 1, Past(VOCAB, torch.device("cpu")))]
    for place in range(2):
        logits, ids = TABLE[place : place + 1].clone(), torch.zeros(1, dtype=torch.int32)
        for step in range(RECORD_AFTER + 2):
            chosen = choosing.choose(logits, ids, rows, [step])
            assert chosen.tolist() == ids.tolist() == sample(logits, rows, [step]).tolist()
        assert len(made) == place + 1


@pytest.mark.parametrize("refusal", [KernelError("no"), DeviceMemoryError("full")])
def test_recording_when_it_is_refused_then_kernels_are_launched(
    pair: Pair, machine: Steps, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """Asked for once; the reply does not notice."""
    pair.open(0, USUAL, 1, (2,))
    pair.decode([0])
    asked = []

    def refuse(_launch: object) -> None:
        asked.append(1)
        raise refusal

    monkeypatch.setattr(pair.recorded._chooser, "_record", refuse)
    for _ in range(2 * RECORD_AFTER):
        pair.decode([0])
    pair.settle()
    assert len(asked) == 1


@pytest.mark.parametrize("other", [False, True])
def test_choosing_when_the_device_has_no_memory_for_it_then_the_step_can_be_asked_for_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    """The step had run already: neither its place nor the ids before it are lost or counted twice.

    The scheduler gives memory back and asks again, for the same rows or for others.
    """
    for row in (0, 2):
        pair.open(row, SAMPLINGS[5], row, (row + 1, 9))
    for _ in range(3):
        pair.decode([0, 2])
    draw_rows = sampler.draw_rows

    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(sampler, "draw_rows", refuse)
    works = [
        RowWork(row, (), len(reply.tokens) - 1, reply.pages[:1], sample=True)
        for row, reply in pair.replies.items()
    ]
    with pytest.raises(torch.OutOfMemoryError):
        pair.recorded.launch("decode", works)
    monkeypatch.setattr(sampler, "draw_rows", draw_rows)
    if other:
        pair.open(1, USUAL, 7, (8,))
        pair.decode([2])
        pair.decode([1, 0])
    for _ in range(4):
        pair.decode([0, 2])
    pair.settle()


def test_wait_when_a_sampled_rows_logits_are_nan_then_an_error(pair: Pair, machine: Steps) -> None:
    """The next step runs from no id at all and harms nothing."""
    machine.broken_token = True
    runner = pair.recorded
    runner.open_row(0, USUAL, 1, (5,))
    first = runner.launch("decode", [RowWork(0, (BROKEN,), 1, (0,), True)])
    late = runner.launch("decode", [RowWork(0, (), 2, (0,), True)])
    with pytest.raises(InternalError, match="not a number"):
        first.wait()
    late.wait()


def test_close_then_nothing_keeps_a_recording_alive(pair: Pair) -> None:
    """Kernels are unloaded after the recordings that run them."""
    pair.open(0, USUAL, 1, (2,))
    for _ in range(RECORD_AFTER + 2):
        pair.decode([0])
    pair.settle()
    choosing = pair.recorded._chooser
    assert len(choosing._kept) == 1
    pair.recorded.close()
    assert len(choosing._kept) == 0
