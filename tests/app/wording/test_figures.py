"""Figures as people read them."""

import pytest

from app.predict import amounts
from app.wording import figures


@pytest.mark.parametrize(
    ("name", "shown"),
    [("fp8_block", "FP8"), ("bf16", "BF16"), ("mxfp4", "MXFP4"), ("fp8", "FP8"), ("", "")],
)
def test_weight_format_then_written_as_people_write_it(name: str, shown: str) -> None:
    """No identifier of the engine reaches the window."""
    assert figures.weight_format(name) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0, "<0.1 ms"), (0.4, "0.4 ms"), (9.97, "10 ms"), (31, "31 ms"), (999.7, "1.0 s")],
)
def test_pause_then_no_figure_that_reads_as_nothing(milliseconds: float, shown: str) -> None:
    """Nothing takes 0.0 ms, and ten do not have a tenth."""
    assert amounts.milliseconds(milliseconds) == shown
