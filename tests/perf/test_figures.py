"""The arithmetic behind the benchmarks' tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.client import Reply, decode_rate
from tests.perf.limits import (
    ModelBytes,
    Rates,
    beyond_us,
    decode_limit_s,
    missed_bytes,
    prefill_limit_s,
)
from tests.perf.probe import numpy_read_rate, rates_of, read_rate, thread_counts
from tests.perf.serve_decode import stretch
from tests.perf.serve_resize import longest_gap_s
from tests.perf.tables import table
from tests.perf.walk import RingWalk, StoryWalk

MODEL = ModelBytes(record=9, pool=9 * 3072, dense=100, kv_token=1, layers=24, top_k=8)
amounts = st.floats(0, 1e12)
speeds = st.floats(1e-3, 1e12)


def test_limit_when_worked_by_hand() -> None:
    """Half of 192 x 9 bytes missed at 10 B/s is longer than the rest at 100 B/s."""
    missed = missed_bytes(MODEL, 0.5)
    assert missed == 864
    rates = Rates(main=10, device=100, link=5)
    assert decode_limit_s(MODEL, rates, missed, 864, 36) == pytest.approx(86.4)
    assert decode_limit_s(MODEL, rates, 0, 1728, 36) == pytest.approx(18.64)
    assert decode_limit_s(MODEL, Rates(main=10), missed, 864, 36) == pytest.approx(186.4)
    assert prefill_limit_s(MODEL, rates, 0.75) == pytest.approx(9 * 3072 / 4 / 5)
    assert prefill_limit_s(MODEL, Rates(main=10), 0.75) == 0
    assert beyond_us(1.24e-2, 1e-2, 24) == pytest.approx(100)


@given(speeds, speeds, amounts, amounts, amounts)
def test_limit_when_more_is_missed_or_memory_is_slower_then_never_shorter(
    main: float, device: float, missed: float, hit: float, more: float
) -> None:
    rates = Rates(main=main, device=device)
    limit = decode_limit_s(MODEL, rates, missed, hit, 10)
    assert limit >= missed / main
    assert decode_limit_s(MODEL, rates, missed + more, hit, 10) >= limit
    assert decode_limit_s(MODEL, Rates(main / 2, device / 2), missed, hit, 10) >= limit
    assert decode_limit_s(MODEL, Rates(main=main), missed, hit, 10) >= missed / main


@given(st.floats(0, 1), st.floats(0, 1))
def test_missed_when_more_hits_then_never_more(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= missed_bytes(MODEL, high) <= missed_bytes(MODEL, low) <= MODEL.routed


def reply(*arrivals: tuple[float, int]) -> Reply:
    return Reply(sent_s=0.0, arrivals=list(arrivals))


def test_rate_when_one_reply_then_the_first_token_does_not_count() -> None:
    assert decode_rate([reply((1.0, 1), (1.5, 2), (2.0, 2))]) == pytest.approx(4.0)
    assert decode_rate([reply((1.0, 1))]) == 0


def test_rate_when_a_stretch_of_a_reply_is_asked_for_then_what_is_around_does_not_count() -> None:
    """From the third token, which only marks the beginning, to the seventh; two came together."""
    whole = reply((1.0, 1), (5.0, 2), (5.5, 1), (6.0, 2), (7.0, 1), (9.0, 3))
    part = stretch(whole, 3, 7)
    assert part.arrivals == [(5.0, 2), (5.5, 1), (6.0, 2), (7.0, 1)]
    assert decode_rate([part]) == pytest.approx(2.0)
    assert stretch(whole, 7, 10).arrivals == [(7.0, 1), (9.0, 3)]


def test_rate_when_several_then_only_while_all_of_them_decode() -> None:
    """From 2.0 (the later first token) to 4.0 (the earlier last one): 2 + 4 tokens."""
    early = reply((1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1))
    late = reply((2.0, 1), (3.0, 2), (4.0, 2), (5.0, 9))
    assert decode_rate([early, late]) == pytest.approx(3.0)
    assert decode_rate([late, early]) == pytest.approx(3.0)


def test_gap_when_text_pauses_then_the_longest() -> None:
    assert longest_gap_s(reply((1.0, 1), (1.25, 1), (2.0, 1), (2.25, 1))) == 0.75
    assert longest_gap_s(reply((1.0, 1))) == 0


def test_ring_when_a_prompt_ends_then_the_reply_is_known_around_the_end() -> None:
    walk = RingWalk(100)
    assert walk.prompt(97, 4) == "t97 t98 t99 t0"
    assert walk.judge(97, 4, "t1 t2 t3") == (3, 3)
    assert walk.judge(97, 4, "t1 t7 t3") == (2, 3)


def test_story_when_a_prompt_comes_again_then_its_reply_must_be_the_first_one() -> None:
    walk = StoryWalk()
    assert len(walk.prompt(5, 100).split()) == 100
    assert walk.judge(5, 100, "once upon a time") == (4, 4)
    assert walk.judge(5, 100, "once upon no") == (2, 4)
    assert walk.judge(6, 100, "another") == (1, 1)


def test_table_when_cells_differ_in_kind_then_columns_line_up() -> None:
    rows = [{"a": 1234.5, "b": None}, {"a": 0.12345, "b": "x", "c": 7}]
    assert table(rows, ["a", "b", "c"]) == "    a  b  c\n 1234  -  -\n0.123  x  7"


def test_rates_when_a_probe_says_gb_then_limits_get_bytes() -> None:
    figures = {"main_gbps": 140.0, "device_gbps": 4200.0, "link_gbps": 55.0}
    assert rates_of(figures) == Rates(main=140e9, device=4200e9, link=55e9)


@pytest.mark.parametrize("read", [read_rate, numpy_read_rate])
@pytest.mark.parametrize("threads", [1, 3])
def test_read_when_memory_is_small_then_there_is_a_rate(read: object, threads: int) -> None:
    """More threads than cores, and parts that do not divide evenly."""
    assert callable(read)
    assert read(np.ones(1_000_003, np.uint8), threads, 0.001) > 0


def test_counts_when_there_are_few_cores_then_none_beyond_them() -> None:
    assert thread_counts(2) == [1, 2]
    assert thread_counts(10) == [1, 2, 4, 6, 8, 10]
