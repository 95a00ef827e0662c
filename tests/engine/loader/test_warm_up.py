"""Idle moments of a whole model on the emulator: nothing of a reply changes, whatever they copy."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.loader.parts import LoadedModel
from engine.protocol.messages import MissPolicy
from engine.runner.work import RowWork
from kernels.cuda.residency import Residency
from tests.engine.loader.captured_world import GREEDY, PROMPT, SHAPE, made, opened, pin, reply
from tests.kernels.emulator import needs_emulator

pytestmark = needs_emulator

RECORDS = SHAPE.num_layers * SHAPE.num_experts
PAGES = tuple(range(4))
TOKENS = 10  # of the reply that is compared


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model of 16 experts in two layers."""
    return made(tmp_path_factory.mktemp("warm"), "bf16")


@pytest.fixture
def model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedModel]:
    """It, with a link and room for every expert."""
    pin(monkeypatch)
    with opened(folder, tmp_path, slots=16) as model:
        yield model


def tables(model: LoadedModel) -> Residency:
    """What the device has where."""
    return model.experts._parts.state.snapshot()


def assert_slots(model: LoadedModel) -> None:
    """The tables are sound, and every unit that they promise lies in its slot."""
    found, parts = tables(model), model.experts._parts
    assert found.faults() == []
    for slot, record in enumerate(found.owner[: found.num_slots].tolist()):
        if record >= 0:
            size = int(found.valid[record]) * parts.pool.layout.unit_bytes
            assert parts.arena.slot(slot)[:size].equal(parts.pool.record(record)[:size])


@dataclass
class Talk:
    """One reply that is interrupted by other things; begun anew when it is over."""

    model: LoadedModel
    expected: tuple[int, ...]
    got: list[int] | None = None

    def step(self) -> None:
        """A prompt, or the next token."""
        runner = self.model.runner
        if self.got is None:
            runner.open_row(0, GREEDY, 0, PROMPT)
            work = RowWork(0, PROMPT, 0, PAGES, sample=True)
            self.got = list(runner.launch("prefill", [work]).wait())
        else:
            work = RowWork(0, (), len(PROMPT) + len(self.got) - 1, PAGES, sample=True)
            self.got += runner.launch("decode", [work]).wait()
        assert self.got == list(self.expected[: len(self.got)])
        if len(self.got) == TOKENS:
            self.close()

    def close(self) -> None:
        """End it."""
        if self.got is not None:
            self.model.runner.close_row(0)
            self.got = None


ACTS = st.sampled_from([*["step", "warm"] * 3, *MissPolicy, 2, 5, 9, 12, 16])


@pytest.fixture(scope="module")
def shared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    """One model for many examples, and its reply when nothing happens in between."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            pin(patch)
            home = tmp_path_factory.mktemp("home")
            model = stack.enter_context(opened(folder, home, slots=2))
        yield model, reply(model, TOKENS)[0]


@settings(max_examples=30, deadline=None)
@given(acts=st.lists(ACTS, min_size=4, max_size=20), units=st.integers(1, 5))
def test_reply_when_warmed_up_at_any_moment_then_no_bit_changes(
    shared: tuple[LoadedModel, tuple[int, ...]], acts: list, units: int
) -> None:
    """Between prompts and steps, through resizes and policies; pieces may end within an expert.

    Nobody loses a slot, and the tables never promise what is not there.
    """
    model, expected = shared
    model.experts.resize(2)
    model.experts.resize(12)  # ten slots are free
    talk = Talk(model, expected)
    for act in acts:
        if act == "step":
            talk.step()
        elif act == "warm":
            unit_bytes = model.experts._parts.pool.layout.unit_bytes
            model.experts._warm._piece_bytes = float(units * unit_bytes)
            before = tables(model)
            moved = model.experts.warm_up()
            after = tables(model)
            assert set(before.resident()) <= set(after.resident())
            gained = int((after.valid - before.valid).sum())
            assert (gained > 0) == moved
            assert gained <= units
        elif isinstance(act, int):
            model.experts.resize(act)
        else:
            model.experts.set_policy(act)
        assert_slots(model)
    talk.close()


def test_warm_up_when_there_is_room_for_all_then_a_reply_misses_nothing(
    model: LoadedModel,
) -> None:
    """The first prompt finds every expert in its slot, and decode takes them all from there."""
    experts = model.experts
    while experts.warm_up():
        assert_slots(model)
    assert experts.heat()[1] == b"\1" * RECORDS  # the map of now, not of a moment ago
    whole = RECORDS * model.info.record_bytes
    counters = experts.counters()
    assert (counters.warm_up_bytes, counters.fill_bytes, counters.prefill_bytes) == (whole, 0, 0)
    reply(model, 6)
    counters = experts.counters()
    assert counters.hits == counters.routes > 0
    assert (counters.fills, counters.cpu, counters.prefill_bytes) == (0, 0, 0)
    assert not experts.warm_up()


def test_warm_up_when_slots_are_few_then_it_ends_when_none_is_free(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers get as many each; room that a resize brings is used as well."""
    pin(monkeypatch)
    with opened(folder, tmp_path, slots=6) as model:
        while model.experts.warm_up():
            pass
        layers = [record // SHAPE.num_experts for record in tables(model).resident()]
        assert (layers.count(0), layers.count(1)) == (3, 3)
        before = set(tables(model).resident())
        model.experts.resize(9)
        while model.experts.warm_up():
            pass
        assert before < set(tables(model).resident())
        assert len(tables(model).resident()) == 9


@pytest.mark.parametrize("linked", [False, True])
def test_warm_up_when_nothing_shall_cross_the_link_then_nothing_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """A policy without copies, or memory that kernels cannot read."""
    if linked:
        pin(monkeypatch)
    policy = MissPolicy.CPU_ONLY if linked else MissPolicy.TWO_ENDED
    with opened(folder, tmp_path, slots=16, policy=policy) as model:
        assert not model.experts.warm_up()
        assert model.experts.counters().warm_up_bytes == 0
        assert tables(model).resident() == []
