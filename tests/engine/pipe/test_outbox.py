"""The queue to the writer: merging, replacing, order, bounded memory."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from engine.pipe.outbox import MAX_DELTA_CHARS, Outbox
from engine.protocol.messages import (
    Finished,
    FinishReason,
    Heartbeat,
    Progress,
    Started,
    Stats,
    TokenDelta,
    ToolCallDelta,
)


def _delta(request, text, kind="text", tokens=1):
    return TokenDelta(id=request, kind=kind, text=text, num_tokens=tokens)


def test_deltas_of_one_request_merge_while_they_wait():
    """Text and token counts add up; other requests in between do not matter."""
    box = Outbox()
    for event in (_delta("a", "x"), _delta("b", "1"), _delta("a", "y", tokens=2)):
        box.put(event)
    assert box.take() == [_delta("a", "xy", tokens=3), _delta("b", "1")]


def test_deltas_never_slip_over_another_event_of_their_request():
    """Reasoning, tool call and end keep their places."""
    box = Outbox()
    call = ToolCallDelta(id="a", call_id="1", name="f", arguments="{}")
    end = Finished(id="a", reason=FinishReason.STOP)
    events = [
        Started(id="a", prompt_tokens=1),
        _delta("a", "think", "reasoning"),
        _delta("a", "x"),
        call,
        _delta("a", "y"),
        end,
    ]
    for event in events:
        box.put(event)
    assert box.take() == events


def test_figures_that_wait_are_replaced_in_place():
    """A slow window gets the newest statistics only."""
    box = Outbox()
    for number in range(5):
        box.put(Heartbeat(uptime_s=number))
        box.put(Stats(interval_s=number))
        box.put(Progress(id="l", stage="read", done_bytes=number))
        box.put(Progress(id="l", stage="build", done_bytes=number))
    assert box.take() == [
        Heartbeat(uptime_s=4),
        Stats(interval_s=4),
        Progress(id="l", stage="read", done_bytes=4),
        Progress(id="l", stage="build", done_bytes=4),
    ]


def test_one_line_does_not_grow_without_bound():
    """A merged delta stays far below the longest line."""
    box = Outbox()
    piece = "x" * 1000
    for _ in range(200):
        box.put(_delta("a", piece))
    out = box.take()
    assert sum(len(event.text) for event in out) == 200_000
    assert max(len(event.text) for event in out) <= MAX_DELTA_CHARS


def test_nothing_is_taken_after_close_but_what_waited():
    """Close ends the writer without losing the last events."""
    box = Outbox()
    box.put(Heartbeat(uptime_s=1))
    box.close()
    box.put(Heartbeat(uptime_s=2))
    assert box.take() == [Heartbeat(uptime_s=1)]
    assert box.take() == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("delta"), st.sampled_from("abc"), st.text(min_size=1, max_size=4)),
            st.tuples(st.just("stats"), st.just(""), st.just("")),
            st.tuples(st.just("take"), st.just(""), st.just("")),
        ),
        max_size=60,
    )
)
def test_text_of_each_request_whatever_is_merged_arrives_whole(acts):
    """Joined deltas are the text that was put, in order."""
    box, sent, got = Outbox(), {}, {}

    def collect():
        for event in box.take(0):
            if isinstance(event, TokenDelta):
                got[event.id] = got.get(event.id, "") + event.text

    for act, request, text in acts:
        if act == "delta":
            sent[request] = sent.get(request, "") + text
            box.put(_delta(request, text))
        elif act == "stats":
            box.put(Stats(interval_s=0))
        else:
            collect()
    collect()
    assert got == sent


def test_take_wakes_when_something_is_put():
    """The writer sleeps without polling."""
    box, out = Outbox(), []
    thread = threading.Thread(target=lambda: out.extend(box.take()))
    thread.start()
    box.put(Heartbeat(uptime_s=1))
    thread.join(5)
    assert out == [Heartbeat(uptime_s=1)]
