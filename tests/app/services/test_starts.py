"""Starts of the whole program where another one runs, ends, or hangs; as processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.main import Desktop
from app.services.handing_over import activation_token, addresses
from tests.app.services.first_app import FirstApp
from tests.app.test_main import environment, launch, wait_for_log
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
HASTY = """
import functools, sys, app.__main__ as program
from app.services.single_instance import Limits
program.SingleInstance = functools.partial(
    program.SingleInstance, limits=Limits(lock=400, answer=400, poll=50)
)
sys.exit(program.main())
"""
TOKEN = "compositor-7"


def start(home, *arguments, **variables):
    """Start the program with short limits, and wait for its end."""
    return subprocess.run(
        [sys.executable, "-c", HASTY, *arguments],
        cwd=REPOSITORY,
        env=environment(home) | variables,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.fixture
def first(tmp_path):
    app = FirstApp(tmp_path)
    yield app
    app.close()


def test_second_start_then_page_and_token_are_handed_over(first, tmp_path):
    """The desktop gave the focus to the second one; the first one needs it."""
    variables = {"XDG_ACTIVATION_TOKEN": TOKEN, "DESKTOP_STARTUP_ID": "older"}
    done = start(tmp_path, "--page", "models", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert first.told() == ["page", "models", TOKEN]


def test_second_start_when_the_first_hangs_then_it_says_so_and_ends(first, tmp_path):
    """Never a second window over the same chats: cause and next step instead."""
    (tmp_path / "settings.json").write_text('{"version": 1, "language": "zh_CN"}')
    os.kill(first.process.pid, signal.SIGSTOP)
    done = start(tmp_path)
    assert done.returncode == 75
    assert "没有响应。请稍候再启动" in done.stderr  # the person's language
    assert str(first.process.pid) in done.stderr
    assert str(tmp_path) in done.stderr
    assert not (tmp_path / "chats").exists()


def test_start_right_after_closing_then_the_app_is_there_again(tmp_path):
    """The window was closed and the engine still ends: the start waits, and is the app."""
    closed = launch(tmp_path, "--deaf --hang-load")
    wait_for_log(tmp_path, "engine fake ready")
    heard = Path(next(addresses(tmp_path)))
    assert heard.exists()
    closed.send_signal(signal.SIGINT)
    end = time.monotonic() + 10
    while heard.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (tmp_path / "app.lock").exists()  # it no longer listens, and has not ended
    (tmp_path / "logs" / "app.log").unlink()
    again = launch(tmp_path)
    closed.communicate(timeout=10)
    assert closed.returncode == 0
    wait_for_log(tmp_path, "window shown")
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=10)
    assert again.returncode == 0


def test_token_when_only_the_older_variable_is_there_then_that_one(monkeypatch):
    """X11's name for it; some starters know no other."""
    monkeypatch.delenv("XDG_ACTIVATION_TOKEN", raising=False)
    monkeypatch.setenv("DESKTOP_STARTUP_ID", TOKEN)
    assert activation_token() == TOKEN


def test_raised_with_a_token_then_it_is_in_the_environment_while_activated(monkeypatch):
    """Qt reads it there; what the app starts later must not find it."""
    monkeypatch.delenv("XDG_ACTIVATION_TOKEN", raising=False)
    seen = []
    window = SimpleNamespace(
        isMinimized=lambda: False,
        show=lambda: None,
        raise_=lambda: None,
        activateWindow=lambda: seen.append(os.environ.get("XDG_ACTIVATION_TOKEN")),
        show_page=seen.append,
    )
    Desktop.raise_window(SimpleNamespace(window=window), "logs", TOKEN)
    Desktop.raise_window(SimpleNamespace(window=window))
    Desktop.raise_window(SimpleNamespace(window=window), "", "bad \ud800")
    assert seen == [TOKEN, "logs", None, None]
    assert "XDG_ACTIVATION_TOKEN" not in os.environ
