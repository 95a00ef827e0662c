"""Conversion that does not come to its end: no trace of it, source untouched, cause in words."""

import errno
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint import files
from engine.checkpoint.convert import Converted, convert
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.source import SourceCheckpoint
from engine.checkpoint.writer import FtwWriter, partial_folder
from engine.protocol.errors import Cancelled, CorruptCheckpoint, DiskFull, FileAccess
from tests.conftest import REPOSITORY
from tests.support.checkpoints import recipe_for, write_checkpoint
from tests.support.tmpfs import small_tmpfs


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and bytes: what "untouched" means."""
    return {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.iterdir()}


def run(
    folder: Path,
    target: Path,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Converted:
    source = SourceCheckpoint(folder)
    return convert(source, target, recipe_for(source), progress, cancelled)


def assert_nothing_left(target: Path, folder: Path, before: dict[str, tuple[int, bytes]]) -> None:
    """No output, no temporary folder, source as it was."""
    assert not target.exists()
    assert not partial_folder(target).exists()
    assert contents(folder) == before


@pytest.mark.parametrize("stage", ["convert", "verify"])
def test_convert_when_cancelled_half_way_then_nothing_is_left(tmp_path: Path, stage: str) -> None:
    """While writing, and while checking what was written."""
    folder, target = write_checkpoint(tmp_path / "s", quant="fp8_block"), tmp_path / "m"
    before = contents(folder)
    half: list[bool] = []

    def progress(now: str, done: int, total: int) -> None:
        if now == stage and done * 2 >= total:
            assert partial_folder(target).is_dir()
            half.append(True)

    with pytest.raises(Cancelled):
        run(folder, target, progress, lambda: bool(half))
    assert_nothing_left(target, folder, before)


def test_convert_when_last_shard_vanishes_half_way_then_it_is_named_and_nothing_left(
    tmp_path: Path,
) -> None:
    """Case C-01: an unplugged drive; the rest of the source is untouched."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    last = folder / "model-00003-of-00003.safetensors"

    def progress(stage: str, done: int, total: int) -> None:
        last.unlink(missing_ok=True)

    with pytest.raises(FileAccess, match=r"model-00003-of-00003\.safetensors"):
        run(folder, target, progress)
    assert not target.exists()
    assert not partial_folder(target).exists()


def test_convert_when_disk_is_too_small_then_refused_with_figures_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Need, free bytes and disk are in the sentence."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    before = contents(folder)
    monkeypatch.setattr(files, "free_bytes", lambda _: 100_000)
    with pytest.raises(DiskFull) as caught:
        run(folder, target)
    disk = files.disk_of(tmp_path)
    assert f"needed on the disk {disk}, 97.7 KiB are free." in caught.value.message
    assert "Free " in caught.value.hint
    assert_nothing_left(target, folder, before)


class SmallDisk(io.FileIO):
    """A file on a disk that takes only so many bytes."""

    def __init__(self, path: Path, room: int, code: int) -> None:
        super().__init__(path, "xb")
        self._room, self._code = room, code

    def write(self, data: memoryview) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(self._code, "no")
        return super().write(data)


@pytest.mark.parametrize("room", [0, 1000, 200_000])
@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (errno.ENOSPC, DiskFull, "is full"),
        (errno.EIO, FileAccess, "the disk reported a fault"),
        (errno.EFBIG, FileAccess, "no files of that size"),
    ],
)
def test_convert_when_a_write_fails_then_said_so_and_nothing_left(
    tmp_path: Path, room: int, code: int, error: type[Exception], words: str
) -> None:
    """Disk full, disk broken, file too large for its file system: at any point."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    before = contents(folder)
    source = SourceCheckpoint(folder)
    with pytest.raises(error, match=words):
        convert(
            source,
            target,
            recipe_for(source),
            lambda *_: None,
            lambda: False,
            lambda place, need: FtwWriter(
                place,
                need,
                lambda path: SmallDisk(path, room, code),
            ),
        )
    assert_nothing_left(target, folder, before)


@pytest.mark.linux
def test_convert_when_a_real_disk_fills_up_half_way_then_it_is_named(tmp_path: Path) -> None:
    """A 4 MiB tmpfs that another program fills while we write."""
    disk = tmp_path / "disk"
    with small_tmpfs(disk, 4):
        folder, target = write_checkpoint(tmp_path / "s"), disk / "m"
        before = contents(folder)

        def fill(stage: str, done: int, total: int) -> None:
            if not (disk / "ballast").exists() and done * 2 >= total:
                (disk / "ballast").write_bytes(b"\0" * (files.free_bytes(disk) - 8192))

        with pytest.raises(DiskFull) as caught:
            run(folder, target, fill)
        assert caught.value.message.startswith(f"The disk {disk} is full: ")
        assert_nothing_left(target, folder, before)


CHILD = """
import sys
from pathlib import Path
from engine.checkpoint.convert import convert
from engine.checkpoint.source import SourceCheckpoint
from tests.support.checkpoints import recipe_for

def progress(stage, done, total):
    if done * 2 >= total:
        print("half", flush=True)
        sys.stdin.read()

source = SourceCheckpoint(Path(sys.argv[1]))
convert(source, Path(sys.argv[2]), recipe_for(source), progress, lambda: False)
"""


def test_convert_when_killed_half_way_then_the_next_one_clears_up(tmp_path: Path) -> None:
    """Case C-01, kill -9 at 50 %: no output under the name, source untouched, then all well."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    before = contents(folder)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"half"
        # It is alive and holds its lock: nobody else may write here now.
        with pytest.raises(FileAccess, match="Another conversion"):
            run(folder, target)
        child.kill()
    assert not target.exists()
    assert partial_folder(target).is_dir()
    assert contents(folder) == before
    run(folder, target)
    assert FtwReader(target).num_records == 10
    assert not partial_folder(target).exists()
    assert contents(folder) == before


@pytest.mark.skipif(
    files.OPEN_FILES_PIN_FOLDERS, reason="Windows moves no folder with a lock in it"
)
@pytest.mark.parametrize("how", ["published", "discarded"])
def test_convert_when_it_ends_then_nobody_else_can_begin_before_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The lock is held while the folder gets its name, or goes: a second one would share it."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    refused: list[str] = []

    def try_another() -> None:
        with pytest.raises(FileAccess) as caught:
            FtwWriter(target, 1)
        refused.append(caught.value.message)

    def rename(source: Path, name: Path) -> None:
        try_another()
        source.rename(name)

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        try_another()

    monkeypatch.setattr(files, "rename", rename)
    if how == "published":
        run(folder, target)
        assert FtwReader(target).num_records == 10
    else:
        monkeypatch.setattr("shutil.rmtree", rmtree)
        with pytest.raises(Cancelled):
            run(folder, target, cancelled=lambda: True)
    assert refused == ["Another conversion is writing m right now."]


@pytest.mark.skipif(files.OPEN_FILES_PIN_FOLDERS, reason="Windows has no flock")
def test_lock_when_its_file_was_moved_away_meanwhile_then_it_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that has another name by now guards nothing."""
    place = tmp_path / "lock"
    lock = files.FileLock(place)
    assert lock.acquire()
    lock.release()
    flock = files.fcntl.flock

    def slow(handle: int, how: int) -> None:
        place.rename(tmp_path / "gone")
        flock(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", slow)
    assert not lock.acquire()


@pytest.mark.skipif(files.OPEN_FILES_PIN_FOLDERS, reason="Windows has no flock")
def test_lock_when_the_disk_knows_no_locks_then_that_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not "another conversion": there is none."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with pytest.raises(FileAccess, match="no locks available"):
        run(write_checkpoint(tmp_path / "s"), tmp_path / "m")


def test_rename_when_a_scanner_holds_a_file_then_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as asked, then the error is told."""
    tried: list[Path] = []

    def deny(source: Path, name: Path) -> None:
        tried.append(name)
        if len(tried) < 3:
            raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(files, "_RENAME_PAUSE_S", 0.0)
    monkeypatch.setattr("os.rename", deny)
    files.rename(tmp_path, tmp_path / "new", tries=3)
    assert len(tried) == 3
    tried.clear()
    with pytest.raises(PermissionError):
        files.rename(tmp_path, tmp_path / "new", tries=2)


def test_convert_when_target_is_taken_then_it_is_left_alone(tmp_path: Path) -> None:
    """An existing model or document is never written over; an empty folder gives way."""
    folder = write_checkpoint(tmp_path / "s")
    taken = tmp_path / "taken"
    taken.mkdir()
    run(folder, taken)
    before = contents(taken)
    with pytest.raises(FileAccess, match="is there already"):
        run(folder, taken)
    assert contents(taken) == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileAccess, match="is there already"):
        run(folder, tmp_path / "file")


def test_convert_when_hidden_folder_is_not_ours_then_it_is_left_alone(tmp_path: Path) -> None:
    """Only what a conversion made is cleared away."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    partial_folder(target).mkdir()
    (partial_folder(target) / "diary.txt").write_text("mine")
    with pytest.raises(FileAccess, match="in the way"):
        run(folder, target)
    assert (partial_folder(target) / "diary.txt").read_text() == "mine"


def test_convert_when_target_is_inside_the_source_then_refused(tmp_path: Path) -> None:
    """The source is only read."""
    folder = write_checkpoint(tmp_path / "s")
    before = contents(folder)
    with pytest.raises(FileAccess, match="inside the folder"):
        run(folder, folder / "converted")
    assert contents(folder) == before


def test_convert_when_output_is_damaged_on_the_disk_then_it_never_gets_its_name(
    tmp_path: Path,
) -> None:
    """The check before the rename is a real one."""
    folder, target = write_checkpoint(tmp_path / "s"), tmp_path / "m"
    before = contents(folder)

    def progress(stage: str, done: int, total: int) -> None:
        bank = partial_folder(target) / "experts.bin"
        if stage == "convert" and done == total:
            raw = bytearray(bank.read_bytes())
            raw[17] ^= 1
            bank.write_bytes(raw)

    with pytest.raises(CorruptCheckpoint, match=r"experts\.bin"):
        run(folder, target, progress)
    assert_nothing_left(target, folder, before)
