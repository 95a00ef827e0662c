"""The engine client against the fake engine: order, ends, accidents."""

import pytest

from app.services.engine_process import ProcessLimits
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.support.app_engine import Recorder

HELLO = (m.ChatMessage(role="user", parts=(m.Part(text="hello"),)),)
FAST = ProcessLimits(first_output_s=10, silence_s=0.6, eof_after_s=0.15, kill_after_s=0.4)


def text_of(recorder):
    return "".join(event.text for event in recorder.of("delta"))


def test_generate_when_loaded_then_deltas_pass_unmodified(qtbot, loaded_client):
    """Whatever the engine sends as text arrives whole and in order; one end."""
    client = loaded_client("--tokens", "30", "--reasoning", "5")
    seen = Recorder(client, "started", "delta", "finished", "failed")
    with qtbot.waitSignal(client.finished):
        reply = client.generate(HELLO, m.Sampling())
    assert seen.names == ["started", *["delta"] * 30, "finished"]
    assert [d.kind for d in seen.of("delta")].count("reasoning") == 5
    assert text_of(seen).startswith("The small engine answers")
    assert seen.of("finished")[0].id == reply
    assert client.open_ids == ()


def test_commands_before_ready_when_slow_start_then_kept_and_sent(qtbot, make_client):
    """A slow start loses no command; heartbeats come meanwhile."""
    client = make_client("--ready-delay", "0.3")
    seen = Recorder(client, "ready", "heartbeat", "loaded")
    with qtbot.waitSignal(client.loaded):
        client.start()
        client.load("/models/fake")
        assert not client.is_ready
    assert seen.names.index("heartbeat") < seen.names.index("ready") < seen.names.index("loaded")
    assert client.model is not None
    assert client.model.name == "fake"


def test_engine_abort_mid_reply_then_one_end_and_no_lost_text(qtbot, loaded_client):
    """All text sent before the crash arrives, then failed, finished(error), stopped: once each."""
    client = loaded_client("--tokens", "50", "--crash-at", "20")
    seen = Recorder(client, "delta", "failed", "finished", "stopped")
    with qtbot.waitSignal(client.stopped):
        client.generate(HELLO, m.Sampling())
    assert seen.names == [*["delta"] * 20, "failed", "finished", "stopped"]
    outcome = seen.of("stopped")[0]
    assert outcome.unexpected
    assert "crashed" in outcome.sentence
    assert outcome.last_log == "ERROR fake: aborting as told"
    assert seen.of("finished")[0].reason is m.FinishReason.ERROR
    assert client.model is None
    assert not client.is_running


def test_engine_lost_device_then_its_code_reaches_the_requests(qtbot, loaded_client):
    """E-05: the JSON error on the last line of stderr decides the kind of failure."""
    client = loaded_client("--exit-at", "3")
    seen = Recorder(client, "failed", "stopped")
    with qtbot.waitSignal(client.stopped):
        client.generate(HELLO, m.Sampling())
    assert seen.of("failed")[0].code is ErrorCode.DEVICE
    assert seen.of("stopped")[0].exit_code == 3


def test_engine_death_with_many_open_then_each_ends_once(qtbot, loaded_client):
    """Replies, loads, counts: all end exactly once when the process is killed."""
    client = loaded_client("--rate", "20", "--resize", "hold")
    seen = Recorder(client, "failed", "finished", "stopped")
    with qtbot.waitSignal(client.started):
        ids = [client.generate(HELLO, m.Sampling()) for _ in range(3)]
    resize = client.resize(expert_slots=80)
    with qtbot.waitSignal(client.stopped):
        client.process._process.kill()  # as from outside: kill -9
    assert sorted(e.id for e in seen.of("finished")) == sorted(ids)
    assert sorted(e.id for e in seen.of("failed")) == sorted([*ids, resize])
    assert seen.names[-1] == "stopped"
    assert client.open_ids == ()


def test_generate_without_engine_then_fails_after_returning_the_id(qtbot, make_client):
    """The caller knows the id before it hears of the end."""
    client = make_client()
    seen = Recorder(client, "failed", "finished")
    with qtbot.waitSignal(client.finished):
        reply = client.generate(HELLO, m.Sampling())
        assert seen.names == []
    assert [e.id for _, e in seen.events] == [reply, reply]


def test_cancel_when_generating_then_finished_as_cancelled(qtbot, loaded_client):
    """Stop ends a reply once, without a failure."""
    client = loaded_client("--rate", "50", "--tokens", "400")
    seen = Recorder(client, "failed", "finished")
    with qtbot.waitSignal(client.delta):
        reply = client.generate(HELLO, m.Sampling())
    with qtbot.waitSignal(client.finished):
        client.cancel(reply)
        client.cancel(reply)
    assert [e.reason for e in seen.of("finished")] == [m.FinishReason.CANCELLED]
    assert seen.of("failed") == []


def test_cancel_before_ready_then_ends_within_a_second(qtbot, make_client):
    """G-10: Stop works while the engine is still starting."""
    client = make_client("--ready-delay", "5")
    client.start()
    reply = client.generate(HELLO, m.Sampling())
    with qtbot.waitSignal(client.finished, timeout=1_000) as end:
        client.cancel(reply)
    assert end.args[0].reason is m.FinishReason.CANCELLED


def test_cancel_load_then_failed_as_cancelled(qtbot, make_client):
    """A load can be stopped; the engine stays."""
    client = make_client("--load-delay", "5")
    with qtbot.waitSignal(client.progress):
        client.start()
        load = client.load("/models/fake")
    with qtbot.waitSignal(client.failed, timeout=1_000) as end:
        client.cancel(load)
    assert end.args[0].code is ErrorCode.CANCELLED
    assert client.is_running


def test_stray_lines_then_ignored_and_logged(qtbot, make_process):
    """Prints of a library on stdout neither break the session nor vanish."""
    from app.services.engine_client import EngineClient

    notes = []
    client = EngineClient(make_process("--stray"), notes.append)
    with qtbot.waitSignal(client.loaded):
        client.start()
        client.load("/models/fake")
    assert len(notes) == 2
    assert all("not a message" in note for note in notes)


def test_other_protocol_version_then_refused_and_stopped(qtbot, make_client):
    """One sentence with both numbers, and the process is asked to go."""
    client = make_client("--version", "2")
    seen = Recorder(client, "failed", "stopped", "ready")
    with qtbot.waitSignal(client.stopped):
        client.start()
    assert seen.names == ["failed", "stopped"]
    assert "protocol 2" in seen.of("failed")[0].message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["resize_pending", "resize_applied"]),
        (("--resize", "refused"), ["resize_refused"]),
    ],
)
def test_resize_then_its_events(qtbot, loaded_client, arguments, expected):
    """Pending and applied, or refused; the request is closed by the answer."""
    client = loaded_client(*arguments)
    seen = Recorder(client, "resize_pending", "resize_applied", "resize_refused", "status")
    with qtbot.waitSignal(getattr(client, expected[-1])):
        client.resize(expert_slots=100)
    assert [n for n in seen.names if n != "status"] == expected
    assert client.open_ids == ()


def test_policy_status_and_count_then_answered(qtbot, loaded_client):
    """Each small command gets its answer and is forgotten."""
    client = loaded_client()
    with qtbot.waitSignal(client.status, check_params_cb=lambda s: s.policy == "cpu_only"):
        client.set_policy(m.MissPolicy.CPU_ONLY)
    with qtbot.waitSignal(client.status):
        client.request_status()
    with qtbot.waitSignal(client.token_count) as count:
        client.count_tokens(HELLO)
    assert count.args[0].num_tokens == 1
    with qtbot.waitSignal(client.unloaded):
        client.unload()
    assert client.model is None
    assert client.open_ids == ()
