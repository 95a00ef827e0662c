"""The prompt that a load reads to itself, on the emulator."""

from pathlib import Path

import pytest

from engine.loader.rehearsal import rehearse
from engine.moe.device_prefill import PREPARED_ROWS
from engine.protocol.errors import InternalError
from tests.engine.loader.captured_world import SHAPE, made, opened, pin, reply
from tests.kernels.emulator import needs_emulator

pytestmark = needs_emulator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model."""
    return made(tmp_path_factory.mktemp("rehearsal"), "bf16")


def test_rehearse_when_done_then_replies_are_as_without(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page 0 and the staging hold what it left; nobody sees it."""
    pin(monkeypatch)
    with opened(folder, tmp_path / "plain", slots=5) as model:
        expected = reply(model, 6)
    with opened(folder, tmp_path / "rehearsed", slots=5) as model:
        rehearse(model.runner, model.experts, SHAPE.top_k)
        assert model.experts._parts.state.snapshot().faults() == []
        assert reply(model, 6) == expected


def test_rehearse_when_it_runs_then_every_length_of_chunk_was_begun(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launch shapes follow from the length of a chunk: each has kernels of its own."""
    pin(monkeypatch)
    with opened(folder, tmp_path, slots=5) as model:
        kernel = model.experts._parts.prefill._kernel
        begin, lengths = kernel.begin, []

        def noted(x, ids, table, chunk_tokens):
            lengths.append(chunk_tokens)
            return begin(x, ids, table, chunk_tokens)

        monkeypatch.setattr(kernel, "begin", noted)
        rehearse(model.runner, model.experts, SHAPE.top_k)
    average = {length * SHAPE.top_k / SHAPE.num_experts for length in lengths}
    assert set(PREPARED_ROWS) <= average


def test_rehearse_when_it_fails_then_the_row_is_free_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load may be tried once more with the same parts."""
    pin(monkeypatch)
    with opened(folder, tmp_path, slots=5) as model:

        def fail(*_: object) -> None:
            raise InternalError("no number")

        monkeypatch.setattr(model.runner, "launch", fail)
        with pytest.raises(InternalError):
            rehearse(model.runner, model.experts, SHAPE.top_k)
        monkeypatch.undo()
        assert len(reply(model, 2)[0]) == 2
