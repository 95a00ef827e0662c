"""Speeds from stats frames: what is too short to tell is not told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.viewmodels.decode_window import LEAST_TOKENS, MOST_S, DecodeWindow, frame_of
from engine.protocol import messages as m


def frame(speed, running=1, interval_s=0.25, hit=0.5, routes=100):
    return m.Stats(
        interval_s=interval_s,
        running=running,
        decode_tokens_per_s=speed,
        hit_share=hit,
        routes=routes,
    )


def told(*frames):
    window = DecodeWindow()
    return [seen.decode_tokens_per_s for f in frames if (seen := window.take(f)) is not None]


def test_first_and_last_frame_then_they_do_not_count():
    """The prefill in the first and the silence in the last one would show a false low speed."""
    assert told(frame(0), frame(12), frame(100), frame(96), frame(30, running=0)) == [100, 96]


def test_slow_model_then_frames_are_averaged():
    """A token now and none then is a steady 2 tokens per second."""
    frames = [frame(4 if i % 2 else 0) for i in range(20)]
    assert told(*frames) == pytest.approx([2.0, 2.0])


@given(st.lists(st.floats(0, 400), min_size=1, max_size=60))
def test_any_frames_then_each_told_stretch_holds_enough(speeds):
    """Enough tokens or enough time, and nothing above or below what was measured."""
    window = DecodeWindow()
    for speed in speeds:
        seen = window.take(frame(speed))
        if seen is not None:
            tokens = seen.decode_tokens_per_s * seen.interval_s
            assert tokens >= LEAST_TOKENS * 0.999 or seen.interval_s >= MOST_S
            assert 0 < seen.decode_tokens_per_s <= max(speeds) * 1.001


def test_shares_then_weighted_by_what_each_frame_served():
    """A frame with few routes says little about hits."""
    window = DecodeWindow()
    window.take(frame(1))
    window.take(frame(16, hit=1.0, routes=300))
    seen = window.take(frame(16, hit=0.0, routes=100))
    assert seen.hit_share == pytest.approx(0.75)
    assert seen.routes == 400


def test_reply_as_a_frame_then_its_own_rates_or_nothing():
    """One token has no decode rate."""
    trace = m.Trace(decode_s=2.0, decode_tokens_per_s=20.0, hit_share=0.6)
    usage = m.Usage(reply_tokens=41)
    end = m.Finished(id="a", reason=m.FinishReason.STOP, trace=trace, usage=usage)
    whole = frame_of(end, 32)
    assert (whole.decode_tokens_per_s, whole.routes, whole.hit_share) == (20.0, 32 * 41, 0.6)
    assert frame_of(m.Finished(id="a", reason=m.FinishReason.STOP), 32) is None
