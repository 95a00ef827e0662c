"""The kernel registry: every line imports, and every choice explains itself."""

import pytest

from kernels.__main__ import main
from kernels.registry import LINES, Line, choices, choose


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
