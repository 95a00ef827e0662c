"""The move job: other disk, same disk, too little room, stopped half-way, damaged, cleaned."""

import shutil
from pathlib import Path

import pytest

from engine.checkpoint import files
from engine.jobs import move, move_files
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    DiskFull,
    FileAccess,
    InvalidRequest,
)
from engine.protocol.messages import Progress

NEVER = lambda: False  # noqa: E731


@pytest.fixture
def old(tmp_path):
    """A models folder with two models, a download, and things that are not ours."""
    folder = tmp_path / "old"
    put(folder / "big", experts=b"ab" * 50_000, sub=b"x" * 10)
    put(folder / "tiny", experts=b"cd" * 5_000)
    pinned = folder / ".downloads" / "maker" / "half"
    pinned.mkdir(parents=True)
    (pinned / "download.json").write_text('{"repo": "maker/half"}')
    (pinned / "model.safetensors.part").write_bytes(b"e" * 3_000)
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("keep me")
    return folder


@pytest.fixture
def new(tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    return folder


@pytest.fixture
def other_disk(monkeypatch):
    """As if the target were on another disk, in small chunks."""
    monkeypatch.setattr(move, "_try_rename", lambda *_: False)
    monkeypatch.setattr(move_files, "CHUNK_BYTES", 4096)


def put(folder: Path, experts: bytes, sub: bytes = b"") -> None:
    folder.mkdir(parents=True)
    (folder / "model.ftw").write_text("{}")
    (folder / "experts.bin").write_bytes(experts)
    if sub:
        (folder / "side").mkdir()
        (folder / "side" / "file.txt").write_bytes(sub)


def run(act, old, new, emit=lambda _: None, cancelled=NEVER, **more):
    spec = {"act": act, "source": str(old), "target": str(new), "id": "m", **more}
    return move.run(spec, emit, cancelled)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def ours(folder: Path) -> dict[str, bytes]:
    return {k: v for k, v in tree(folder).items() if not k.startswith("notes")}


def test_move_to_another_disk_then_verified_and_removed_only_when_asked(old, new, other_disk):
    """Two steps: after the copy both places are whole; the second removes the old one."""
    before, events = tree(old), []
    result = run("copy", old, new, events.append)
    assert tree(new) == ours(old)
    assert tree(old) == before, "the old place works until the app uses the new one"
    assert (result["num_models"], result["is_moved"], result["left"]) == (2, False, ["notes"])
    frames = [e for e in events if isinstance(e, Progress)]
    assert list(dict.fromkeys(f.stage for f in frames)) == ["check", "copy", "verify"]
    last = {f.stage: f for f in frames}
    assert last["copy"].done_bytes == last["copy"].total_bytes == result["num_bytes"]
    assert last["verify"].done_bytes == result["num_bytes"]
    freed = run("clean", old, new)
    assert freed == {"num_bytes": result["num_bytes"], "kept": []}
    assert tree(old) == {"notes/mine.txt": b"keep me"}
    assert not (old / ".downloads").exists()


def test_move_on_the_same_disk_then_renamed_at_once(old, new):
    """No byte is copied where none must be."""
    before = ours(old)
    result = run("copy", old, new)
    assert result["is_moved"]
    assert tree(new) == before
    assert tree(old) == {"notes/mine.txt": b"keep me"}
    assert run("clean", old, new) == {"num_bytes": 0, "kept": []}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
def test_move_between_real_file_systems_then_copied(old):
    """What the rename cannot do is found out by the device, not by its error."""
    target = Path("/dev/shm") / f"freetoken-test-{old.parent.name}"
    target.mkdir()
    try:
        if target.stat().st_dev == old.stat().st_dev:
            pytest.skip("the same file system")
        assert not run("copy", old, target)["is_moved"]
        assert tree(target) == ours(old)
    finally:
        shutil.rmtree(target)


@pytest.mark.parametrize("stage", ["copy", "verify"])
def test_move_when_stopped_then_the_old_place_works_and_the_next_run_goes_on(
    old, new, other_disk, monkeypatch, stage
):
    """Cancel at half: nothing has its name yet; what is there is not written again."""
    before, half = tree(old), []

    def emit(event):
        if event.stage == stage and 2 * event.done_bytes >= event.total_bytes > 0:
            half.append(event)

    with pytest.raises(Cancelled):
        run("copy", old, new, emit, lambda: bool(half))
    assert tree(old) == before
    assert {path.name for path in new.iterdir()} == {move.STAGE}
    kept = sum(map(len, tree(new).values()))
    assert kept > 0
    written = []
    real = move_files._write
    monkeypatch.setattr(
        move_files, "_write", lambda out, data: (written.append(len(data)), real(out, data))
    )
    run("copy", old, new)
    assert tree(new) == ours(old)
    assert sum(written) <= sum(map(len, ours(old).values())) - kept + 4096


def test_move_when_given_up_then_only_the_copy_goes(old, new, other_disk):
    """The person's "discard"."""
    before = tree(old)
    with pytest.raises(Cancelled):
        run("copy", old, new, cancelled=lambda: (new / move.STAGE).exists())
    assert run("drop", old, new) == {}
    assert list(new.iterdir()) == []
    assert tree(old) == before


def test_move_when_there_is_too_little_room_then_refused_before_the_first_byte(
    old, new, other_disk, monkeypatch
):
    """D-08: need and free bytes in one sentence."""
    monkeypatch.setattr(files, "free_bytes", lambda _: 5_000)
    with pytest.raises(DiskFull, match="are needed") as caught:
        run("copy", old, new)
    assert "4.9 KiB are free" in caught.value.message
    assert list(new.iterdir()) == []


def test_move_when_the_disk_fills_up_then_resumable(old, new, other_disk, monkeypatch):
    """D-07: a clear end, the old place untouched, what was copied is kept."""

    def full(out, data):
        raise OSError(28, "No space left on device")

    before = tree(old)
    monkeypatch.setattr(move_files, "_write", full)
    with pytest.raises(DiskFull, match="is full") as caught:
        run("copy", old, new)
    assert "old folder is as it was" in caught.value.hint
    monkeypatch.undo()
    monkeypatch.setattr(move, "_try_rename", lambda *_: False)
    assert tree(old) == before
    run("copy", old, new)
    assert tree(new) == ours(old)


def test_move_when_the_copy_differs_then_nothing_gets_its_name(old, new, other_disk, monkeypatch):
    """A disk that loses bits is found out while the old place is still whole."""
    real = move_files._write
    monkeypatch.setattr(move_files, "_write", lambda out, data: real(out, b"?" + data[1:]))
    with pytest.raises(CorruptCheckpoint, match="did not arrive"):
        run("copy", old, new)
    assert {path.name for path in new.iterdir()} == {move.STAGE}


def test_move_when_the_name_is_taken_then_refused(old, new):
    """Never over something else; the same model is no conflict."""
    put(new / "tiny", experts=b"other")
    with pytest.raises(FileAccess, match="another tiny"):
        run("copy", old, new)
    shutil.rmtree(new / "tiny")
    shutil.copytree(old / "tiny", new / "tiny")
    run("copy", old, new)
    assert tree(new) == tree(new) | {"big/model.ftw": b"{}"}


def test_move_when_one_rename_fails_then_all_are_back(old, new, monkeypatch):
    """Half a move is worse than none."""
    before, real = tree(old), move.rename

    def fail(source, target):
        if target == new / "tiny":
            raise PermissionError(13, "in use")
        real(source, target)

    monkeypatch.setattr(move, "rename", fail)
    with pytest.raises(FileAccess, match="Cannot move"):
        run("copy", old, new)
    assert tree(old) == before


def test_clean_when_the_copy_is_not_whole_then_kept(old, new, other_disk):
    """What the new place lacks is never removed from the old one."""
    run("copy", old, new)
    (new / "big" / "experts.bin").write_bytes(b"short")
    put(old / "later", experts=b"made meanwhile")
    result = run("clean", old, new)
    assert sorted(result["kept"]) == ["big", "later"]
    assert (old / "big" / "experts.bin").stat().st_size == 100_000
    assert not (old / "tiny").exists()


def test_import_then_one_model_is_copied_and_the_original_stays(old, new):
    """Also on the same disk."""
    before = tree(old)
    result = run("copy", old, new, names=["tiny"], keep=True)
    assert (result["num_models"], result["is_moved"]) == (1, False)
    assert tree(new) == {k: v for k, v in before.items() if k.startswith("tiny/")}
    assert tree(old) == before
    with pytest.raises(FileAccess, match="no model gone"):
        run("copy", old, new, names=["gone"], keep=True)


def test_import_when_the_own_folder_is_not_there_then_made(old, tmp_path):
    """The app's own models folder is made by what writes there first; no other is (D-17)."""
    own = tmp_path / "data" / "models"
    wanted = {"names": ["tiny"], "keep": True}
    with pytest.raises(FileAccess, match="is not there"):
        run("copy", old, own, **wanted, own_folder=str(tmp_path / "elsewhere"))
    assert run("copy", old, own, **wanted, own_folder=str(own))["num_models"] == 1
    assert (own / "tiny").is_dir()


def test_move_when_a_link_then_left_where_it_is(old, new):
    """A link leads to somebody else's place."""
    elsewhere = old.parent / "elsewhere"
    put(elsewhere, experts=b"far")
    (old / "linked").symlink_to(elsewhere)
    assert "linked" in run("copy", old, new)["left"]
    assert not (new / "linked").exists()


@pytest.mark.parametrize("places", ["same", "inside", "around", "gone"])
def test_move_when_the_places_make_no_sense_then_refused(old, new, places):
    """D-21: checked before anything happens."""
    before = tree(old)
    target = {"same": old, "inside": old / "notes", "around": old.parent, "gone": new / "x"}
    with pytest.raises(FileAccess):
        run("copy", old, target[places])
    assert tree(old) == before


def test_move_when_the_act_is_unknown_then_invalid(old, new):
    """Named, with those there are."""
    with pytest.raises(InvalidRequest, match="copy, clean, drop"):
        run("eat", old, new)
