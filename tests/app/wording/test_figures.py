"""Figures as people read them."""

import pytest

from app.wording import figures


@pytest.mark.parametrize(
    ("name", "shown"),
    [("fp8_block", "FP8"), ("bf16", "BF16"), ("mxfp4", "MXFP4"), ("fp8", "FP8"), ("", "")],
)
def test_weight_format_then_written_as_people_write_it(name: str, shown: str) -> None:
    """No identifier of the engine reaches the window."""
    assert figures.weight_format(name) == shown
