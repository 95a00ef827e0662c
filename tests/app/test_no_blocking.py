"""No handler of the window waits for the engine or for a disk with models: what is not timing."""

import builtins
import io
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from engine.protocol import messages as m
from engine.protocol.places import data_root
from tests.conftest import REPOSITORY
from tests.support.app_engine import FAKE_ENGINE

pytestmark = pytest.mark.usefixtures("looks")
posix = pytest.mark.skipif(sys.platform == "win32", reason="a process is stopped by a signal")
APP = str(REPOSITORY / "app")
MERCY_S = 20.0  # then a stopped engine is let go, so that a fault is a failure and no hang


@pytest.fixture
def desktop(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desktop]:
    """The app, not yet shown."""
    monkeypatch.setenv("FAKE_ENGINE_ARGS", "--rate 40 --tokens 60 --stats 0.1")
    root = data_root(str(tmp_path / "home"))
    made = Desktop(Environment(root, str(FAKE_ENGINE), True, needs_x11=False), LogRing())
    over: list[bool] = []
    made.finished.connect(lambda: over.append(True))
    yield made
    if not over:
        with qtbot.waitSignal(made.finished, timeout=10_000):
            made.quit()
    made.window.deleteLater()


def everything(desktop: Desktop, outside: Path) -> list[Callable[[], object]]:
    """What a person can set going, each with the handler that a click runs."""
    vm, window = desktop.vm, desktop.window
    performance = vm.performance
    model = str(vm.models.rows[0].entry.path)
    shown = performance.applied
    assert shown is not None
    brought = (outside / "published", outside / "converted")
    for folder, name in zip(brought, ("config.json", "model.ftw"), strict=True):
        folder.mkdir(parents=True)
        (folder / name).write_text('{"format": "freetoken", "major": 2}')
    return [
        *(lambda name=name: window.show_page(name) for name in desktop.pages),
        *(lambda key=key: desktop._show_settings(key) for key in desktop.pages.settings.items),
        lambda: vm.chat.send("word " * 100_000),  # more than any pipe takes at once
        vm.chat.talk.stop,
        vm.chat.new_chat,
        lambda: performance.preview(shown.with_slots(80)),
        lambda: performance.release(shown.with_slots(80)),
        lambda: performance.choose_policy(m.MissPolicy.CPU_ONLY),
        vm.yielding.toggle,
        lambda: vm.profiler.run("quick"),
        vm.profiler.cancel,
        vm.models.refresh,
        lambda: vm.models.verify(Path(model)),
        lambda: vm.models.import_folders(brought),
        lambda: desktop.services.library.delete(Path(model).with_name("gone")),
        vm.discover.look,
        vm.first_run.look,
        vm.move.look,
        lambda: vm.session.load(model),
        vm.session.unload,
        lambda: vm.session.load(model),
        lambda: vm.session.restart_engine(smaller=True),
    ]


@posix
def test_engine_that_does_nothing_then_every_handler_returns(
    qtbot: QtBot, desktop: Desktop, tmp_path: Path
) -> None:
    """G-12, G-18: with the engine stopped in its tracks all can be clicked, and quit ends it."""
    with qtbot.waitSignal(desktop.services.client.loaded, timeout=20_000):
        desktop.show()
    qtbot.waitUntil(lambda: desktop.vm.performance.applied is not None)
    qtbot.waitUntil(lambda: bool(desktop.vm.models.rows))
    engine = psutil.Process(desktop.services.client.process._process.processId())
    let_go: list[bool] = []

    def mercy() -> None:
        let_go.append(True)
        engine.resume()

    guard = threading.Timer(MERCY_S, mercy)
    engine.suspend()
    guard.start()
    try:
        for act in everything(desktop, tmp_path / "outside"):
            act()
            QApplication.processEvents()
        with qtbot.waitSignal(desktop.finished, timeout=10_000):
            desktop.quit()
    finally:
        guard.cancel()
    assert let_go == []
    assert not engine.is_running()


class Disk:
    """Notes who asks for something below a folder on the window's thread."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = tuple(str(folder) for folder in folders)
        self._thread = threading.get_ident()
        self.touched: list[str] = []

    def watched(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """Return a call of the system that is noted."""

        def noted(*arguments: object, **options: object) -> object:
            path = str(arguments[0]) if arguments else ""
            if threading.get_ident() == self._thread and path.startswith(self._folders):
                at = [f for f in traceback.extract_stack() if f.filename.startswith(APP)]
                where = " < ".join(f"{Path(f.filename).stem}.{f.name}" for f in at[:-4:-1])
                self.touched.append(f"{name} by {where}")
            return call(*arguments, **options)

        return noted


def test_models_folder_then_no_handler_touches_it(
    qtbot: QtBot, desktop: Desktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case D-17: it may lie on a share that is gone; threads, jobs and the engine ask for it."""
    chosen = tmp_path / "share"
    chosen.mkdir()
    disk = Disk((desktop.services.environment.root.models, chosen))
    for module, names in (
        (os, ("stat", "lstat", "scandir", "listdir", "statvfs", "rename", "mkdir", "unlink")),
        (io, ("open",)),
        (builtins, ("open",)),
        (shutil, ("disk_usage", "rmtree", "copytree", "move")),
    ):
        for name in names:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, disk.watched(name, getattr(module, name)))
    with qtbot.waitSignal(desktop.services.client.loaded, timeout=20_000):
        desktop.show()
    qtbot.waitUntil(lambda: desktop.vm.performance.applied is not None)
    qtbot.waitUntil(lambda: bool(desktop.vm.models.rows))
    for act in everything(desktop, tmp_path / "outside"):
        act()
        QApplication.processEvents()
    with qtbot.waitSignal(desktop.services.library.changed):
        desktop.services.settings.set(models_folder=str(chosen))
    monkeypatch.undo()
    assert disk.touched == [], "\n".join(disk.touched)


def test_watched_disk_then_the_windows_thread_alone_is_noted(tmp_path: Path) -> None:
    """The test above can fail: a look from here counts, one from a thread does not."""
    disk = Disk((tmp_path,))
    look = disk.watched("stat", os.stat)
    look(tmp_path)
    thread = threading.Thread(target=lambda: look(tmp_path))
    thread.start()
    thread.join()
    look(os.sep)
    assert len(disk.touched) == 1
