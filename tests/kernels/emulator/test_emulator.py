"""The emulator keeps CUDA's promises about threads that meet, and says who breaks them."""

import ctypes
from pathlib import Path

import pytest
import torch

from tests.kernels.emulator import EmulatedModule, kernel_names, needs_emulator

SOURCE = Path(__file__).with_name("meetings.cu")
pytestmark = needs_emulator


@pytest.fixture(scope="module")
def module() -> EmulatedModule:
    """The small kernels."""
    return EmulatedModule(SOURCE, {})


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def test_barriers_and_shuffles_when_threads_leave_early_then_sums_are_right(module):
    """Shared memory belongs to one CTA; threads that ended are not waited for."""
    values, sums = torch.arange(1000.0), torch.zeros(3)
    arguments = (pointer(values), pointer(sums), ctypes.c_int(1000))
    module.function("sum_block").launch((3, 1, 1), 96, arguments)
    lane = torch.arange(1000) % 288 // 96
    assert sums.tolist() == [float(values[lane == cta].sum()) for cta in range(3)]


def test_votes_and_shuffles_follow_the_programming_guide(module):
    """Masks, edges of shuffles, three kinds of barrier."""
    out = torch.zeros(64, 8, dtype=torch.int32)
    module.function("votes").launch((1, 1, 1), 64, (pointer(out),))
    for thread, (odd, low, up, down, broadcast, every, some, count) in enumerate(out.tolist()):
        lane = thread % 32
        assert odd & 0xFFFFFFFF == 0xAAAAAAAA
        assert low == (sum(range(16)) if lane < 16 else 31)
        assert (up, down) == (max(lane - 1, 0), min(lane + 1, 31))
        assert (broadcast, every, some, count) == (5, 1, 0, 2)


def test_ctas_on_several_host_threads_can_wait_for_each_other():
    """As CTAs of one wave can; run one after the other, the first would wait for ever."""
    flag = torch.zeros(1, dtype=torch.int32)
    module = EmulatedModule(SOURCE, {}, host_threads=2)
    module.function("wait_for_neighbour").launch((2, 1, 1), 32, (pointer(flag),))
    assert flag.item() == 1


def test_atomics_when_ctas_run_at_once_then_exactly_one_is_last():
    """Structures go by value, as on the driver's side."""

    class Arguments(ctypes.Structure):
        _fields_ = [("ticket", ctypes.c_void_p), ("last", ctypes.c_void_p)]

    ticket, last = torch.zeros(2, 1, dtype=torch.int32)
    module = EmulatedModule(SOURCE, {}, host_threads=3)
    arguments = Arguments(ticket.data_ptr(), last.data_ptr())
    module.function("last_arriver").launch((50, 1, 1), 64, (arguments,))
    assert (ticket.item(), last.item()) == (50, 1)


def test_dynamic_shared_memory_is_as_large_as_the_launch_says(module):
    """It stands for `extern __shared__`."""
    values = torch.arange(64, dtype=torch.int32)
    module.function("reverse").launch((1, 1, 1), 64, (pointer(values),), shared_bytes=256)
    assert values.tolist() == list(range(63, -1, -1))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [("half_a_barrier", "deadlock: 32 threads"), ("two_intrinsics", "different intrinsics")],
)
def test_kernels_that_break_a_rule_end_with_a_sentence(module, kernel, words):
    """On a GPU these hang or give garbage."""
    with pytest.raises(RuntimeError, match=words):
        module.function(kernel).launch((1, 1, 1), 32, ())


def test_grids_out_of_bounds_are_refused(module):
    """As by the driver."""
    with pytest.raises(RuntimeError, match="out of bounds"):
        module.function("two_intrinsics").launch((1, 1, 1), 2048, ())


def test_kernel_names_are_found_with_and_without_bounds():
    """What the build makes launchable."""
    text = 'extern "C" __global__ void __launch_bounds__(256, 2) a(int x) {}\n__global__ void b();'
    assert kernel_names(text) == ["a"]
    assert "last_arriver" in kernel_names(SOURCE.read_text())
