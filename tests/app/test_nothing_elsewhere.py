"""What app and engine write lies below the data root; nothing else of a person changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.protocol.places import HOME_VARIABLE
from tests.app.test_main import REPOSITORY, launch, wait_for_log

posix = pytest.mark.skipif(sys.platform == "win32", reason="XDG folders and POSIX signals")


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """An empty home of a person, and the environment that leads there."""
    place = tmp_path / "person"
    folders = {
        "HOME": place,
        "XDG_CONFIG_HOME": place / ".config",
        "XDG_CACHE_HOME": place / ".cache",
        "XDG_DATA_HOME": place / ".local" / "share",
        "XDG_STATE_HOME": place / ".local" / "state",
        "XDG_RUNTIME_DIR": place / "run",
        "TMPDIR": place / "tmp",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    changes = {name: str(folder) for name, folder in folders.items()}
    return place, changes | {"PYTHONDONTWRITEBYTECODE": "1"}


def files(place: Path) -> list[str]:
    return sorted(str(p.relative_to(place)) for p in place.rglob("*") if not p.is_dir())


@posix
def test_app_when_used_and_quit_then_only_the_data_root_has_files(
    tmp_path: Path, elsewhere: tuple[Path, dict[str, str]]
) -> None:
    """Start, first model, end by signal: settings, chats, logs, locks, all in one place."""
    place, changes = elsewhere
    home = tmp_path / "root"
    process = launch(home, **changes)
    wait_for_log(home, "loaded tiny-moe-fp8")
    process.terminate()
    _, err = process.communicate(timeout=15)
    assert process.returncode == 0, err
    assert not psutil.pid_exists(process.pid)
    assert files(place) == []
    assert (home / "logs" / "app.log").exists()


@posix
def test_engine_job_then_only_its_target_has_files(
    tmp_path: Path, elsewhere: tuple[Path, dict[str, str]], builtin_model: Path
) -> None:
    """A real conversion: no cache of any library, no temporary file is left behind."""
    place, changes = elsewhere
    root = tmp_path / "root"
    spec = {"source": str(builtin_model), "target": str(root / "models" / "tiny"), "id": "tiny"}
    command = [sys.executable, "-m", "engine", "--job", "convert", "--spec", json.dumps(spec)]
    # Its stdin stays open: the end of it would be the wish to cancel.
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | changes | {HOME_VARIABLE: str(root), "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.wait(timeout=60) == 0, process.stderr and process.stderr.read()
    assert files(place) == []
    assert (root / "models" / "tiny" / "model.ftw").exists()
