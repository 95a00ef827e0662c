"""The whole app as a process: start, busy quits, crash of either side, smoke run, clean imports."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FAKE = REPOSITORY / "tests" / "support" / "fake_engine.py"
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def environment(home, fake_arguments=""):
    return os.environ | {
        "QT_QPA_PLATFORM": "offscreen",
        "FREETOKEN_HOME": str(home),
        "FREETOKEN_ENGINE": str(FAKE),
        "FAKE_ENGINE_ARGS": fake_arguments,
        "PYTHONPATH": str(REPOSITORY),
    }


def launch(home, fake_arguments="", arguments=(), **changes):
    return subprocess.Popen(
        [sys.executable, "-m", "app", *arguments],
        cwd=REPOSITORY,
        env=environment(home, fake_arguments) | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_log(home, words, limit_s=20.0):
    """Wait until the app's log holds some words: the only event a process outside can see."""
    end = time.monotonic() + limit_s
    log = Path(home) / "logs" / "app.log"
    while time.monotonic() < end:
        if log.exists() and words in log.read_text("utf-8"):
            return
        time.sleep(0.05)
    raise AssertionError(f"{words!r} is not in {log.read_text() if log.exists() else log}")


def children_of(process):
    return psutil.Process(process.pid).children(recursive=True)


@posix
@pytest.mark.parametrize(
    ("fake", "until"),
    [
        ("", "loaded tiny-moe-fp8"),
        ("--load-delay 60", "engine fake ready"),
        pytest.param("--job-seconds 60", "engine fake ready", marks=pytest.mark.slow),
        pytest.param("--deaf --hang-load", "engine fake ready", marks=pytest.mark.slow),
        pytest.param("--silent-start 60", "window shown", marks=pytest.mark.slow),
    ],
)
def test_interrupt_when_busy_then_exit_0_within_5_s_and_nothing_left(tmp_path, fake, until):
    """G-01, G-12, G-18: Ctrl+C while idle, loading, converting, hanging, starting."""
    process = launch(tmp_path, fake)
    wait_for_log(tmp_path, until)
    children = children_of(process)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0, err
    assert time.monotonic() - begun < 5
    assert not [child for child in children if child.is_running() and child.status() != "zombie"]
    assert "Traceback" not in (tmp_path / "logs" / "app.log").read_text("utf-8")


@posix
def test_app_killed_then_engine_goes_too(tmp_path):
    """G-01: kill -9 of the window leaves no engine behind; the next start is the first again."""
    process = launch(tmp_path)
    wait_for_log(tmp_path, "loaded tiny-moe-fp8")
    children = children_of(process)
    assert children
    process.kill()
    process.communicate(timeout=10)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    again = launch(tmp_path)
    (tmp_path / "logs" / "app.log").unlink()
    wait_for_log(tmp_path, "loaded tiny-moe-fp8")
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=10)
    assert again.returncode == 0


@posix
def test_second_start_then_it_ends_and_the_first_lives(tmp_path):
    """One window per data root."""
    first = launch(tmp_path)
    wait_for_log(tmp_path, "window shown")
    second = launch(tmp_path, arguments=("--page", "models"))
    second.communicate(timeout=20)
    assert second.returncode == 0
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=10)
    assert first.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can lack a display")
def test_no_display_then_a_sentence_and_no_crash(tmp_path):
    """What is missing is named, with another way to chat."""
    process = launch(tmp_path, QT_QPA_PLATFORM="", DISPLAY="", WAYLAND_DISPLAY="")
    _, err = process.communicate(timeout=20)
    assert process.returncode not in (0, -6, -11)
    assert "DISPLAY" in err
    assert "Traceback" not in err


def test_app_import_then_no_torch_and_no_engine_inside():
    """A fresh interpreter: the window's side carries nothing of the engine but the protocol."""
    code = (
        "import sys, app.main, app.__main__, app.smoke\n"
        "heavy = ('torch', 'triton', 'transformers', 'kernels', 'safetensors', 'tokenizers')\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in heavy]\n"
        "bad += [m for m in sys.modules if m.startswith('engine.')"
        " and not m.startswith('engine.protocol')]\n"
        "sys.exit(repr(bad) if bad else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_smoke_when_all_is_well_then_0_pictures_and_facts(tmp_path):
    """The smoke run's own logic, with the fake engine; the real one runs in dev.py."""
    out = tmp_path / "out"
    process = launch(
        tmp_path / "unused",
        "--tokens 200 --rate 100 --stats 0.1 --noise 3",  # slow enough for three resizes
        ("--smoke", str(out)),
    )
    _, err = process.communicate(timeout=60)
    facts = json.loads((out / "smoke.json").read_text("utf-8"))
    assert process.returncode == 0, err
    assert facts["ok"]
    assert facts["same_without_resizes"]
    assert [move["kind"] for move in facts["resizes"]] == ["grow", "shrink", "grow"]
    assert len(list(out.glob("*.png"))) == 14
    assert not (tmp_path / "unused").exists()


def test_smoke_when_a_step_fails_then_not_0_and_the_step_is_named(tmp_path):
    """A crash in the middle of a reply: said, with the step's name; pictures come all the same."""
    out = tmp_path / "out"
    process = launch(tmp_path / "unused", "--tokens 200 --crash-at 30", ("--smoke", str(out)))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "smoke failed at reply: The engine crashed" in err
    assert not json.loads((out / "smoke.json").read_text("utf-8"))["ok"]
    assert (out / "chat-dark.png").exists()


def test_smoke_when_the_model_cannot_be_prepared_then_it_ends_there(tmp_path):
    """The conversion's own failure is said at once, not a limit of minutes."""
    out = tmp_path / "out"
    process = launch(tmp_path / "unused", "--job-end error", ("--smoke", str(out)))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "smoke failed at model: model-00002-of-00003.safetensors is damaged." in err
