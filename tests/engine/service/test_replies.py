"""What is said about a reply while its ids come: whole characters, and never an empty delta."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.loader.parts import Reply
from engine.protocol.messages import Finished, FinishReason, TokenDelta
from engine.service.replies import Replies
from engine.text.chat import ChatText
from tests.engine.scheduler.doubles import make_request
from tests.support.checkpoints import write_checkpoint

TEXTS = ("日本語のお返事です。", "客单价 щёчки 👩\u200d👩\u200d👧\u200d👦!", "a <think>b</think> c")


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A tokenizer with one token a byte: most ids complete no character."""
    return ChatText.from_folder(write_checkpoint(tmp_path_factory.mktemp("bytes") / "model"))


def said(reply: Reply, ids):
    """Every event about a reply of these ids."""
    events = []
    replies = Replies(events.append)
    request = make_request("a", (1,))
    replies.open("a", reply)
    for token_id in ids:
        if replies.token(request, token_id):
            break
    replies.finished(request, FinishReason.STOP, None)
    return events


@given(st.sampled_from(TEXTS) | st.text(max_size=30), st.sampled_from(["", "。", "щ"]))
def test_delta_whatever_the_text_then_it_says_something(chat, text, stop):
    """Case A-13: some readers take an empty delta for the end; case A-11: no broken character."""
    ids = chat.tokenizer.encode(chat.tokenizer.guard(text))
    events = said(chat.reply((stop,) if stop else ()), ids)
    deltas = [event for event in events if isinstance(event, TokenDelta)]
    assert all(delta.text for delta in deltas)
    assert isinstance(events[-1], Finished)
    joined = "".join(delta.text for delta in deltas if delta.kind == "text")
    if stop:
        assert stop not in joined
    elif "<" not in text:
        assert joined == text


def test_delta_when_ids_complete_no_character_then_none_is_sent(chat):
    """Case A-13: two of the three bytes of a character are silence, and the count is not lost."""
    ids = chat.tokenizer.encode("本")
    assert len(ids) == 3
    assert not [e for e in said(chat.reply(), ids[:2]) if isinstance(e, TokenDelta)]
    (delta,) = [e for e in said(chat.reply(), ids) if isinstance(e, TokenDelta)]
    assert (delta.text, delta.num_tokens) == ("本", 3)
