"""The kernel registry: every line imports, and every choice explains itself."""

from dataclasses import replace

import pytest
import torch

from kernels.__main__ import main
from kernels.layouts import RecordLayout
from kernels.registry import LINES, Line, choices, choose
from tests.support.experts import random_record


@pytest.mark.parametrize("op", LINES)
def test_choose_when_on_any_device_finds_an_importable_line(op):
    """Plain torch is always there (a line whose module is missing would show here)."""
    for device in ("cpu", "cuda:0", "fake"):
        for encoding in ("bf16", "fp8_block", None):
            choice = choose(op, device, encoding)
            assert choice.reason
            assert callable(choice.load())


def test_choose_when_faster_lines_do_not_fit_says_why_not(monkeypatch):
    """The reason of a slower path is recorded."""
    lines = (
        Line("card", "none:x", "fast", device="cuda"),
        Line("packed", "none:x", "fast", encodings=("bf16",)),
        Line("wide", "none:x", "fast", requirement=f"{__name__}:narrow"),
        Line("reference", f"{__name__}:narrow", "plain"),
    )
    monkeypatch.setitem(LINES, "trial", lines)
    choice = choose("trial", "cpu", "fp8_block")
    assert choice.name == "reference"
    assert choice.reason == (
        "plain; not card: it runs on cuda; not packed: it does not read fp8_block; "
        "not wide: this CPU is narrow"
    )
    assert choose("trial", "cuda:1").name == "card"


@pytest.mark.parametrize("op", [op for op in LINES if any(one.requirement for one in LINES[op])])
def test_choose_when_a_probe_breaks_then_the_next_line_serves_and_says_why(monkeypatch, op):
    """Case E-06: asking a card or a library what it can do may itself fail."""
    lines = [
        replace(one, requirement=one.requirement and f"{__name__}:broken") for one in LINES[op]
    ]
    monkeypatch.setitem(LINES, op, tuple(lines))
    for line in lines:
        if line.requirement:
            dtype = (*line.dtypes, torch.float32)[0]
            choice = choose(op, line.device, "fp8_block", dtype=dtype)
            assert choice.name == "reference"
            assert f"not {line.name}: its probe failed: no such instruction" in choice.reason
            assert callable(choice.load())


def test_choose_when_the_fast_kernel_is_out_then_fp8_experts_agree(monkeypatch):
    """Case E-06: the slower path gives the same rows, within another order of sums."""
    layout = RecordLayout(64, 48, "fp8_block", 16)
    generator = torch.Generator().manual_seed(6)
    record = random_record(layout, generator)
    x = torch.randn(3, layout.hidden, generator=generator)
    fast = _rows(layout, record, x)
    lines = LINES["expert_rows"]
    broken = replace(lines[0], requirement=f"{__name__}:broken")
    monkeypatch.setitem(LINES, "expert_rows", (broken, *lines[1:]))
    assert choose("expert_rows", "cpu", "fp8_block").name == "reference"
    slow = _rows(layout, record, x)
    assert (fast - slow).abs().max() <= 1e-5 * slow.abs().max()


def test_choose_when_nothing_fits_raises_with_every_reason(monkeypatch):
    """An operation without a runnable line is an error that can be read."""
    monkeypatch.setitem(LINES, "trial", (Line("card", "none:x", "fast", device="cuda"),))
    with pytest.raises(LookupError, match="not card: it runs on cuda"):
        choose("trial", "cpu")
    with pytest.raises(LookupError, match="unknown operation"):
        choose("nothing", "cpu")


def test_main_when_run_prints_a_line_per_operation(capsys):
    """`python -m kernels` is a table: operation, implementation, why."""
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(LINES)
    assert len(lines) == len(choices("cpu"))
    assert main(["cpu", "int3"]) == 1


def narrow():
    return "this CPU is narrow"


def broken():
    raise RuntimeError("no such instruction")


def _rows(layout, record, x):
    kernel = choose("expert_rows", "cpu", layout.encoding).load()(layout, torch.device("cpu"))
    kernel.load([record])
    return kernel.rows(x).clone()
