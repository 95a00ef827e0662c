"""The child process itself: start, silence, stop, restart limit, words."""

import os
import sys
import time

import msgspec
import pytest

from app.services import engine_program
from app.services.engine_process import EngineProcess, ProcessLimits
from app.services.engine_program import EngineProgram, find_program
from app.services.outcome import RestartLimit, crash_sentence, exit_sentence
from app.services.runtime_build import BuildFacts
from engine.protocol import messages as m
from engine.protocol.places import data_root
from engine.protocol.runtime_lock import MANIFEST, Wheel, this_python
from tests.support.app_engine import Recorder
from tests.support.mock_index import make_lock

FAST = ProcessLimits(first_output_s=10, silence_s=0.6, eof_after_s=0.15, kill_after_s=0.4)
HELLO = m.encode(m.Hello())
BYE = m.encode(m.Shutdown())


def begin(qtbot, process):
    with qtbot.waitSignal(process.lines):
        process.start()
        process.write(HELLO)


def test_program_when_threads_are_set_then_the_engine_is_told(tmp_path):
    """By the variable that the engine reads; 0 leaves the choice to it."""
    root = data_root(str(tmp_path))
    assert find_program("", root, 3).variables["FREETOKEN_THREADS"] == "3"
    assert "FREETOKEN_THREADS" not in find_program("", root).variables


def test_stop_when_well_behaved_then_code_0_and_expected(qtbot, make_process):
    """Shutdown is enough; nobody calls that a failure."""
    process = make_process(limits=FAST)
    begin(qtbot, process)
    with qtbot.waitSignal(process.stopped) as end:
        process.stop(BYE)
        assert process.is_stopping
    outcome = end.args[0]
    assert (outcome.unexpected, outcome.exit_code) == (False, 0)


def test_stop_without_farewell_then_eof_is_enough(qtbot, make_process):
    """The end of stdin alone ends an engine."""
    process = make_process(limits=FAST)
    begin(qtbot, process)
    with qtbot.waitSignal(process.stopped) as end:
        process.stop()
    assert end.args[0].exit_code == 0


def test_stop_when_deaf_then_killed_within_bounds(qtbot, make_process):
    """Shutdown, EOF, kill: an engine that ignores the first two is gone all the same."""
    process = make_process("--deaf", limits=FAST)
    begin(qtbot, process)
    with qtbot.waitSignal(process.stopped, timeout=3_000) as end:
        process.stop(BYE)
    outcome = end.args[0]
    assert not outcome.unexpected
    assert "did not stop by itself" in outcome.sentence


def test_silence_when_hanging_then_not_responding_but_alive(qtbot, make_process):
    """No heartbeat = said so; the process is not killed, the person decides."""
    process = make_process("--hang-load", limits=FAST)
    begin(qtbot, process)
    with qtbot.waitSignal(process.responding_changed, timeout=3_000) as change:
        process.write(m.encode(m.Load(id="x", model="y")))
    assert change.args == [False]
    assert process.is_running
    with qtbot.waitSignal(process.stopped, timeout=3_000):
        process.stop(BYE)


def test_silence_when_output_returns_then_responding_again(qtbot, make_process):
    """A long pause is forgiven at the next sign of life."""
    process = make_process("--heartbeat", "1.0", "--stats", "0", limits=FAST)
    seen = Recorder(process, "responding_changed")
    begin(qtbot, process)
    qtbot.waitUntil(lambda: seen.of("responding_changed") == [False, True], timeout=5_000)


def test_start_when_program_is_missing_then_said_in_words(qtbot):
    """A wrong path in the settings is a sentence, not a crash."""
    process = EngineProcess(EngineProgram("/no/such/engine"))
    with qtbot.waitSignal(process.stopped) as end:
        process.start()
    assert end.args[0].unexpected
    assert "could not be started" in end.args[0].sentence


def test_start_when_import_fails_then_last_log_line_kept(qtbot, make_process):
    """What the engine said last is in the outcome; noise is cut to 200 lines."""
    process = make_process("--noise", "500", "--crash-start", limits=FAST)
    with qtbot.waitSignal(process.stopped) as end:
        process.start()
    outcome = end.args[0]
    assert outcome.last_log == "ImportError: the fake library is missing"
    assert len(outcome.tail) == 200
    assert outcome.exit_code == 1


def test_stderr_then_every_line_reaches_the_sink(qtbot, make_process):
    """The log page and file get whole lines."""
    lines = []
    process = make_process("--noise", "30", limits=FAST)
    process._sink = lines.append
    begin(qtbot, process)
    qtbot.waitUntil(lambda: len(lines) >= 30)
    assert lines[:2] == ["INFO fake: line 0", "INFO fake: line 1"]


def test_kill_from_outside_then_named(qtbot, make_process):
    """kill -9 is what the system does when memory runs out: said so."""
    process = make_process(limits=FAST)
    begin(qtbot, process)
    with qtbot.waitSignal(process.stopped) as end:
        process._process.kill()
    assert end.args[0].unexpected
    if sys.platform != "win32":
        assert end.args[0].signal == 9
        assert "memory" in end.args[0].sentence


def test_restart_limit_when_three_ends_in_the_window_then_reached():
    """E-05: no restart loop; old ends are forgotten."""
    now = [0.0]
    limit = RestartLimit(lambda: now[0])
    for at in (0.0, 100.0, 200.0):
        now[0] = at
        assert not limit.is_reached
        limit.note_end()
    assert limit.is_reached
    now[0] = 301.0
    assert not limit.is_reached


def test_restart_limit_counts_only_unexpected_ends(qtbot, make_process):
    """A stop that was asked for is no crash."""
    process = make_process(limits=FAST)
    for _ in range(3):
        begin(qtbot, process)
        with qtbot.waitSignal(process.stopped):
            process.stop(BYE)
    assert not process.restarts.is_reached


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 77])
def test_exit_sentence_for_any_code_then_a_sentence(code):
    """Every end has words."""
    assert exit_sentence(code).endswith(".")


@pytest.mark.parametrize("number", [0, 4, 9, 11, 31])
def test_crash_sentence_for_any_signal_then_a_sentence(number):
    """Signals without a name too."""
    assert crash_sentence(number).endswith(".")


def test_find_program_when_checkout_then_python_module_in_the_repository(tmp_path):
    """Without anything installed the engine is this Python with `-m engine`."""
    program = find_program("", data_root(str(tmp_path / "Zoë 空")))
    assert program.origin == "python"
    assert program.path == sys.executable
    assert program.arguments == ("-m", "engine")
    assert program.working_dir is not None
    assert (program.working_dir / "engine" / "protocol").is_dir()
    assert program.variables["FREETOKEN_HOME"].endswith("Zoë 空")


def installed(root, name, written_s):
    """An installed runtime: a folder whose lock says so."""
    wheel = Wheel(name=name, version="1", file=f"{name}-1-py3-none-any.whl", size=1, unpacked=1,
                  sha256="0" * 64)  # fmt: skip
    lock = make_lock(wheel)
    folder = root.runtime / lock.key
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(lock))
    os.utime(folder / MANIFEST, (written_s, written_s))
    return folder


def test_find_program_when_runtime_installed_then_newest_wins(tmp_path):
    """Order: override, installed runtime, our own; the program is ours in any case."""
    root = data_root(str(tmp_path))
    newest = installed(root, "b", 2_000)
    installed(root, "a", 1_000)
    program = find_program("", root)
    assert program.origin == "runtime"
    assert program.path == sys.executable
    assert program.arguments == ("-m", "engine", "--runtime", str(newest))
    assert find_program("/opt/other", root).path == "/opt/other"
    assert find_program("/x/fake.py", root).arguments == ("/x/fake.py",)


def test_find_program_when_a_full_build_is_newer_than_a_runtime_then_its_own(tmp_path, monkeypatch):
    """An old CPU runtime lies in the data root of an updated program."""
    root = data_root(str(tmp_path))
    installed(root, "a", 1_000)
    monkeypatch.setattr(engine_program, "read_build", lambda: BuildFacts(bundle="full"))
    assert find_program("", root).origin == "python"


def test_find_program_when_a_runtime_is_unfinished_or_foreign_then_it_is_not_taken(tmp_path):
    """Nothing half-installed is ever started."""
    root = data_root(str(tmp_path))
    folder = installed(root, "a", 1_000)
    folder.rename(folder.with_name(f".{folder.name}.part"))
    (root.runtime / "0123456789abcdef").mkdir()
    other = installed(root, "b", 1_000)
    (other / MANIFEST).write_bytes((other / MANIFEST).read_bytes()[:-9])
    foreign = installed(root, "c", 1_000)
    text = (foreign / MANIFEST).read_text().replace(this_python(), "cp299")
    (foreign / MANIFEST).write_text(text)
    assert find_program("", root).origin == "python"


def test_start_when_a_shell_has_no_libraries_then_it_says_where_they_come_from(qtbot):
    """The program exists but is not started: it could not load a model."""
    process = EngineProcess(EngineProgram(sys.executable, origin="none"))
    with qtbot.waitSignal(process.stopped) as end:
        process.start()
    assert "not installed yet" in end.args[0].sentence
    assert not process.is_running


def test_window_busy_for_long_then_the_engine_is_not_blamed(qtbot, make_process):
    """A computer that sleeps, or a window that hangs, does not look, so it cannot accuse."""
    process = make_process("--heartbeat", "0.05", limits=ProcessLimits(silence_s=0.5))
    doubts = []
    process.responding_changed.connect(doubts.append)
    with qtbot.waitSignal(process.lines, timeout=10_000):
        process.start()
    time.sleep(0.8)  # the very thing that is tested: nobody looks for longer than the limit
    heard = []
    process.lines.connect(heard.append)
    qtbot.waitUntil(lambda: len(heard) > 20, timeout=10_000)  # longer than the limit, with a pulse
    assert doubts == []
