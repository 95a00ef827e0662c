"""A second way to run a model where the first one cannot be built."""

import pytest
import torch

from engine.loader import any_way
from engine.loader.parts import LoadWatch
from engine.protocol.errors import BudgetError, DeviceError
from engine.protocol.messages import Load
from engine.protocol.places import DataRoot
from engine.service.stats import load_notice
from engine.settings import EngineSettings
from kernels.cuda.compile import CompileError
from kernels.device.base import DeviceMemoryError, KernelError
from kernels.device.fake import FakeDevice
from tests.support.checkpoints import convert_checkpoint, write_checkpoint

QUIET = LoadWatch(lambda *_: None, lambda: False)


class Card(FakeDevice):
    """Counts as a card."""

    def __init__(self):
        super().__init__(1 << 30)
        self.name, self.emulated = "cuda:0", False


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Open a small model; its captured steps fail with an error of the test."""
    folder = convert_checkpoint(write_checkpoint(tmp_path / "source"), tmp_path / "model")
    card = Card()
    monkeypatch.setattr("engine.loader.open.open_device", lambda name, budget: card)

    def load(problem, devices=("cuda:0",)):
        asked = []

        def tools(device, settings):
            asked.append(device)
            raise problem

        command = Load(id="l", model=str(folder), devices=devices)
        settings = EngineSettings(home=DataRoot(tmp_path), threads=1)
        return any_way.open_any_way(command, settings, QUIET, tools), asked

    load.card = card
    return load


@pytest.mark.parametrize("kind", [CompileError, KernelError])
def test_load_when_captured_steps_cannot_be_built_then_layer_by_layer_and_said(opened, kind):
    """Case E-06: the compiler or driver of some card refuses our kernels; the model runs."""
    model, asked = opened(kind("NVRTC: no such architecture"))
    try:
        assert len(asked) == 1
        reason = "its kernels cannot be built: NVRTC: no such architecture"
        assert model.kernels["decode"] == f"layer by layer: {reason}"
        code, sentence = model.notices[-1]
        assert reason in sentence
        assert load_notice(code, sentence).level == "warning"
    finally:
        model.close()
    assert opened.card.free_bytes() == opened.card.total_bytes()


@pytest.mark.parametrize(
    ("problem", "devices"),
    [
        (BudgetError("Needs 9 GiB."), ("cuda:0",)),
        (RuntimeError("a bug"), ("cuda:0",)),
        (IndexError("a bug"), ("cuda:0",)),
        (KernelError("a bug of the emulator"), ("cpu",)),
    ],
)
def test_load_when_another_way_would_not_help_then_refused_at_once(opened, problem, devices):
    """Case E-06: too little memory is no reason to read a model twice, nor is a fault of ours."""
    with pytest.raises(type(problem), match=str(problem)) as caught:
        opened(problem, devices)
    assert caught.value is problem


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        DeviceMemoryError("The CUDA driver refused cuMemCreate: out of memory (2)."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be late."),
    ],
)
def test_load_when_the_device_is_full_then_said_as_memory_whoever_noticed(opened, problem):
    """Its allocator, its driver, and the libraries in the middle of an operation."""
    with pytest.raises(BudgetError, match="Memory was refused while loading: ") as caught:
        opened(problem)
    assert str(problem).splitlines()[0].rstrip(".") in caught.value.message
    assert caught.value.hint
    assert opened.card.free_bytes() == opened.card.total_bytes()


def test_load_when_the_device_is_lost_then_no_second_try(opened):
    """What a card says that does not answer any more is neither memory nor a kernel."""
    with pytest.raises(DeviceError, match="an illegal memory access"):
        opened(torch.AcceleratorError("CUDA error: an illegal memory access was encountered"))
