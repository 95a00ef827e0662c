"""Ends, silences and standstills of the engine: what is said, and when it may start by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.outcome import EndCause, ProcessOutcome
from app.viewmodels.resilience import End, may_restart
from app.viewmodels.session_words import lost_engine
from engine.protocol import messages as m
from tests.app.viewmodels.test_session import HELLO, start, world

__all__ = ["world"]
ENDS = st.builds(
    End,
    cause=st.sampled_from(EndCause),
    lost_replies=st.integers(0, 3),
    was_ready=st.booleans(),
)
SAFE = End(EndCause.CRASHED, 0, True)


@given(ENDS, st.booleans(), st.booleans())
def test_restart_then_only_if_wanted_harmless_and_useful(end, wanted, reached):
    """Each condition alone forbids it; together they allow it."""
    allowed = may_restart(wanted, end, reached)
    helps = end.cause not in (
        EndCause.DEVICE, EndCause.MEMORY, EndCause.PROTOCOL, EndCause.NOT_STARTED,
    )  # fmt: skip
    assert allowed == (wanted and not reached and end.lost_replies == 0 and end.was_ready and helps)
    assert may_restart(True, SAFE, False)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"signal": 11}, EndCause.CRASHED),
        ({"signal": 9}, EndCause.KILLED),
        ({"exit_code": 3}, EndCause.DEVICE),
        ({"exit_code": 2}, EndCause.PROTOCOL),
        ({"exit_code": 4}, EndCause.INTERNAL),
        ({"exit_code": 0}, EndCause.ENDED),
        ({"exit_code": 1}, EndCause.ENDED),
        ({"was_started": False}, EndCause.NOT_STARTED),
        ({"exit_code": 3, "error_line": '{"type":"error","code":"budget","message":"x"}'},
         EndCause.MEMORY),
        ({"exit_code": 3, "error_line": "{ torn"}, EndCause.DEVICE),
    ],
)  # fmt: skip
def test_cause_then_what_the_engine_said_beats_the_exit_code(fields, cause):
    """From signal, code or its own last word."""
    if "error_line" in fields and cause is EndCause.MEMORY:
        event = m.Error(code="budget", message="needs 9.1 GiB, 7.6 GiB free")
        fields = fields | {"error_line": m.encode(event).decode()}
    outcome = ProcessOutcome(True, "It stopped.", **fields)
    assert outcome.cause is cause
    again = outcome.explained()
    assert ("needs 9.1 GiB" in again.sentence) == (cause is EndCause.MEMORY)
    assert again.explained() == again


def test_words_then_each_cause_has_its_pill_and_way_out():
    """A lost card is not mended by a smaller cache alone; after a sleep that is the suspect."""
    lost = lost_engine(ProcessOutcome(True, "Gone.", exit_code=3), False)
    assert (lost.pill, lost.can_restart) == ("GPU lost", True)
    assert "restart the computer" in lost.hint
    assert "asleep" in lost_engine(ProcessOutcome(True, "Gone.", exit_code=3), False, True).hint
    assert "asleep" not in lost_engine(ProcessOutcome(True, "Gone.", signal=11), False, True).hint
    missing = lost_engine(ProcessOutcome(True, "No file.", was_started=False), False)
    assert (missing.pill, missing.can_shrink) == ("Engine missing", False)


def crash(qtbot, one):
    with qtbot.waitSignal(one.client.stopped, timeout=5_000):
        one.process._process.kill()


def test_crash_when_automatic_and_idle_then_back_three_times_and_no_more(qtbot, world):
    """Case E-05: opt-in, said each time, and the fourth end within five minutes is shown."""
    one = world()
    one.add_builtin()
    one.settings.set(auto_restart=True)
    said = []
    one.session.notice.connect(lambda sentence, _: said.append(sentence))
    start(qtbot, one)
    for time in range(1, 4):
        with qtbot.waitSignal(one.client.loaded, timeout=10_000):
            one.process._process.kill()
        assert one.session.trouble is None
        assert len([s for s in said if "started again" in s]) == time
    crash(qtbot, one)
    assert one.session.trouble.kind == "stopped"
    assert not one.process.is_running
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()  # the button always works
    assert one.session.trouble is None


def test_crash_when_not_wanted_then_never_by_itself(qtbot, world):
    """The default: nothing happens behind a person's back."""
    one = world()
    one.add_builtin()
    start(qtbot, one)
    crash(qtbot, one)
    assert one.session.trouble.kind == "stopped"
    assert not one.process.is_running


def test_crash_mid_reply_when_automatic_then_the_person_decides(qtbot, world):
    """A broken reply is shown where it broke; restarting over it would hide that."""
    one = world("--rate", "20")
    one.add_builtin()
    one.settings.set(auto_restart=True)
    start(qtbot, one)
    with qtbot.waitSignal(one.client.delta):
        one.client.generate(HELLO, m.Sampling())
    crash(qtbot, one)
    assert one.session.trouble.kind == "stopped"
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.process._process.kill()  # that reply is over: the next idle crash may be mended


def test_start_that_never_comes_up_when_automatic_then_not_tried_again(qtbot, world):
    """A broken installation is no reason for four starts."""
    one = world("--crash-start")
    one.settings.set(auto_restart=True)
    with qtbot.waitSignal(one.client.stopped, timeout=10_000):
        one.client.start()
    assert one.session.trouble.kind == "stopped"
    assert not one.process.is_running


@pytest.mark.parametrize(("code", "pill"), [("device", "GPU lost"), ("budget", "Out of memory")])
def test_device_error_mid_reply_then_named_with_its_sentence(qtbot, world, code, pill):
    """Lost device and no memory are different things with different ways out."""
    one = world("--exit-at", "4", "--exit-error", code)
    one.add_builtin()
    one.settings.set(auto_restart=True)
    start(qtbot, one)
    with qtbot.waitSignal(one.client.stopped, timeout=5_000) as told:
        one.client.generate(HELLO, m.Sampling())
    trouble = one.session.trouble
    assert trouble.pill == pill
    assert "fell off the bus" in trouble.sentence
    assert told.args[0].sentence == trouble.sentence  # the card in the chat says the same
    assert not one.process.is_running


def test_reply_that_stands_still_then_said_and_taken_back_when_it_moves(qtbot, world):
    """Heartbeats alone are no progress; the first token ends the doubt."""
    one = world("--first-token", "2.5", "--heartbeat", "0.01", "--tokens", "3")
    one.add_builtin()
    start(qtbot, one)
    one.client.generate(HELLO, m.Sampling())
    qtbot.waitUntil(lambda: one.session.trouble is not None, timeout=10_000)
    assert (one.session.trouble.kind, one.session.trouble.pill) == ("silent", "Not moving")
    qtbot.waitUntil(lambda: one.session.trouble is None, timeout=10_000)
    assert one.process.is_running


def test_idle_engine_then_heartbeats_alone_are_no_standstill(qtbot, world):
    """Without a reply there is nothing that should move."""
    one = world("--heartbeat", "0.005")
    one.add_builtin()
    start(qtbot, one)
    beats = []
    one.client.heartbeat.connect(beats.append)
    qtbot.waitUntil(lambda: len(beats) > 150, timeout=10_000)
    assert one.session.trouble is None


def test_wake_during_a_reply_then_said_and_the_engine_is_asked(qtbot, world):
    """After a sleep it is known at once whether engine and device are still there."""
    one = world("--rate", "20")
    one.add_builtin()
    start(qtbot, one)
    resilience, said = one.session._resilience, []
    one.session.notice.connect(lambda sentence, _: said.append(sentence))
    with qtbot.waitSignal(one.client.delta):
        one.client.generate(HELLO, m.Sampling())
    with qtbot.waitSignal(one.client.status, timeout=5_000):
        resilience._on_woke(600.0)
    assert said == ["The computer slept for 10 minutes. The reply goes on."]
