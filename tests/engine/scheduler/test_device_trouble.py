"""A device without memory ends one request at most; a lost one ends them all, with a sentence."""

import pytest

from engine.protocol.errors import DeviceError
from tests.engine.scheduler.doubles import ERROR, LENGTH, make_bench, reply_of

PROMPT = list(range(5, 75))


@pytest.mark.parametrize("problem", [DeviceError("gone"), ConnectionError("gone")])
def test_device_lost_in_prefill_ends_everything_as_an_error(problem):
    """Case E-05: the engine stops cleanly and says what to try."""
    bench = make_bench()
    bench.submit("a", PROMPT)
    bench.submit("b", PROMPT)
    bench.scheduler.step()
    bench.runner.faults.append(problem)
    with pytest.raises(DeviceError):
        bench.run()
    assert bench.sink.ends == {"a": ERROR, "b": ERROR}


@pytest.mark.parametrize("latency", [0, 1])
def test_device_out_of_memory_gives_experts_back_and_retries_once(latency):
    """The reply goes on; without relief only its own request fails, and the engine stays."""
    bench = make_bench(relieves=1, latency=latency)
    bench.submit("a", PROMPT, 10)
    bench.scheduler.step()
    bench.scheduler.step()
    bench.scheduler.step()
    bench.scheduler.step()
    bench.runner.faults.append(MemoryError("full"))
    bench.run()
    assert bench.relieved == [1]
    assert bench.sink.tokens["a"] == reply_of(PROMPT, 10)
    bench.runner.faults.extend([MemoryError("full")])
    bench.submit("b", PROMPT, 10)
    bench.run()
    assert bench.sink.ends["b"] == ERROR
    assert "memory" in bench.sink.problems["b"].message
    bench.submit("c", PROMPT, 3)
    bench.run()
    assert bench.sink.ends["c"] == LENGTH
    bench.assert_clean()


@pytest.mark.parametrize("latency", [0, 1])
def test_device_out_of_memory_when_a_reply_begins_then_asked_once_more_else_that_one_fails(latency):
    """Penalties need memory of their own; the reply that runs beside it is the same."""
    bench = make_bench(relieves=1, latency=latency)
    bench.submit("a", PROMPT, 40)
    bench.scheduler.step()
    bench.runner.open_faults.extend([MemoryError("full"), None, MemoryError("full"), None])
    for name in "bcd":
        bench.submit(name, PROMPT, 10)
        bench.scheduler.step()
    bench.run()
    assert bench.relieved == [1]
    assert bench.sink.ends == {"a": LENGTH, "b": LENGTH, "c": ERROR, "d": LENGTH}
    assert "memory" in bench.sink.problems["c"].message
    assert bench.sink.tokens["a"] == reply_of(PROMPT, 40)
    assert bench.sink.tokens["b"] == bench.sink.tokens["d"] == reply_of(PROMPT, 10)
    bench.assert_clean()


def test_device_lost_when_a_reply_begins_then_everything_ends_as_an_error():
    """Case E-05, at the first touch of the device."""
    bench = make_bench()
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    bench.submit("b", PROMPT)
    bench.runner.open_faults.append(ConnectionError("gone"))
    with pytest.raises(DeviceError):
        bench.run()
    assert bench.sink.ends == {"a": ERROR, "b": ERROR}
