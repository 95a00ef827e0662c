"""The bench of sampling runs on a CPU: structure, never speed."""

import pytest

from tests.perf.gpu_sampling import KINDS, main


def test_bench_when_sizes_are_tiny_then_a_line_for_each_kind_and_number_of_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--device", "cpu", "--vocab", "90", "--rows", "1", "3", "--repeats", "2"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 2 * len(KINDS) + 2
    for line, name in zip(lines[: 2 * len(KINDS) : 2], KINDS, strict=True):
        assert line.startswith(name)
        figures = [float(one) for one in line[len(name) :].split()[1:4]]
        assert [one > 0 for one in figures] == [True, name != "greedy", name != "greedy"]
