"""How a compiled Triton kernel reaches the driver, without a card: kinds, arguments, fallback.

What the launches compute is tested by the other files here, on a card.
"""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from kernels import registry, triton
from kernels.triton import launch, trial
from kernels.triton.launch import (
    CardKernel,
    Compiled,
    counting,
    kinds_and_values,
    num_parameters,
)
from tests.conftest import REPOSITORY

CARD = torch.device("cuda:1")


def stand_in(*names, plain=()):
    """Return what a jitted kernel shows of itself."""
    params = [SimpleNamespace(name=n, do_not_specialize=n in plain) for n in names]
    return SimpleNamespace(params=params, arg_names=names, fn=SimpleNamespace(__name__="k"))


class Tensor(torch.Tensor):
    """A tensor that says it lies on a card."""

    @property
    def device(self):
        return CARD


def on_card(values):
    return values.as_subclass(Tensor)


@pytest.fixture
def card(monkeypatch):
    """A driver that writes down what it is told; compiled code names its constants."""
    told = SimpleNamespace(compiled=[], launched=[])

    class Module:
        def __init__(self, image, index):
            self.image, self.index = image, index

        def function(self, name):
            def take(grid, block, args, stream, shared):
                got = [one.value for one in args]
                told.launched.append((self.image, self.index, name, grid, block, got, stream))
                assert shared == 123

            return SimpleNamespace(launch=take)

    def compile_kernel(kernel, kinds, constants, arch, num_warps, num_stages):
        told.compiled.append((kinds, dict(constants), arch, num_warps, num_stages))
        image = str(len(told.compiled)).encode()
        return Compiled("entry", image, 123, num_warps * 32, 2, "")

    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "Module", Module)
    monkeypatch.setattr(launch, "architecture", lambda index: f"sm_12{index - 1}")
    monkeypatch.setattr(launch, "compile_kernel", compile_kernel)
    monkeypatch.setattr(launch, "_streams", lambda: lambda index: 76 + index)
    return told


def test_kinds_are_types_and_what_16_divides():
    """An offset view may not be read in wide pieces; a number only counts where it matters."""
    kernel = stand_in("x", "N", "y", "first", "rows", "eps", plain=("first",))
    x = torch.zeros(64, dtype=torch.bfloat16)
    counts = counting(kernel, {"N": 3})
    kinds, _ = kinds_and_values(counts, (x, x[1:], 32, 32, 0.5))
    assert kinds == [
        ("*bf16", True), ("*bf16", False), ("i32", False), ("i32", True), ("fp32", False)
    ]  # fmt: skip
    assert kinds_and_values((True,), (2**31,))[0] == [("i64", True)]
    for given in ((x, x), (x, x, 1, 1, 0.5, 1)):
        with pytest.raises(ValueError, match="argument 2 is"):
            kinds_and_values(counts, given)


def test_values_are_of_the_width_that_was_compiled():
    """A pointer, a float and both integers."""
    x = torch.zeros(4)
    _, values = kinds_and_values((True,) * 4, (x, 0.25, -5, 2**33))
    assert [type(one) for one in values] == [
        ctypes.c_void_p, ctypes.c_float, ctypes.c_int, ctypes.c_longlong
    ]  # fmt: skip
    assert [one.value for one in values] == [x.data_ptr(), 0.25, -5, 2**33]


def test_launch_compiles_once_for_each_kind_of_arguments(card):
    """The tensor's card and torch's stream there; an unaligned view is another compilation.

    Null pointers stand behind the arguments, for the scratch of the compiler.
    """
    kernel = stand_in("x", "count", "N", plain=("count",))
    five = CardKernel(kernel, num_warps=8, num_stages=2, N=5)
    x = on_card(torch.zeros(64))
    five.launch((3,), x, 16)
    five.launch((3, 2), x, 7)
    five.launch((1, 2, 3), x[1:], 7)
    CardKernel(kernel, num_warps=4, num_stages=2, N=6).launch((1,), x, 7)
    aligned, unaligned = ("*fp32", True), ("*fp32", False)
    assert card.compiled == [
        ([aligned, ("i32", False)], {"N": 5}, 120, 8, 2),
        ([unaligned, ("i32", False)], {"N": 5}, 120, 8, 2),
        ([aligned, ("i32", False)], {"N": 6}, 120, 4, 2),
    ]
    at = x.data_ptr()
    assert card.launched == [
        (b"1", 1, "entry", (3, 1, 1), 256, [at, 16, None, None], 77),
        (b"1", 1, "entry", (3, 2, 1), 256, [at, 7, None, None], 77),
        (b"2", 1, "entry", (1, 2, 3), 256, [at + 4, 7, None, None], 77),
        (b"3", 1, "entry", (1, 1, 1), 128, [at, 7, None, None], 77),
    ]


def test_parameters_are_counted_in_the_entry_only():
    """Scratch pointers behind the arguments differ from one Triton to the next."""
    ptx = """
.func helper(.param .b32 helper_param_0)
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u32 k_param_1,
	.param .u64 .ptr .global .align 1 k_param_2
)
.reqntid 128
{
	ld.param.b64 %rd1, [k_param_7];
}"""
    assert num_parameters(ptx) == 3


@pytest.fixture
def asked_anew():
    triton.obstacle.cache_clear()
    yield
    triton.obstacle.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_prompts_run_on_torch_where_triton_cannot_compile(monkeypatch, caplog):
    """Said once; the choice names it (case E-06)."""

    def refuse(*given, **more):
        raise RuntimeError("Triton cannot compile rms_norm: first line\nptxas: Permission denied")

    monkeypatch.setattr(trial, "interpreted", lambda: False)
    monkeypatch.setattr(trial, "compile_kernel", refuse)
    for _ in range(2):
        for op in (
            "route",
            "grouped_experts",
            "linear",
            "attention_chunk",
            "router_step",
            "rms_norm",
        ):
            choice = registry.choose(op, "cuda:0", dtype=torch.bfloat16)
            assert choice.name == "reference"
            assert "not triton: it cannot compile: ptxas: Permission denied" in choice.reason
    assert len(caplog.messages) == 1
    assert "slower" in caplog.messages[0]


TRY = """
import sys
from kernels.triton import obstacle
print(obstacle())
"""


@pytest.mark.linux
@pytest.mark.parametrize("damaged", [False, True])
def test_a_trial_finds_damaged_tools_and_needs_no_compiler(tmp_path, damaged):
    """With an empty PATH Triton compiles; without its assembler the trial says so."""
    own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "kept"), "PATH": ""}
    code = TRY
    if damaged:
        code = "import triton\ntriton.knobs.NvidiaTool.from_path = lambda path: None\n" + TRY
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, **own, "CC": "none", "HOME": str(tmp_path / "no-home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if damaged:
        assert done.stdout.startswith("it cannot compile: ")
        assert "ptxas" in done.stdout
    else:
        assert done.stdout == "\n"
        assert any((tmp_path / "kept").rglob("*.cubin"))
    assert not (tmp_path / "no-home").exists()


def test_launch_when_the_grid_is_empty_then_nothing_is_asked_of_the_driver() -> None:
    """A chunk that wants no token norms no row; the driver refuses a grid of nothing."""
    for grid in ((0,), (0, 4), (4, 0)):
        CardKernel(stand_in("x")).launch(grid, torch.zeros(0))


def test_launch_when_another_dtype_or_card_comes_then_it_is_loaded_anew(card):
    """What is kept holds for its own kind of arguments, and for the card it was loaded on."""
    kernel = CardKernel(stand_in("x"))
    first, half = on_card(torch.zeros(64)), on_card(torch.zeros(64, dtype=torch.bfloat16))
    for x in (first, half, first, half):
        kernel.launch((1,), x)
    CARD_2 = torch.device("cuda:2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "device", property(lambda self: CARD_2))
        kernel.launch((1,), first)
    assert [(image, index, stream) for image, index, *_, stream in card.launched] == [
        (b"1", 1, 77), (b"2", 1, 77), (b"1", 1, 77), (b"2", 1, 77), (b"3", 2, 78)
    ]  # fmt: skip
    assert [kinds for kinds, *_ in card.compiled] == [
        [("*fp32", True)], [("*bf16", True)], [("*fp32", True)]
    ]  # fmt: skip


def test_launch_when_no_tensor_says_where_then_it_is_refused(card):
    """The first argument names the card."""
    with pytest.raises(TypeError, match="first argument"):
        CardKernel(stand_in("x")).launch((1,), 5)
