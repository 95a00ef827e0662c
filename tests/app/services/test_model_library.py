"""The library: odd files, lost folders, outside conversions, deletion."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from app.services.job_state import JobState
from app.services.model_library import ModelLibrary, targets_of
from app.services.model_scan import MAX_ENTRIES, read_ftw, scan
from engine.protocol.identity import content_id

INDEX = {
    "format": "freetoken",
    "major": 2,
    "minor": 0,
    "name": "Tiny",
    "model_type": "qwen3_moe",
    "quant": "fp8_block",
    "total_bytes": 31_000_000,
    "source": {"name": "tiny-src", "fingerprint": "x"},
    "config": {
        "num_hidden_layers": 8,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "hidden_size": 256,
        "max_position_embeddings": 4096,
        "surprise": [1, 2],
    },
    "bank": {
        "file": 0,
        "offset": 0,
        "layer_ids": [0, 1, 2, 3, 4, 5, 6, 7],
        "num_experts": 32,
        "layout": {"id": "units16", "record_bytes": 110_592},
        "record_xxh3": [],
    },
}


def put(folder, **changes):
    folder.mkdir(parents=True)
    (folder / "model.ftw").write_text(json.dumps(INDEX | changes), "utf-8")
    (folder / "experts.bin").write_bytes(b"x" * 1000)
    return folder


@pytest.fixture
def library(qtbot, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    lib = ModelLibrary(tmp_path / "models", sources, tmp_path / "share")
    yield lib
    lib.close()


def look(qtbot, library):
    with qtbot.waitSignal(library.changed):
        library.refresh()
    return [entry.name for entry in library.entries()]


def test_read_ftw_then_facts_of_index_and_config(tmp_path):
    """Everything the pages need comes from one small file."""
    entry = read_ftw(put(tmp_path / "tiny"), {"tiny-src"})
    assert (entry.name, entry.quant, entry.model_type) == ("Tiny", "fp8_block", "qwen3_moe")
    assert entry.pool_bytes == 8 * 32 * 110_592
    assert entry.ram_bytes == entry.total_bytes == 31_000_000
    assert (entry.num_layers, entry.num_experts, entry.top_k) == (8, 32, 4)
    assert entry.context_tokens == 4096
    assert entry.is_builtin


def test_scan_when_folder_is_odd_then_rest_is_listed(tmp_path):
    """D-20: a git repository, a text file, null metadata, damage: skipped with a note each."""
    models = tmp_path / "models"
    put(models / "good")
    (models / "repo" / ".git").mkdir(parents=True)
    (models / "notes.txt").write_text("hello")
    put(models / "foreign", format="other")
    put(models / "future", major=3)
    put(models / "null", name=None)
    (models / "cut").mkdir()
    (models / "cut" / "model.ftw").write_bytes(b'{"format": "freeto')
    (models / "bytes").mkdir()
    (models / "bytes" / "model.ftw").write_bytes(b"\xff\xfe\x00")
    (models / ".half.converting").mkdir()
    found = scan((models,), ())
    assert [e.path.name for e in found.entries] == ["good"]
    skipped = {note.path.name: note.reason for note in found.notes}
    assert set(skipped) == {"repo", "notes.txt", "foreign", "future", "null", "cut", "bytes"}
    assert "version 3" in skipped["future"]


@pytest.mark.skipif(
    sys.platform == "win32" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="needs a user whose reading can be forbidden",
)
def test_scan_when_unreadable_then_noted(tmp_path):
    """D-20: rights are a note, too."""
    folder = put(tmp_path / "models" / "locked")
    (folder / "model.ftw").chmod(0)
    assert len(scan((tmp_path / "models",), ()).notes) == 1


def test_scan_when_huge_folder_then_bounded(tmp_path):
    """D-21: a wrong choice of folder is looked at only so far, and said so."""
    for number in range(MAX_ENTRIES + 50):
        (tmp_path / f"f{number}").touch()
    found = scan((tmp_path,), ())
    assert len(found.notes) <= MAX_ENTRIES + 1
    assert any("Only the first" in note.reason for note in found.notes)
    assert len(found.taken) == MAX_ENTRIES + 50  # none of them is written into


def test_refresh_when_converted_elsewhere_then_listed(qtbot, library, tmp_path):
    """C-07, D-19: what the command line made is there after Refresh, and again after deletion."""
    assert look(qtbot, library) == []
    put(tmp_path / "models" / "cli")
    assert look(qtbot, library) == ["Tiny"]


def test_chosen_folder_when_offline_then_missing_and_back(qtbot, library, tmp_path):
    """D-17: a share that is away is a banner; nothing is written elsewhere, the list returns."""
    share = tmp_path / "share"
    put(share / "big", name="Big")
    put(tmp_path / "models" / "tiny")
    assert look(qtbot, library) == ["Big", "Tiny"]
    share.rename(tmp_path / "away")
    assert look(qtbot, library) == ["Tiny"]
    assert library.missing == (share,)
    with pytest.raises(OSError, match="not there"):
        library.target_for("new")
    assert not share.exists()
    (tmp_path / "away").rename(share)
    assert look(qtbot, library) == ["Big", "Tiny"]
    assert library.missing == ()


def test_own_folder_when_absent_then_no_banner(qtbot, library, tmp_path):
    """The app's own folder is made by the job that writes; its absence is no fault."""
    library.set_extra(None)
    assert look(qtbot, library) == []
    assert library.missing == ()
    library.target_for("x")
    assert library.job_extra().spec == {"own_folder": str(tmp_path / "models")}


def test_builtin_source_then_listed_until_converted(qtbot, library, tmp_path):
    """The model that came with the app is offered, and hidden once it can be loaded."""
    source = tmp_path / "sources" / "tiny-src"
    source.mkdir()
    (source / "config.json").write_text(
        json.dumps({"model_type": "qwen3_moe", "quantization_config": {"quant_method": "fp8"}})
    )
    (source / "a.safetensors").write_bytes(b"x" * 10)
    (tmp_path / "sources" / "README.txt").write_text("no model")
    look(qtbot, library)
    (entry,) = library.entries()
    assert (entry.kind, entry.total_bytes, entry.quant) == ("builtin_source", 10, "fp8")
    put(tmp_path / "models" / "tiny-src", name="tiny-src")
    look(qtbot, library)
    (entry,) = library.entries()
    assert (entry.kind, entry.renew_from) == ("ftw", source), "of other bytes, as it seems"


def test_builtin_when_the_source_is_another_now_then_marked_to_be_made_anew(
    qtbot, library, tmp_path
):
    """Headers and sizes of newer weights may be the same; their bytes are not."""
    source = tmp_path / "sources" / "tiny-src"
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "a.safetensors").write_bytes(b"weights 1")
    made_of = {"name": "tiny-src", "fingerprint": "x", "content": content_id(source)}
    put(tmp_path / "models" / "tiny-src", name="tiny-src", source=made_of)
    look(qtbot, library)
    assert [e.renew_from for e in library.entries()] == [None]
    (source / "a.safetensors").write_bytes(b"weights 2")
    look(qtbot, library)
    assert [e.renew_from for e in library.entries()] == [source]


def test_delete_then_gone_from_list_and_disk(qtbot, library, tmp_path):
    """Freed bytes are told; nobody can load what is going, whatever a look finds meanwhile."""
    folder = put(tmp_path / "models" / "tiny")
    look(qtbot, library)
    told = []
    library.changed.connect(lambda: told.append(library.entries()))
    with qtbot.waitSignal(library.deleted) as deleted:
        library.delete(folder)
        library.delete(folder)
        assert told == [()]
        assert library.entry(folder) is None
    entry, freed = deleted.args
    assert (entry.path, entry.name) == (folder, "Tiny")
    assert freed > 1000
    assert library.entries() == ()
    qtbot.waitUntil(lambda: list((tmp_path / "models").iterdir()) == [])


def test_delete_when_not_ours_then_refused(qtbot, library, tmp_path):
    """Only FTW folders directly inside a models folder can be deleted."""
    outside = put(tmp_path / "elsewhere" / "tiny")
    plain = tmp_path / "models" / "photos"
    plain.mkdir(parents=True)
    for folder, why in ((outside, "models folder"), (plain, "No such file")):
        with qtbot.waitSignal(library.not_deleted) as refused:
            library.delete(folder)
        assert refused.args[0] == folder
        assert why in refused.args[1]
        assert folder.exists()


def test_delete_when_refused_then_it_is_in_the_list_again(qtbot, library, tmp_path, monkeypatch):
    """A busy file: the model was hidden for a moment only."""
    folder = put(tmp_path / "models" / "tiny")
    look(qtbot, library)

    def busy(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", busy)
    listed = []
    library.not_deleted.connect(lambda *_: listed.append(library.entry(folder)))
    with qtbot.waitSignal(library.not_deleted) as refused:
        library.delete(folder)
    assert refused.args == [folder, "Permission denied"]
    assert [entry.path for entry in listed] == [folder]


def test_delete_when_the_name_is_as_long_as_can_be_and_one_was_left_then_gone(
    qtbot, library, tmp_path
):
    """Its new name is short, and none that is taken."""
    models, name = tmp_path / "models", "n" * 250
    folder = put(models / name)
    left = models / f".{hashlib.sha256(name.encode()).hexdigest()[:16]}-0.deleted"
    left.write_text("a file, not even a folder")
    look(qtbot, library)
    with qtbot.waitSignal(library.deleted):
        library.delete(folder)
    qtbot.waitUntil(lambda: list(models.iterdir()) == [left])


def test_delete_when_the_app_ends_meanwhile_then_nothing_is_told(qtbot, library, tmp_path):
    """The thread has its name, and the folder goes all the same."""
    folder = put(tmp_path / "models" / "tiny")
    look(qtbot, library)
    library.close()
    with qtbot.assertNotEmitted(library.deleted):
        library.delete(folder)
        qtbot.waitUntil(lambda: list((tmp_path / "models").iterdir()) == [])


def test_target_for_when_taken_then_next_name(qtbot, library, tmp_path):
    """An existing folder is never written into, whatever it holds."""
    library.set_extra(None)
    put(tmp_path / "models" / "tiny")
    (tmp_path / "models" / "tiny-2").mkdir()
    look(qtbot, library)
    assert library.is_taken("tiny")
    assert library.target_for("tiny").name == "tiny-3"
    assert library.target_for("other") == tmp_path / "models" / "other"


def test_target_for_when_a_conversion_will_make_it_then_next_name(qtbot, library, tmp_path):
    """What is not on the disk yet; what has ended is told by the disk."""
    library.set_extra(None)
    look(qtbot, library)
    models = tmp_path / "models"
    jobs = [
        JobState(id="job-1", job="convert", spec={"target": str(models / "a")}, phase="running"),
        JobState(id="job-2", job="convert", spec={"target": str(models / "a-2")}),
        JobState(id="job-3", job="convert", spec={"target": str(models / "b")}, phase="failed"),
        JobState(id="job-4", job="download", spec={"target": str(models / "c")}),
    ]
    names = [library.target_for(name, targets_of(jobs)).name for name in "abc"]
    assert names == ["a-3", "b", "c"]


def test_target_for_when_the_name_is_taken_in_another_folder_then_free(qtbot, library, tmp_path):
    """New models go to the chosen folder; what lies in the app's own is not in the way."""
    put(tmp_path / "models" / "tiny")
    (tmp_path / "share").mkdir()
    look(qtbot, library)
    assert library.target_for("tiny") == tmp_path / "share" / "tiny"


@pytest.mark.skipif(sys.platform != "win32", reason="names are told apart by case elsewhere")
def test_target_for_when_taken_in_other_letters_then_next_name(qtbot, library, tmp_path):
    """As the system sees it."""
    library.set_extra(None)
    put(tmp_path / "models" / "Tiny")
    look(qtbot, library)
    assert library.target_for("tiny").name == "tiny-2"


def test_target_for_when_deleted_then_free_at_once(qtbot, library, tmp_path):
    """The list says so before the next look is over."""
    library.set_extra(None)
    folder = put(tmp_path / "models" / "tiny")
    look(qtbot, library)
    found = []
    library.deleted.connect(lambda *_: found.append(library.target_for("tiny")))
    with qtbot.waitSignal(library.deleted):
        library.delete(folder)
    assert found == [folder]


def test_target_for_when_the_folder_is_back_then_the_next_try_sees_it(qtbot, library, tmp_path):
    """D-17: a refusal looks again, so that nobody has to ask for it."""
    look(qtbot, library)
    (tmp_path / "share").mkdir()
    with qtbot.waitSignal(library.changed), pytest.raises(OSError, match="not there"):
        library.target_for("tiny")
    assert library.target_for("tiny") == tmp_path / "share" / "tiny"
