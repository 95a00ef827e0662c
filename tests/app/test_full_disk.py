"""The whole app on a disk that is full."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.test_main import children_of, launch, posix
from tests.support.tmpfs import small_tmpfs

pytestmark = [posix, pytest.mark.linux]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A data root on a disk of 1 MiB without a free byte."""
    disk = tmp_path / "disk"
    with small_tmpfs(disk, 1):
        (disk / "home" / "models").mkdir(parents=True)
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass
        yield disk / "home"


def test_app_when_its_disk_is_full_then_it_runs_and_ends_in_order(full_disk: Path) -> None:
    """D-07: three starts; each brings the engine up, ends by signal with code 0, leaves nothing."""
    before = sorted(full_disk.rglob("*"))
    for _ in range(3):
        process = launch(full_disk)
        end = time.monotonic() + 20
        while not children_of(process) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert children_of(process), process.communicate()[1]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 0, err
        assert "Traceback" not in err
    kept = [path for path in sorted(full_disk.rglob("*")) if path.stat().st_size]
    assert [path for path in kept if path.is_file() and path not in before] == []
