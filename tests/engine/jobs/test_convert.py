"""The convert and verify jobs: from a folder on disk to a checked model, or one sentence."""

from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import renew
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.renew import is_current
from engine.checkpoint.writer import partial_folder
from engine.jobs import convert, verify
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    FileAccess,
    InvalidRequest,
    UnsupportedCheckpoint,
)
from engine.protocol.messages import Event, Progress
from tests.support.checkpoints import tiny_config, write_checkpoint, write_json


def spec_of(source: Path, target: Path) -> dict[str, Any]:
    return {"source": str(source), "target": str(target), "id": "job-1"}


@pytest.mark.parametrize("quant", ["bf16", "fp8_block"])
def test_convert_job_when_done_then_result_and_progress_tell_it(tmp_path: Path, quant: str) -> None:
    """Progress carries the job's id and runs through check, convert, verify."""
    source = write_checkpoint(tmp_path / "source", quant=quant)
    events: list[Event] = []
    result = convert.run(spec_of(source, tmp_path / "m"), events.append, lambda: False)
    reader = FtwReader(tmp_path / "m")
    assert result["path"] == str(tmp_path / "m")
    assert (result["name"], result["quant"]) == ("source", quant)
    assert (result["num_records"], result["num_aux"]) == (reader.num_records, 0)
    stages = [event.stage for event in events if isinstance(event, Progress)]
    assert list(dict.fromkeys(stages)) == ["check", "convert", "verify"]
    assert {event.id for event in events if isinstance(event, Progress)} == {"job-1"}


def test_convert_job_when_cancelled_half_way_then_nothing_is_left(tmp_path: Path) -> None:
    """Cancel is asked between tensors."""
    source, target = write_checkpoint(tmp_path / "source"), tmp_path / "m"
    half: list[Event] = []

    def emit(event: Event) -> None:
        if isinstance(event, Progress) and 0 < event.total_bytes <= event.done_bytes * 2:
            half.append(event)

    with pytest.raises(Cancelled):
        convert.run(spec_of(source, target), emit, lambda: bool(half))
    assert not target.exists()
    assert not partial_folder(target).exists()


def test_convert_job_when_architecture_is_unknown_then_supported_ones_are_listed(
    tmp_path: Path,
) -> None:
    """Before anything is written (case C-08)."""
    source = write_checkpoint(tmp_path / "source")
    write_json(source / "config.json", tiny_config() | {"model_type": "made_up"})
    with pytest.raises(UnsupportedCheckpoint, match="made_up") as caught:
        convert.run(spec_of(source, tmp_path / "m"), lambda _: None, lambda: False)
    assert "qwen3_moe" in caught.value.hint
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("spec", [{}, {"source": "x"}, {"source": 3, "target": "y"}])
def test_convert_job_when_spec_has_no_paths_then_invalid(spec: dict[str, Any]) -> None:
    """The missing key is named."""
    with pytest.raises(InvalidRequest, match=r"source|target"):
        convert.run(spec, lambda _: None, lambda: False)


def test_verify_job_when_whole_then_counts_and_when_damaged_then_names_the_file(
    tmp_path: Path,
) -> None:
    """The same job, before and after one flipped bit."""
    source = write_checkpoint(tmp_path / "source")
    convert.run(spec_of(source, tmp_path / "m"), lambda _: None, lambda: False)
    events: list[Event] = []
    spec = {"model": str(tmp_path / "m"), "id": "v"}
    result = verify.run(spec, events.append, lambda: False)
    assert result["num_records"] == 10
    last = events[-1]
    assert isinstance(last, Progress)
    assert last.done_bytes == last.total_bytes == result["num_bytes"]
    with pytest.raises(Cancelled):
        verify.run(spec, events.append, lambda: True)
    raw = bytearray((tmp_path / "m" / "tensors.bin").read_bytes())
    raw[3] ^= 4
    (tmp_path / "m" / "tensors.bin").write_bytes(raw)
    with pytest.raises(CorruptCheckpoint, match=r"tensors\.bin"):
        verify.run(spec, events.append, lambda: False)


@pytest.mark.weights
def test_convert_job_when_given_the_built_in_model_then_it_is_whole(
    tmp_path: Path, builtin_model: Path
) -> None:
    """8 layers x 24 experts of 148 KiB, tied embeddings."""
    result = convert.run(spec_of(builtin_model, tmp_path / "m"), lambda _: None, lambda: False)
    assert (result["num_records"], result["quant"]) == (8 * 24, "fp8_block")
    assert FtwReader(tmp_path / "m").record_bytes == 148 * 1024


def test_convert_job_when_replacing_then_the_older_one_goes_after_the_new_one_is_whole(
    tmp_path: Path,
) -> None:
    """The built-in model of a newer version: same shapes, other weights, same folder."""
    source = write_checkpoint(tmp_path / "source")
    target = tmp_path / "m"
    convert.run(spec_of(source, target), lambda _: None, lambda: False)
    assert is_current(target, source)
    shard = next(source.glob("*.safetensors"))
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    assert not is_current(target, source)
    stopped = {**spec_of(source, target), "replace": True}
    with pytest.raises(Cancelled):
        convert.run(stopped, lambda _: None, lambda: True)
    assert FtwReader(target).index.source.content, "the older one still serves"
    result = convert.run(stopped, lambda _: None, lambda: False)
    assert result["path"] == str(target)
    assert is_current(target, source)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "m"}


def test_put_in_place_when_the_rename_fails_then_the_older_one_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file held open on Windows must not cost the model."""
    target, fresh = tmp_path / "m", renew.fresh_folder(tmp_path / "m")
    for folder, word in ((target, "old"), (fresh, "new")):
        folder.mkdir()
        (folder / "word").write_text(word)
    real = renew.rename

    def fail(source: Path, to: Path) -> None:
        if source == fresh:
            raise PermissionError(13, "in use")
        real(source, to)

    monkeypatch.setattr(renew, "rename", fail)
    with pytest.raises(FileAccess, match="Cannot replace"):
        renew.put_in_place(fresh, target)
    assert (target / "word").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_convert_job_whatever_card_or_driver_there_is_then_it_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases C-02 and C-03: an old driver, or a card that is not for us, cannot make it wait."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a device was asked for")

    for name in ("torch.cuda._lazy_init", "torch.cuda.is_available", "pynvml.nvmlInit"):
        monkeypatch.setattr(name, refuse)
    monkeypatch.setattr("kernels.device.registry.open_device", refuse)
    source = write_checkpoint(tmp_path / "source", quant="fp8_block")
    convert.run(spec_of(source, tmp_path / "m"), lambda _: None, lambda: False)
    assert FtwReader(tmp_path / "m").num_records


def test_convert_job_when_the_models_folder_is_away_then_nothing_is_made(tmp_path: Path) -> None:
    """D-17: a disk that was taken out while the conversion waited."""
    source, away = write_checkpoint(tmp_path / "source"), tmp_path / "mnt" / "models"
    spec = spec_of(source, away / "m") | {"room_at": str(away)}
    with pytest.raises(FileAccess, match="is not there"):
        convert.run(spec, lambda _: None, lambda: False)
    assert not (tmp_path / "mnt").exists()
    away.mkdir(parents=True)
    assert convert.run(spec, lambda _: None, lambda: False)["path"] == str(away / "m")


def test_convert_job_when_the_own_folder_is_not_there_then_made(tmp_path: Path) -> None:
    """Only a chosen folder can be a disk that is away (D-17)."""
    source, own = write_checkpoint(tmp_path / "source"), tmp_path / "data" / "models"
    spec = spec_of(source, own / "m") | {"room_at": str(own), "own_folder": str(own)}
    assert convert.run(spec, lambda _: None, lambda: False)["path"] == str(own / "m")
    other = spec | {"target": str(tmp_path / "mnt" / "m"), "room_at": str(tmp_path / "mnt")}
    with pytest.raises(FileAccess, match="is not there"):
        convert.run(other, lambda _: None, lambda: False)


def test_convert_job_when_the_own_folder_cannot_be_made_then_said(tmp_path: Path) -> None:
    """A file is in its way."""
    source = write_checkpoint(tmp_path / "source")
    (tmp_path / "data").write_text("a file")
    own = tmp_path / "data" / "models"
    spec = spec_of(source, own / "m") | {"room_at": str(own), "own_folder": str(own)}
    with pytest.raises(FileAccess, match="Cannot make"):
        convert.run(spec, lambda _: None, lambda: False)
