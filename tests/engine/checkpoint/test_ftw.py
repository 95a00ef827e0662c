"""FTW folders: written and read back the same; anything else is refused in a sentence."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint.dtypes import DTYPES, dtype_name
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.index import Bank, Index, LayoutFacts, Source
from engine.checkpoint.verify import verify_folder
from engine.checkpoint.writer import FtwWriter, Written
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    EngineError,
    FileAccess,
    UnsupportedCheckpoint,
)
from kernels.layouts import RecordLayout
from kernels.reference.records import pack_record
from tests.support.checkpoints import convert_checkpoint, write_checkpoint

SMALL = RecordLayout(8, 16, "bf16")  # one record = 4 KiB


def write_ftw(
    target: Path,
    records: torch.Tensor,
    num_experts: int,
    tensors: dict[str, torch.Tensor] | None = None,
) -> Path:
    """Write a folder by hand: records uint8 [layers * experts, 4096] and dense tensors."""

    def index(written: Written) -> Index:
        return Index(
            name="hand made",
            model_type="qwen3_moe",
            quant="bf16",
            total_bytes=sum(file.num_bytes for file in written.files),
            source=Source(name="hand made", fingerprint=""),
            config={"any": [1, "thing"]},
            files=written.files,
            bank=Bank(
                file=0,
                offset=0,
                layer_ids=tuple(range(records.shape[0] // num_experts)),
                num_experts=num_experts,
                layout=LayoutFacts.of(SMALL),
                record_xxh3=written.record_xxh3,
            ),
            tensors=written.tensors,
        )

    with FtwWriter(target, 1) as writer:
        for record in records:
            writer.add_record(record)
        for name, tensor in (tensors or {}).items():
            raw = tensor.contiguous().reshape(-1).view(torch.uint8)
            writer.add_tensor(name, "dense", dtype_name(tensor.dtype), tuple(tensor.shape), raw)
        writer.seal(index)
        writer.publish()
    return target


def read_pool(reader: FtwReader) -> torch.Tensor:
    out = torch.empty(reader.num_records, reader.record_bytes, dtype=torch.uint8)
    reader.read_pool(out, lambda *_: None, lambda: False)
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted tiny FP8 model; tests that damage it work on a copy."""
    base = tmp_path_factory.mktemp("ftw")
    return convert_checkpoint(write_checkpoint(base / "source", quant="fp8_block"), base / "model")


dtypes = st.sampled_from([d for d in DTYPES.values() if d not in (torch.bool,)])
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.tuples(dtypes, shapes), max_size=5))
def test_ftw_when_written_then_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    layers: int,
    experts: int,
    kinds: list[tuple[torch.dtype, tuple[int, ...]]],
) -> None:
    """Records and tensors of any dtype and shape, scalars and empty ones (case M-05) included."""
    folder = tmp_path_factory.mktemp("identity")
    records = torch.randint(0, 256, (layers * experts, SMALL.record_bytes), dtype=torch.uint8)
    tensors = {}
    for number, (dtype, shape) in enumerate(kinds):
        count = torch.Size(shape).numel() * dtype.itemsize
        raw = torch.randint(0, 256, (count,), dtype=torch.uint8)
        tensors[f"t{number}"] = raw.view(dtype).reshape(shape)
    reader = FtwReader(write_ftw(folder / "m", records, experts, tensors))
    assert torch.equal(read_pool(reader), records)
    assert reader.dense_names() == tuple(tensors)
    for name, tensor in tensors.items():
        found = reader.dense(name)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        raw = tensor.contiguous().reshape(-1).view(torch.uint8)
        assert torch.equal(found.reshape(-1).view(torch.uint8), raw)
    assert reader.config == {"any": [1, "thing"]}
    verify_folder(reader.folder, lambda *_: None, lambda: False)


def test_pool_when_read_in_8_kb_chunks_then_banks_fill_as_in_the_papers_example(
    tmp_path: Path,
) -> None:
    """The first 8 KB fill bank 1 (experts E11, E12), the second bank 2 (E21, E22).

    Source: the loading example of arXiv 2608.16157; a bank is a layer of two 4 KiB records.
    """
    names = {11: 0, 12: 1, 21: 2, 22: 3}
    records = torch.stack(
        [
            pack_record(SMALL, *(torch.full(size, float(name)).bfloat16() for size in sizes))
            for name in names
            for sizes in [((16, 8), (16, 8), (8, 16))]
        ]
    )
    reader = FtwReader(write_ftw(tmp_path / "m", records, num_experts=2), chunk_bytes=8192)
    host = torch.full((4, SMALL.record_bytes), 0xEE, dtype=torch.uint8)
    banks = []

    def after_chunk(done: int, total: int) -> None:
        banks.append((done, total, host.clone()))

    reader.read_pool(host, after_chunk, lambda: False)
    assert [(done, total) for done, total, _ in banks] == [(8192, 16384), (16384, 16384)]
    first, second = banks[0][2], banks[1][2]
    assert torch.equal(first[:2], records[:2])
    assert bool((first[2:] == 0xEE).all())
    assert torch.equal(second, records)
    values = second.view(torch.bfloat16)[:, 0].tolist()
    assert values == [float(name) for name in names]


def test_reader_when_model_is_converted_then_facts_are_those_of_the_checkpoint(
    model: Path,
) -> None:
    """What the loader asks for."""
    reader = FtwReader(model)
    assert (reader.model_type, reader.quant, reader.name) == ("qwen3_moe", "fp8_block", "source")
    assert (reader.num_moe_layers, reader.num_experts, reader.num_records) == (2, 5, 10)
    assert reader.layout == RecordLayout(160, 48, "fp8_block", 128)
    assert reader.pool_bytes == 10 * reader.record_bytes
    assert reader.record_bytes % 4096 == 0
    assert reader.config["num_experts"] == 5
    assert "model.norm.weight" in reader.dense_names()
    assert not any(name.endswith("_scale_inv") for name in reader.dense_names())
    assert reader.weight("model.layers.0.self_attn.q_proj.weight").encoding == "fp8_block"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_folder_when_a_byte_is_flipped_then_refused_naming_the_file(
    model: Path, data: st.DataObject
) -> None:
    """Any byte of index, records, tensors or copied files; only padding may change unnoticed."""
    index = FtwReader(model).index
    spots = [(model / side.name, 0, side.num_bytes) for side in index.side_files]
    index_spot = len(spots)
    spots.append((model / "model.ftw", 0, (model / "model.ftw").stat().st_size))
    spots.append((model / index.files[0].name, index.bank.offset, index.bank.num_bytes))
    spots += [(model / index.files[t.file].name, t.offset, t.num_bytes) for t in index.tensors]
    # The index half of the time: it is where a flip could do most harm.
    path, start, length = data.draw(st.sampled_from([*spots, *[spots[index_spot]] * len(spots)]))
    at = start + data.draw(st.integers(0, length - 1))
    mask = data.draw(st.integers(1, 255))
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ mask]))
    try:
        with pytest.raises(EngineError) as caught:
            verify_folder(model, lambda *_: None, lambda: False)
        assert isinstance(caught.value, CorruptCheckpoint | UnsupportedCheckpoint)
        assert path.name in caught.value.message
        assert caught.value.hint
    finally:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([old]))


def test_pool_when_a_record_is_flipped_then_the_expert_is_named(
    model: Path, tmp_path: Path
) -> None:
    """Loading checks each record; the sentence says which expert of which layer."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    record_bytes = FtwReader(copy).record_bytes
    with (copy / "experts.bin").open("r+b") as file:
        file.seek(7 * record_bytes + 5)
        file.write(b"\xaa\xbb")
    with pytest.raises(CorruptCheckpoint, match=r"record 7 \(expert 2 of layer 1\)"):
        read_pool(FtwReader(copy))


@pytest.mark.parametrize("name", ["experts.bin", "tensors.bin", "model.ftw"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_reader_when_a_file_is_cut_off_then_refused_at_once(
    model: Path, tmp_path: Path, name: str, keep: float
) -> None:
    """Before any weight is read."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    raw = (copy / name).read_bytes()
    (copy / name).write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(CorruptCheckpoint, match=name):
        FtwReader(copy)


@pytest.mark.parametrize("name", ["experts.bin", "tensors.bin"])
def test_reader_when_a_data_file_is_missing_then_named(
    model: Path, tmp_path: Path, name: str
) -> None:
    """A copy that lost a file."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns(name))
    with pytest.raises(CorruptCheckpoint, match=f"{name} is missing"):
        FtwReader(copy)


def _edit(model: Path, tmp_path: Path, **changes: object) -> Path:
    """Copy a model with fields of its index changed and the index's checksum made right."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    index = json.loads((copy / "model.ftw").read_bytes())
    for key, value in changes.items():
        place, *path = key.split("__")
        spot = index
        while path:
            spot, place = spot[place], path.pop(0)
        spot[place] = value
    digits = index["index_xxh3"]
    raw = json.dumps(index).replace(digits, "0" * 16, 1).encode()
    (copy / "model.ftw").write_bytes(
        raw.replace(b"0" * 16, xxhash.xxh3_64_hexdigest(raw).encode(), 1)
    )
    return copy


def test_reader_when_major_version_is_unknown_then_refused_in_plain_words(
    model: Path, tmp_path: Path
) -> None:
    """Both versions are in the sentence."""
    with pytest.raises(UnsupportedCheckpoint, match=r"version 3.*version 2") as caught:
        FtwReader(_edit(model, tmp_path, major=3))
    assert "Update the program" in caught.value.hint


def test_reader_when_minor_version_is_newer_then_extra_fields_are_ignored(
    model: Path, tmp_path: Path
) -> None:
    """Same major version: a newer writer may have added something."""
    copy = _edit(model, tmp_path, minor=9, bank__later={"x": 1}, addition=[1, 2])
    assert FtwReader(copy).index.minor == 9


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": "other"}, UnsupportedCheckpoint),
        ({"bank__layout__id": "units32"}, UnsupportedCheckpoint),
        ({"bank__layout__hidden": 161}, CorruptCheckpoint),
        ({"bank__layout__intermediate": 17}, CorruptCheckpoint),
        (
            {f"bank__layout__{key}": 0 for key in ("hidden", "unit_bytes", "record_bytes")}
            | {"bank__layout__encoding": "bf16", "bank__layout__group": 0},
            CorruptCheckpoint,
        ),
        ({"bank__num_experts": 6}, CorruptCheckpoint),
        ({"bank__layer_ids": []}, CorruptCheckpoint),
        ({"bank__offset": 100}, CorruptCheckpoint),
        ({"bank__offset": 4096}, CorruptCheckpoint),
        ({"bank__file": 7}, CorruptCheckpoint),
        ({"files": [{"name": "../experts.bin", "num_bytes": 1}]}, CorruptCheckpoint),
        ({"tensors": 3}, CorruptCheckpoint),
    ],
)
def test_reader_when_index_contradicts_itself_then_refused(
    model: Path, tmp_path: Path, change: dict[str, object], error: type[EngineError]
) -> None:
    """The index is input: a right checksum does not make wrong numbers right."""
    with pytest.raises(error, match=r"model\.ftw"):
        FtwReader(_edit(model, tmp_path, **change))


def test_pool_when_the_bank_does_not_start_its_file_then_its_offset_counts(
    model: Path, tmp_path: Path
) -> None:
    """Another writer may put something before the bank."""
    expected = read_pool(FtwReader(model))
    facts = json.loads((model / "model.ftw").read_bytes())["files"]
    facts[0]["num_bytes"] += 4096
    copy = _edit(model, tmp_path, bank__offset=4096, files=facts)
    bank = copy / "experts.bin"
    bank.write_bytes(b"x" * 4096 + bank.read_bytes())
    assert torch.equal(read_pool(FtwReader(copy)), expected)


@pytest.mark.parametrize("field", ["offset", "num_bytes", "dtype", "scale", "name"])
def test_reader_when_a_tensor_entry_is_impossible_then_refused(
    model: Path, tmp_path: Path, field: str
) -> None:
    """Out of the file, wrong length, unknown dtype, a scale that is not there, a name twice."""
    values = {"offset": 1 << 40, "num_bytes": 1, "dtype": "F7", "scale": "?", "name": "lm_head"}
    tensors = json.loads((model / "model.ftw").read_bytes())["tensors"]
    tensors[3][field] = tensors[2]["name"] if field == "name" else values[field]
    with pytest.raises(CorruptCheckpoint, match=r"model\.ftw"):
        FtwReader(_edit(model, tmp_path, tensors=tensors))


def test_reader_when_foreign_files_lie_in_the_folder_then_they_are_ignored(
    model: Path, tmp_path: Path
) -> None:
    """Notes, thumbnails, a git folder: none of ours, none of our business."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / "notes.txt").write_text("mine")
    (copy / ".git").mkdir()
    (copy / "model.safetensors").write_bytes(b"\0" * 9)
    verify_folder(copy, lambda *_: None, lambda: False)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["freetoken_weight.json"], "v1"),
        (["config.json"], "is not converted"),
        ([], "is no FreeToken model"),
    ],
)
def test_reader_when_folder_is_of_another_kind_then_unsupported_says_what_to_do(
    tmp_path: Path, files: list[str], words: str
) -> None:
    """Each kind of folder has its own advice."""
    for file in files:
        (tmp_path / file).write_text("{}")
    with pytest.raises(UnsupportedCheckpoint, match=words) as caught:
        FtwReader(tmp_path)
    assert caught.value.hint


def test_reader_when_there_is_no_folder_then_file_access(tmp_path: Path) -> None:
    """A model on a drive that is not plugged in."""
    with pytest.raises(FileAccess, match="gone"):
        FtwReader(tmp_path / "gone")


def test_pool_when_cancelled_then_stops_between_chunks(tmp_path: Path) -> None:
    """After the first of two chunks; nothing more is read."""
    records = torch.randint(0, 256, (4, SMALL.record_bytes), dtype=torch.uint8)
    reader = FtwReader(write_ftw(tmp_path / "m", records, 2), chunk_bytes=8192)
    host = torch.zeros(4, SMALL.record_bytes, dtype=torch.uint8)
    seen: list[int] = []
    with pytest.raises(Cancelled):
        reader.read_pool(host, lambda done, _: seen.append(done), lambda: bool(seen))
    assert seen == [8192]
    assert not host[2:].any()


def test_pool_when_several_chunks_are_read_at_once_then_it_is_whole_and_told_in_order(
    tmp_path: Path,
) -> None:
    """The last chunk is shorter; one flipped byte in it is still found and named."""
    records = torch.randint(0, 256, (33, SMALL.record_bytes), dtype=torch.uint8)
    folder = write_ftw(tmp_path / "m", records, 3)
    reader = FtwReader(folder, chunk_bytes=8192)
    host = torch.zeros_like(records)
    told: list[int] = []
    reader.read_pool(host, lambda done, _: told.append(done), lambda: False)
    assert torch.equal(host, records)
    assert told == [*range(8192, records.numel(), 8192), records.numel()]
    bank = folder / reader.index.files[0].name
    raw = bytearray(bank.read_bytes())
    raw[32 * SMALL.record_bytes + 5] ^= 1
    bank.write_bytes(raw)
    with pytest.raises(CorruptCheckpoint, match="record 32"):
        reader.read_pool(host, lambda *_: None, lambda: False)


def test_pool_when_buffer_has_another_shape_then_value_error(model: Path) -> None:
    """A pool of the wrong size is our own mistake, found before a byte is read."""
    reader = FtwReader(model)
    with pytest.raises(ValueError, match="pool"):
        reader.read_pool(torch.empty(3, 3, dtype=torch.uint8), lambda *_: None, lambda: False)
