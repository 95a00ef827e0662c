"""What runs beside us: readings from a thread, programs by name, the screen, clean stop."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from app.services.full_screen import open_full_screen
from app.services.presence import Presence, PresenceWatch, SystemProbe, program_key, running_app
from tests.app.services.test_gpu_meter import fail, fake_nvml

GIB = 1 << 30


class Silent:
    """A desktop that says nothing."""

    def read(self):
        return None

    def close(self):
        pass


@pytest.fixture
def quiet(monkeypatch):
    """No desktop is asked."""
    monkeypatch.setattr("app.services.presence.open_full_screen", Silent)


def test_watch_when_started_then_readings_on_our_thread_and_none_after_stop(qtbot):
    """The probe lives on the watching thread; nothing outlives the stop."""
    threads, closed = [], threading.Event()

    class Scripted:
        def read(self, apps):
            threads.append(threading.current_thread().name)
            return Presence(1.0, app=apps[0] if apps else "")

        def close(self):
            closed.set()

    watch = PresenceWatch(Scripted, interval_s=0.01)
    watch.set_apps(("game",))
    heard = []
    watch.seen.connect(lambda reading: heard.append(threading.current_thread().name))
    with qtbot.waitSignal(watch.seen, timeout=5_000) as told:
        watch.start()
        watch.start()
    assert told.args[0].app == "game"
    watch.stop()
    assert closed.wait(5)
    assert set(threads) == {"presence"}
    assert set(heard) == {threading.main_thread().name}
    assert "presence" not in [thread.name for thread in threading.enumerate()]
    with qtbot.waitSignal(watch.seen, timeout=5_000):
        watch.start()  # again
    watch.stop()


def test_memory_when_driver_then_free_of_the_whole_device(monkeypatch, quiet):
    """One figure for all programs: per-process use is unknown on WDDM."""
    nvml = fake_nvml(nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(free=3 * GIB))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    probe = SystemProbe()
    before = time.monotonic()
    reading = probe.read(())
    assert (reading.free_bytes, reading.full_screen, reading.app) == (3 * GIB, None, "")
    assert before <= reading.sampled_s <= time.monotonic()
    nvml.nvmlDeviceGetMemoryInfo = fail
    assert probe.read(()).free_bytes is None
    probe.close()


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_memory_when_no_driver_then_unknown(monkeypatch, quiet, broken):
    """No GPU is no error."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**{broken: fail}))
    probe = SystemProbe()
    assert probe.read(()).free_bytes is None
    probe.close()


def test_memory_when_another_card_is_in_use_then_of_that_one(monkeypatch, quiet):
    """Case M-20: memory is given back on the card that the model runs on."""
    nvml = fake_nvml(
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda key: int(key.removeprefix("GPU-")),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(free=(gpu + 1) * GIB),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    card = [""]
    probe = SystemProbe(lambda: card[0])
    assert probe.read(()).free_bytes == GIB
    card[0] = "GPU-1"
    assert probe.read(()).free_bytes == 2 * GIB
    probe.close()


def processes(*names):
    return lambda attributes: [SimpleNamespace(info={"name": name}) for name in names]


@pytest.mark.parametrize(
    ("running", "listed", "found"),
    [
        (("bash", "Game.EXE"), ("game",), "game"),
        (("bash", "game"), ("Other", "Game.exe "), "Game.exe "),
        (("Cyberpunk2077.e",), ("Cyberpunk2077.exe",), "Cyberpunk2077.exe"),
        (("a-very-long-nam",), ("a-very-long-name-of-a-game",), "a-very-long-name-of-a-game"),
        (("game2", None), ("game",), ""),
        (("",), ("", " "), ""),
    ],
)
def test_programs_then_found_as_people_write_them(monkeypatch, running, listed, found):
    """With or without .exe and capitals; Linux cuts long names."""
    monkeypatch.setattr(psutil, "process_iter", processes(*running))
    assert running_app(listed) == found


def test_program_when_it_really_runs_then_found():
    """Against the system's own list."""
    assert running_app((psutil.Process().name(),))
    assert running_app(("no such program",)) == ""
    assert program_key(" A.EXE") == "a"


@pytest.fixture
def x_server(monkeypatch):
    """An X server of our own, without a window manager, if there is one."""
    program = shutil.which("Xvfb")
    if sys.platform != "linux" or program is None:
        pytest.skip("needs Xvfb")
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        [program, "-displayfd", str(write_end), "-screen", "0", "64x64x24", "-nolisten", "tcp"],
        pass_fds=(write_end,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        number = pipe.readline().strip()  # comes when it listens
    monkeypatch.setenv("DISPLAY", f":{number}")
    yield
    server.terminate()
    server.wait()


def test_full_screen_when_the_active_window_says_so_then_seen(x_server):
    """As window managers write it; our own window does not count."""
    screen = open_full_screen()
    assert screen.read() is None  # nobody says what is active

    def say(name, *values):
        data = struct.pack(f"={len(values)}I", *values)
        change = screen._xcb.xcb_change_property
        change(ctypes.c_void_p(screen._server), 0, screen._root, name, 4, 32, len(values), data)

    say(screen._active, screen._root)
    assert screen.read() is False
    say(screen._state, 1, screen._full)
    assert screen.read() is True
    say(screen._pid, os.getpid())
    assert screen.read() is False
    say(screen._pid, 1)
    say(screen._active, 0xDEAD)  # closed meanwhile
    assert screen.read() is False
    screen.close()
    assert screen.read() is None


@pytest.mark.linux
def test_full_screen_when_no_display_then_unknown(monkeypatch):
    """A machine without a desktop is no error."""
    if sys.platform != "linux":
        pytest.skip("Linux only")
    monkeypatch.setenv("DISPLAY", ":987")
    screen = open_full_screen()
    assert screen.read() is None
    screen.close()
