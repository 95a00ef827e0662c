"""Sentences and figures."""

import pytest

from app.wording import figures
from app.wording.sentences import error_words, finish_words, state_words
from engine.protocol.errors import ErrorCode
from engine.protocol.messages import EngineState, FinishReason


def test_every_member_of_the_closed_sets_then_it_has_words() -> None:
    """A new code without words fails here, not in front of a person."""
    for code in ErrorCode:
        words = error_words(code)
        assert words.title
        assert words.cause.endswith(".")
        assert words.action
    assert all(state_words(state) for state in EngineState)
    assert all(finish_words(reason) for reason in FinishReason)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0.0 KiB"), (29 * 2**20, "29.0 MiB"), (2**30, "1.0 GiB"), (158 * 2**30, "158 GiB")],
)
def test_memory_then_mib_below_one_gib(num_bytes: int, text: str) -> None:
    """The built-in model is tiny: its memory is told in MiB."""
    assert figures.memory(num_bytes) == text


def test_memory_pair_then_both_are_in_the_unit_of_the_total() -> None:
    """Used and total can be compared at a glance."""
    assert figures.memory_pair(512 * 2**20, 32 * 2**30) == "0.5 / 32.0 GiB"
    assert figures.memory_pair(12 * 2**20, 64 * 2**20) == "12.0 / 64.0 MiB"
    assert figures.memory_pair(158 * 2**30, 192 * 2**30) == "158 / 192 GiB"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (812, "812"), (18_400, "18.4K"), (524_288, "512K"), (181_250, "181K")],
)
def test_tokens_then_k_above_a_thousand(count: int, text: str) -> None:
    """Powers of two are written as everybody writes them."""
    assert figures.tokens(count) == text


def test_file_size_rate_and_share_then_units_are_apart_by_a_space() -> None:
    """GB for files, decimal."""
    assert figures.file_size(63_000_000_000) == "63.0 GB"
    assert figures.file_size(37_800_000) == "37.8 MB"
    assert figures.file_size(1_180_000_000_000) == "1.2 TB"
    assert figures.rate(24.84) == "24.8"
    assert figures.share(0.634) == "63 %"
