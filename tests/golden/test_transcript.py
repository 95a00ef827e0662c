"""`python -m engine < tests/golden/requests.jsonl` is a whole, repeatable conversation."""

import pytest

from engine.protocol.messages import Error, Finished, StateChanged, Status
from tests.golden.transcript import essence, read, run

pytestmark = pytest.mark.weights


def test_transcript_when_replayed_gives_the_recorded_conversation(converted_home):
    """Same tokens, same counts, same sizes; every request ends once, the engine by itself."""
    events = run(converted_home.root)
    assert essence(events) == read()
    ends = [event.id for event in events if isinstance(event, Finished)]
    assert sorted(ends) == ["chat-1", "chat-2", "chat-3"]
    assert [e.code.value for e in events if isinstance(e, Error)] == ["invalid_request"]
    assert [e.state.value for e in events if isinstance(e, StateChanged)][-1] == "stopping"
    for status in (event for event in events if isinstance(event, Status)):
        for device in status.devices:
            assert sum(pool.used_bytes for pool in device.pools) == device.total_bytes
