"""What a failed recording of a step shows as; on a recorder that only fails."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from kernels.device import cuda_graph
from kernels.device.base import DeviceLostError, DeviceMemoryError, KernelError
from kernels.device.cuda_graph import StepGraph

BROKEN = "CUDA error: operation failed due to a previous error during capture"


@pytest.fixture
def recorder(monkeypatch):
    """Recordings end with the error of the test, if there is one."""
    usual = SimpleNamespace(cuda_stream=1, wait_stream=lambda other: None)
    side = SimpleNamespace(cuda_stream=7, wait_stream=lambda other: None)
    made = SimpleNamespace(at_the_end=None, usual=usual, current=usual)

    def use(stream):
        made.current = stream

    @contextmanager
    def graph(graph, stream, capture_error_mode):
        use(stream)
        try:
            yield
        finally:
            if made.at_the_end is not None:
                raise made.at_the_end  # as torch does: the stream stays
            use(usual)

    monkeypatch.setattr(
        cuda_graph,
        "cuda",
        SimpleNamespace(
            CUDAGraph=object,
            Stream=lambda device: side,
            current_stream=lambda device: made.current,
            set_stream=use,
            graph=graph,
        ),
    )
    return made


def record(problem=None):
    """Record a step that launches once and fails with `problem`."""
    seen = []

    def launch(stream):
        seen.append(stream)
        if problem is not None:
            raise problem

    StepGraph(torch.device("cpu"), launch)
    return seen


def test_record_when_it_succeeds_then_launched_on_the_recording_stream(recorder):
    """Once."""
    assert record() == [7]


def test_record_when_the_capture_breaks_then_a_kernel_error(recorder):
    """Case E-06: a card that cannot record steps runs layer by layer; it is not lost."""
    recorder.at_the_end = torch.AcceleratorError(BROKEN)
    with pytest.raises(KernelError, match="previous error during capture"):
        record()
    assert recorder.current is recorder.usual, "what comes next would run on the recording's stream"


def test_record_when_a_launch_was_refused_then_its_words_not_those_of_the_end(recorder):
    """The end of a broken capture hides what broke it."""
    recorder.at_the_end = torch.AcceleratorError(BROKEN)
    with pytest.raises(KernelError, match="cuLaunchKernelEx: invalid value"):
        record(KernelError("The CUDA driver refused cuLaunchKernelEx: invalid value (1)."))


@pytest.mark.parametrize("problem", [DeviceMemoryError("full"), DeviceLostError("gone")])
def test_record_when_memory_or_card_is_the_reason_then_that_is_raised(recorder, problem):
    """Neither is mended by another way to run the model."""
    recorder.at_the_end = torch.AcceleratorError(BROKEN)
    with pytest.raises(type(problem)) as caught:
        record(problem)
    assert caught.value is problem


def test_record_when_the_card_is_lost_then_torchs_own_error(recorder):
    """As in the middle of any other operation."""
    recorder.at_the_end = torch.AcceleratorError("CUDA error: unspecified launch failure")
    with pytest.raises(torch.AcceleratorError, match="unspecified launch failure"):
        record()
