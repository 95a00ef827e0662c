"""Quit while busy: children gone, window alive, bounded time (cases G-01, G-12, G-18)."""

import pytest
from PySide6.QtCore import QElapsedTimer, QTimer

from app.services.closing import Closing
from app.services.engine_process import ProcessLimits
from app.services.job_runner import JobRunner
from engine.protocol import messages as m
from tests.support.app_engine import Recorder, fake_program

FAST = ProcessLimits(first_output_s=10, silence_s=5, eof_after_s=0.3, kill_after_s=0.8)
HELLO = (m.ChatMessage(role="user", parts=(m.Part(text="hello"),)),)


class Gaps:
    """The longest time between two beats of a 50 ms timer, in ms."""

    def __init__(self):
        self.longest = 0
        self._clock = QElapsedTimer()
        self._clock.start()
        self._timer = QTimer()
        self._timer.setInterval(50)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def _beat(self):
        self.longest = max(self.longest, self._clock.restart())

    def stop(self):
        self._timer.stop()


@pytest.mark.parametrize(
    ("arguments", "act"),
    [
        (("--rate", "50", "--tokens", "5000"), "generate"),
        (("--load-delay", "30"), "load"),
        (("--deaf",), "load"),
        (("--hang-load",), "load"),
        (("--silent-start", "30"), ""),
        (("--crash-start",), ""),
    ],
)
def test_quit_when_busy_then_bounded_and_never_blocking(
    qtbot, make_client, tmp_path, arguments, act
):
    """Whatever the engine does, quitting ends within bounds and the window's timer goes on."""
    client = make_client(*arguments, limits=FAST)
    jobs = JobRunner(fake_program("--job-seconds", "60"), tmp_path / "jobs.json", kill_after_s=0.8)
    order = []
    closing = Closing(
        client, jobs, (lambda: order.append("first"),), (lambda: order.append("last"),)
    )
    gaps = Gaps()
    with qtbot.waitSignal(jobs.progress, timeout=10_000):
        jobs.start("convert", {})
        client.start()
        load = client.load("/m") if act else ""
    if act == "generate":
        with qtbot.waitSignal(client.delta, timeout=10_000):
            client.generate(HELLO, m.Sampling(max_tokens=5_000))
    seen = Recorder(client, "finished", "stopped")
    clock = QElapsedTimer()
    clock.start()
    with qtbot.waitSignal(closing.finished, timeout=5_000):
        closing.begin()
        closing.begin()
    assert clock.elapsed() < 3_000
    assert gaps.longest <= 200
    gaps.stop()
    assert order == ["first", "last"]
    assert not client.process.is_running
    assert jobs.is_idle
    assert load not in client.open_ids
    if act == "generate":
        assert [e.reason for e in seen.of("finished")] == [m.FinishReason.CANCELLED]


def test_start_after_quit_then_nothing_starts(qtbot, make_client, tmp_path):
    """A job that ends well during the quit must not bring the engine back for its model."""
    client = make_client(limits=FAST)
    jobs = JobRunner(fake_program(), tmp_path / "jobs.json")
    closing = Closing(client, jobs)
    jobs.done.connect(client.start)
    with qtbot.waitSignal(client.ready):
        client.start()
        jobs.start("verify", {})
    with qtbot.waitSignal(closing.finished, timeout=2_000):
        closing.begin()
        client.start()
    client.start()
    assert not client.process.is_running


def test_quit_when_nothing_runs_then_at_once(qtbot, make_client, tmp_path):
    """An app that never got its engine up ends immediately."""
    jobs = JobRunner(fake_program(), tmp_path / "jobs.json")
    closing = Closing(make_client(), jobs)
    with qtbot.waitSignal(closing.finished, timeout=500):
        closing.begin()


def test_quit_when_a_step_fails_then_the_others_are_taken_and_it_ends(
    qtbot, make_client, tmp_path, caplog
):
    """D-07, G-18: what cannot be written on a full disk must not keep the app from ending."""
    taken = []

    def fail():
        raise OSError(28, "No space left on device")

    def step(name):
        return lambda: taken.append(name)

    jobs = JobRunner(fake_program(), tmp_path / "jobs.json")
    closing = Closing(
        make_client(),
        jobs,
        first=(fail, step("saved")),
        last=(step("stopped"), fail, step("closed")),
    )
    with qtbot.waitSignal(closing.finished, timeout=500):
        closing.begin()
    assert taken == ["saved", "stopped", "closed"]
    assert [record.exc_info[1].errno for record in caplog.records] == [28, 28]


def test_load_and_unload_then_no_gap(qtbot, make_client):
    """G-12: the window goes on beating while a model comes and goes."""
    client = make_client("--load-delay", "0.4")
    gaps = Gaps()
    with qtbot.waitSignal(client.loaded, timeout=10_000):
        client.start()
        client.load("/m")
    with qtbot.waitSignal(client.unloaded):
        client.unload()
    assert gaps.longest <= 200
    gaps.stop()
