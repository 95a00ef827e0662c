"""`python -m engine < tests/golden/requests.jsonl` is a whole, repeatable conversation."""

import pytest

from engine.protocol.messages import Error, Finished, StateChanged, Status
from kernels.device.registry import list_devices
from tests.golden.transcript import essence, read, replies, run

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


@pytest.mark.gpu
def test_transcript_when_on_a_gpu_gives_the_same_tokens(converted_home):
    """No CPU assumption is baked in: the same requests, the same tokens on another device."""
    cards = [one for one in list_devices(("cuda",)) if one.name.startswith("cuda")]
    if not cards or cards[0].problem:
        pytest.skip("needs an NVIDIA GPU")
    assert replies(essence(run(converted_home.root, "cuda"))) == replies(read())
