"""A small random model, loaded onto captured steps of the emulator, and what it replies."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from engine.loader.open import open_model
from engine.loader.parts import LoadedModel, LoadWatch
from engine.protocol.messages import Budget, Load, Sampling
from engine.protocol.places import DataRoot
from engine.runner.work import RowWork
from engine.settings import EngineSettings
from kernels.device.cpu import CpuDevice, plain_buffer
from kernels.device.fake import FakePins
from kernels.device.memory import PinnedBuffer
from tests.engine.loader.emulated import EmulatedTools
from tests.support.checkpoints import TinyShape, convert_checkpoint, write_checkpoint

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


@contextmanager
def opened(
    folder: Path,
    home: Path,
    captured: bool = True,
    slots: int = 8,
    tools: EmulatedTools | None = None,
    **fields: object,
) -> Iterator[LoadedModel]:
    """Load the folder; with `captured`, onto the emulator, with these tools."""
    command = Load(
        id="l", model=str(folder), budget=Budget(expert_slots=slots, kv_tokens=256), **fields
    )
    settings = EngineSettings(home=DataRoot(home), threads=1)
    if captured:
        offered = tools or EmulatedTools()
        model = open_model(command, settings, QUIET, open_tools=lambda *_: (offered, ""))
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


def pin(monkeypatch: pytest.MonkeyPatch, layers: int | None = None) -> None:
    """Let the CPU stand for a card with a link: kernels read the records in host memory.

    Of so many first layers, if a number is given.
    """
    monkeypatch.setattr(CpuDevice, "host_buffer", pinning(layers))


def pinning(layers: int | None = None) -> Callable[[CpuDevice, int, int], PinnedBuffer]:
    """Return a `host_buffer` that pins everything, or so many pieces of a buffer that has some."""

    def host_buffer(_: CpuDevice, num_bytes: int, piece_bytes: int = 0) -> PinnedBuffer:
        pins = FakePins(layers if piece_bytes else None)
        return PinnedBuffer(plain_buffer(num_bytes), pins.pin, pins.release, piece_bytes)

    return host_buffer
