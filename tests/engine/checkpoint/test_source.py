"""Reading published folders: right tensors from whole ones, one sentence for every other kind."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from engine.checkpoint.safetensors import read_header
from engine.checkpoint.source import SourceCheckpoint
from engine.protocol.errors import CorruptCheckpoint, EngineError, FileAccess, UnsupportedCheckpoint
from tests.support.checkpoints import write_checkpoint, write_json

SECOND = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("quant", ["bf16", "fp8_block"])
def test_source_when_whole_then_tensors_equal_those_of_the_library(
    tmp_path: Path, shards: int, quant: str
) -> None:
    """Our plain reads and the safetensors library give the same bytes."""
    folder = write_checkpoint(tmp_path / "model", quant=quant, shards=shards)
    source = SourceCheckpoint(folder)
    seen = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as library:
            for name in library.keys():  # noqa: SIM118 (not a dict)
                expected = library.get_tensor(name)
                found = source.tensor(name)
                assert found.dtype == expected.dtype
                assert found.shape == expected.shape
                assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
                seen += 1
    assert seen == len(source.tensors)


def test_source_when_path_has_every_script_then_it_reads(tmp_path: Path) -> None:
    """Case E-17: accents, CJK, spaces and emoji in the path."""
    folder = write_checkpoint(tmp_path / "Ž é 模型 😀" / "my model", shards=2)
    assert SourceCheckpoint(folder).name == "my model"


def test_source_when_in_a_hub_cache_then_named_after_the_repository(tmp_path: Path) -> None:
    """A snapshot's folder is named by a hash, which tells a person nothing."""
    folder = tmp_path / "models--Qwen--Qwen3-30B-A3B-FP8" / "snapshots" / "0123abcd"
    assert SourceCheckpoint(write_checkpoint(folder)).name == "Qwen3-30B-A3B-FP8"


def test_source_when_weights_change_shape_or_config_changes_then_fingerprint_differs(
    tmp_path: Path,
) -> None:
    """Same files, same fingerprint; another config, another one."""
    first = SourceCheckpoint(write_checkpoint(tmp_path / "a")).fingerprint
    folder = write_checkpoint(tmp_path / "b")
    assert SourceCheckpoint(folder).fingerprint == first
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"rope_theta": 5.0})
    assert SourceCheckpoint(folder).fingerprint != first


def _edit_index(folder: Path, edit: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    edit(index["weight_map"])
    write_json(folder / INDEX, index)


def _missing(folder: Path) -> None:
    (folder / SECOND).unlink()


def _cut_data(folder: Path) -> None:
    raw = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(raw[: len(raw) // 2])


def _cut_header(folder: Path) -> None:
    (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:100])


def _empty_shard(folder: Path) -> None:
    (folder / SECOND).write_bytes(b"")


def _header_text(folder: Path) -> None:
    raw = bytearray((folder / SECOND).read_bytes())
    raw[8:11] = b"???"
    (folder / SECOND).write_bytes(raw)


def _header_length(folder: Path) -> None:
    raw = bytearray((folder / SECOND).read_bytes())
    raw[:8] = struct.pack("<Q", 1 << 60)
    (folder / SECOND).write_bytes(raw)


def _too_long(folder: Path) -> None:
    with (folder / SECOND).open("ab") as file:
        file.write(b"once more")


def _lfs_pointer(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / SECOND).write_text(text)


def _promised(folder: Path) -> None:
    _edit_index(folder, lambda names: names.update({"model.extra.weight": SECOND}))


def _elsewhere(folder: Path) -> None:
    _edit_index(folder, lambda names: names.update({"x": "../outside.safetensors"}))


def _no_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def _broken_index(folder: Path) -> None:
    (folder / INDEX).write_text("{")


def _broken_config(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff{")


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (_missing, f"{SECOND} is missing"),
    (_cut_data, f"{SECOND} is cut off"),
    (_cut_header, f"{SECOND} is cut off"),
    (_empty_shard, f"{SECOND} is cut off"),
    (_header_text, f"header of {SECOND} is damaged"),
    (_header_length, f"header of {SECOND} is damaged"),
    (_too_long, f"{SECOND} has 9 bytes more"),
    (_lfs_pointer, f"{SECOND} is only a Git LFS pointer"),
    (_promised, f"{SECOND} lacks the tensor model.extra.weight"),
    (_elsewhere, "impossible file: ../outside.safetensors"),
    (_no_index, f"{INDEX} is missing"),
    (_broken_index, f"{INDEX} is damaged"),
    (_broken_config, "config.json is damaged"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=[d.__name__ for d, _ in DAMAGE])
def test_source_when_damaged_then_one_sentence_names_the_file(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    """Case C-01: the shard is named, and the hint says what to do."""
    folder = write_checkpoint(tmp_path / "model")
    damage(folder)
    with pytest.raises(CorruptCheckpoint) as caught:
        SourceCheckpoint(folder)
    assert words in caught.value.message
    assert caught.value.message.endswith(".")
    assert caught.value.hint


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_header_when_bytes_are_changed_then_read_or_refused_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Headers are input: whatever they hold, the answer is tensors in range or an EngineError."""
    folder = tmp_path_factory.getbasetemp() / "header"
    file = folder / "model.safetensors"
    if not file.exists():
        write_checkpoint(folder, shards=1)
    raw = bytearray(file.read_bytes())
    header = struct.unpack("<Q", raw[:8])[0]
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, 8 + min(header, 400)))] = data.draw(st.integers(0, 255))
    changed = folder / "changed.bin"
    changed.write_bytes(raw)
    try:
        tensors = read_header(changed).tensors
    except EngineError as problem:
        tensors, message = {}, problem.message
    else:
        message = "changed.bin"
    assert "changed.bin" in message
    assert all(0 <= t.offset <= t.offset + t.num_bytes <= len(raw) for t in tensors.values())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["config.json", "model.gguf"], "GGUF weights"),
        (["model.gguf"], "GGUF weights"),
        (["config.json", "pytorch_model.bin"], ".bin weights"),
        (["config.json", "model.pt"], ".pt weights"),
        (["config.json"], "holds no weights"),
        (["readme.txt"], "has no config.json"),
        ([], "has no config.json"),
        (["model.ftw", "config.json"], "is converted already"),
        (["freetoken_weight.json", "config.json"], "v1"),
    ],
)
def test_source_when_folder_is_of_another_kind_then_unsupported_says_which(
    tmp_path: Path, files: list[str], words: str
) -> None:
    """Case C-08: a foreign folder gives a reason, not a traceback."""
    for file in files:
        (tmp_path / file).write_text("{}")
    with pytest.raises(UnsupportedCheckpoint) as caught:
        SourceCheckpoint(tmp_path)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["absent", "file"])
def test_source_when_there_is_no_folder_then_file_access(tmp_path: Path, kind: str) -> None:
    """The path is in the sentence."""
    place = tmp_path / "nothing"
    if kind == "file":
        place.write_text("x")
    with pytest.raises(FileAccess, match="nothing"):
        SourceCheckpoint(place)


def test_source_when_config_has_no_model_type_then_unsupported(tmp_path: Path) -> None:
    """Config is there, but of something else."""
    folder = write_checkpoint(tmp_path / "model")
    write_json(folder / "config.json", {"hidden_size": 3})
    with pytest.raises(UnsupportedCheckpoint, match="model_type"):
        SourceCheckpoint(folder).model_type


def test_source_when_shard_shrinks_after_the_check_then_corrupt_names_it(tmp_path: Path) -> None:
    """A file that changes under our hands is a sentence, not a bus error."""
    folder = write_checkpoint(tmp_path / "model", shards=1)
    source = SourceCheckpoint(folder)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match=r"model\.safetensors"):
        source.tensor("model.norm.weight")
