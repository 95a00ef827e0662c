"""Sampled replies of a whole captured model on the emulator: going on changes no token."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.loader.parts import LoadedModel
from engine.protocol.messages import Sampling
from engine.runner import chooser
from engine.runner.work import RowWork
from tests.engine.loader.captured_world import PROMPT, made, opened
from tests.engine.loader.emulated import EmulatedTools
from tests.kernels.emulator import needs_emulator

pytestmark = needs_emulator

USUAL = Sampling(temperature=0.9, top_p=0.9, top_k=20)
SAMPLINGS = (
    USUAL,
    Sampling(temperature=0.0),
    Sampling(temperature=1.2, min_p=0.01, repetition_penalty=1.3),
)


def replies(model: LoadedModel, count: int, between: Callable[[int], None]) -> list[list[int]]:
    """Three replies decoded together, each with its own options; `between` runs before a step."""
    runner, got = model.runner, []
    pages = [tuple(range(4 * row, 4 * row + 4)) for row in range(3)]
    for row, sampling in enumerate(SAMPLINGS):
        runner.open_row(row, sampling, row + 5, PROMPT)
        work = RowWork(row, PROMPT, 0, pages[row], sample=True)
        got.append([*runner.launch("prefill", [work]).wait()])
    late = None
    for step in range(count):
        between(step)
        works = [RowWork(row, (), len(PROMPT) + step, pages[row], True) for row in range(3)]
        handle = runner.launch("decode", works)
        for one in (late, handle) if step == count - 1 else (late,):
            for row, token in enumerate(one.wait() if one is not None else ()):
                got[row].append(token)
        late = handle
    for row in range(3):
        runner.close_row(row)
    return got


def test_replies_when_they_go_on_then_those_of_steps_that_are_given_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled, greedy and penalised rows in one batch; resizes between steps."""
    monkeypatch.setattr(chooser, "RECORD_AFTER", 2)
    tools = EmulatedTools()
    folder = made(tmp_path, "bf16")
    with opened(folder, tmp_path, tools=tools) as model:
        program = model.runner._program
        went = []
        go_on = program.go_on

        def watched(tables: object) -> object:
            went.append(1)
            return go_on(tables)

        monkeypatch.setattr(program, "go_on", watched)
        kept = replies(model, 8, lambda _: None)
        assert len(went) == 7
        assert len(tools.tapes) == 3  # steps of one and of three rows, and choosing
        sizes = (16, 3, 9, 2, 16, 5, 12, 8)
        assert replies(model, 8, lambda step: model.experts.resize(sizes[step])) == kept
        assert len(tools.tapes) == 3
        monkeypatch.setattr(program, "go_on", lambda _: None)
        assert replies(model, 8, lambda _: None) == kept
        assert len({tuple(one) for one in kept}) == 3
    assert tools.loaded == []
    assert not any(tape() for tape in tools.tapes)
