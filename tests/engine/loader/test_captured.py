"""A model on captured steps, from its folder to its tokens, against the same model layer by layer.

The CUDA sources run on the CPU emulator; loader, residency, CPU pool, runner and prompts are real.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from engine.loader.open import open_model
from engine.loader.parts import LoadedModel, LoadWatch
from engine.protocol.errors import BudgetError, DeviceError
from engine.protocol.messages import Budget, Load, MissPolicy, Sampling
from engine.protocol.places import DataRoot
from engine.runner.work import RowWork
from engine.settings import EngineSettings
from tests.engine.loader.emulated import emulated_tools
from tests.kernels.emulator import needs_emulator
from tests.support.checkpoints import TinyShape, convert_checkpoint, write_checkpoint

pytestmark = needs_emulator

SHAPE = TinyShape(
    vocab_size=512, hidden=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32,
    num_experts=8, top_k=2, moe_intermediate=32,
)  # fmt: skip
PROMPT = tuple(range(7, 60, 3))
QUIET = LoadWatch(lambda *_: None, lambda: False)
GREEDY = Sampling(temperature=0.0)


def made(place: Path, stored: Literal["bf16", "fp8_block"]) -> Path:
    """Write a small random model and convert it."""
    return convert_checkpoint(write_checkpoint(place / "source", SHAPE, stored), place / "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model of 16 experts in two layers."""
    return made(tmp_path_factory.mktemp("captured"), "bf16")


@contextmanager
def opened(
    folder: Path, home: Path, captured: bool = True, slots: int = 8, **fields: object
) -> Iterator[LoadedModel]:
    """Load the folder; with `captured`, onto the emulator."""
    command = Load(
        id="l", model=str(folder), budget=Budget(expert_slots=slots, kv_tokens=256), **fields
    )
    settings = EngineSettings(home=DataRoot(home), threads=1)
    if captured:
        model = open_model(command, settings, QUIET, open_tools=emulated_tools)
    else:
        model = open_model(command, settings, QUIET)
    try:
        yield model
    finally:
        model.close()


def reply(model: LoadedModel, count: int, rows: Sequence[int] = (0,)) -> list[tuple[int, ...]]:
    """Greedy ids of a prompt in each row, decoded together; each row's prompt is its own."""
    runner, got = model.runner, {row: [] for row in rows}
    pages = {row: tuple(range(4 * row, 4 * row + 4)) for row in rows}
    for row in rows:
        prompt = tuple(token + row for token in PROMPT)
        runner.open_row(row, GREEDY, 0, prompt)
        work = RowWork(row, prompt, 0, pages[row], sample=True)
        got[row] += runner.launch("prefill", [work]).wait()
    for step in range(count - 1):
        works = [RowWork(row, (), len(PROMPT) + step, pages[row], True) for row in rows]
        for row, token in zip(rows, runner.launch("decode", works).wait(), strict=True):
            got[row].append(token)
    for row in rows:
        runner.close_row(row)
    return [tuple(got[row]) for row in rows]


@pytest.mark.parametrize("stored", ["bf16", "fp8_block"])
def test_reply_when_captured_then_it_is_that_of_the_plain_way(
    stored: Literal["bf16", "fp8_block"], tmp_path: Path
) -> None:
    """Same ids, and decode really came from the kernels, hits and misses both."""
    folder = made(tmp_path, stored)
    with opened(folder, tmp_path, captured=False) as plain:
        expected = reply(plain, 12)
        assert (
            not plain.kernels["decode"].startswith("captured") if "decode" in plain.kernels else 1
        )
    with opened(folder, tmp_path) as model:
        assert model.kernels["decode"].startswith("captured")
        assert reply(model, 12) == expected
        counters = model.experts.counters()
        assert counters.routes == 11 * SHAPE.num_layers * SHAPE.top_k
        assert counters.hits > 0
        assert counters.cpu + counters.fills > 0


@pytest.mark.parametrize(
    ("policy", "slots"), [*((policy, 2) for policy in MissPolicy), (MissPolicy.TWO_ENDED, 16)]
)
def test_reply_whatever_the_residency_is_the_same(
    folder: Path, tmp_path: Path, policy: MissPolicy, slots: int
) -> None:
    """Policy and cache size change who computes, never what (E-18 and the numerics contract)."""
    with opened(folder, tmp_path, slots=16, policy=MissPolicy.FILL_ONLY) as model:
        expected = reply(model, 8)
    with opened(folder, tmp_path, slots=slots, policy=policy) as model:
        assert reply(model, 8) == expected


def test_resize_during_a_reply_then_the_reply_goes_on_alike(folder: Path, tmp_path: Path) -> None:
    """Grow and shrink between steps: nothing is recorded anew, no id changes."""
    with opened(folder, tmp_path) as model:
        expected = reply(model, 10)
        runner, pages = model.runner, tuple(range(4))
        runner.open_row(0, GREEDY, 0, PROMPT)
        got = list(runner.launch("prefill", [RowWork(0, PROMPT, 0, pages, True)]).wait())
        for step, slots in enumerate((16, 3, 3, 9, 2, 16, 8, 5, 12)):
            outcome = model.experts.resize(slots)
            assert outcome.slots == model.experts.num_slots == slots
            got += runner.launch("decode", [RowWork(0, (), len(PROMPT) + step, pages, True)]).wait()
        assert [tuple(got)] == expected
        with pytest.raises(BudgetError, match="possible"):
            model.experts.resize(17)


def test_rows_when_decoded_together_then_each_is_as_alone(folder: Path, tmp_path: Path) -> None:
    """Three rows share experts; a recording per number of rows."""
    with opened(folder, tmp_path) as model:
        alone = [reply(model, 6, rows=(row,))[0] for row in range(3)]
        assert reply(model, 6, rows=(0, 1, 2)) == alone


def arrived(model: LoadedModel) -> tuple[bytes, bytes, int]:
    """The heat map once the device's tables have come over, which nothing waits for."""
    for _ in range(100_000):
        found = model.experts.heat()
        if sum(found[1]):
            return found
    raise AssertionError("the tables never came")


def test_heat_when_a_reply_ran_then_residents_and_uses_show(folder: Path, tmp_path: Path) -> None:
    """The map follows the device's own tables."""
    with opened(folder, tmp_path) as model:
        reply(model, 6)
        hits, resident, most = arrived(model)
        assert len(hits) == len(resident) == SHAPE.num_layers * SHAPE.num_experts
        assert sum(resident) <= 8
        assert most > 0


def test_prompt_when_no_expert_was_resident_then_its_last_ones_are(
    folder: Path, tmp_path: Path
) -> None:
    """The warm hand-over: decode starts with the prompt's experts in their slots."""
    with opened(folder, tmp_path, slots=16) as model:
        reply(model, 1)
        _, resident, most = arrived(model)
        assert sum(resident) > 4
        assert most == 0  # no decode step has run


def test_step_when_the_pool_does_not_answer_then_the_reply_ends_with_a_sentence(
    folder: Path, tmp_path: Path
) -> None:
    """A lost CPU thread is an error that names it, never a wrong word or a hang."""
    with opened(folder, tmp_path, slots=2) as model:
        runner, pages = model.runner, tuple(range(4))
        runner.open_row(0, GREEDY, 0, PROMPT)
        runner.launch("prefill", [RowWork(0, PROMPT, 0, pages, True)]).wait()
        model.experts._parts.threads.close()
        step = runner.launch("decode", [RowWork(0, (), len(PROMPT), pages, True)])
        with pytest.raises(DeviceError, match="did not answer"):
            step.wait()
