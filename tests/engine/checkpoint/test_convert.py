"""Conversion: every tensor right, nothing dropped, memory bounded, incomplete sources named."""

import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from engine.checkpoint.convert import convert
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.source import SourceCheckpoint
from engine.protocol.errors import (
    CorruptCheckpoint,
    UnsupportedCheckpoint,
)
from engine.quant.registry import get_format
from kernels.reference.records import unpack_record
from tests.support.checkpoints import (
    TinyShape,
    convert_checkpoint,
    recipe_for,
    tiny_tensors,
    write_checkpoint,
)

Tensors = dict[str, torch.Tensor]
EXPERT = "model.layers.1.mlp.experts.3"
DENSE = "model.layers.0.self_attn.q_proj.weight"
EMOJI = "Grüße 模型 👩‍👩‍👧‍👦 \x00\t🏳️‍🌈 <|im_end|> end"


@pytest.mark.parametrize("quant", ["bf16", "fp8_block"])
@pytest.mark.parametrize("shards", [1, 3])
def test_convert_when_done_then_every_weight_is_that_of_the_source(
    tmp_path: Path, quant: str, shards: int
) -> None:
    """Experts through the pool, dense ones dequantised: bit for bit, a dense layer included."""
    shape = TinyShape(num_layers=3, dense_layers=(1,))
    folder = write_checkpoint(tmp_path / "source", shape, quant, shards=shards)
    reader = FtwReader(convert_checkpoint(folder, tmp_path / "model"))
    tensors, fmt = tiny_tensors(shape, quant), get_format(quant)

    def expected(name: str) -> torch.Tensor:
        return fmt.dense(tensors[name], tensors.get(name + "_scale_inv")).dequantise()

    pool = torch.empty(reader.num_records, reader.record_bytes, dtype=torch.uint8)
    reader.read_pool(pool, lambda *_: None, lambda: False)
    assert reader.index.bank.layer_ids == (0, 2)
    for row, layer_id in enumerate((0, 2)):
        for expert_id in range(shape.num_experts):
            record = pool[row * shape.num_experts + expert_id]
            gate, up, down = unpack_record(reader.layout, record)
            prefix = f"model.layers.{layer_id}.mlp.experts.{expert_id}"
            assert torch.equal(gate, expected(f"{prefix}.gate_proj.weight"))
            assert torch.equal(up, expected(f"{prefix}.up_proj.weight"))
            assert torch.equal(down, expected(f"{prefix}.down_proj.weight").T)
    plain = {n for n in tensors if ".experts." not in n and not n.endswith("_scale_inv")}
    assert set(reader.dense_names()) == plain
    for name in plain:
        assert torch.equal(reader.weight(name).dequantise(), expected(name))
    assert reader.aux_names() == ()


def test_convert_when_tensors_have_no_role_then_they_are_kept_byte_for_byte(
    tmp_path: Path,
) -> None:
    """Nothing is dropped: heads of a later version, an unused lm_head, odd dtypes, empty ones."""
    extra = {
        "model.mtp.weight": torch.arange(6, dtype=torch.int16).reshape(2, 3),
        "lm_head.weight": torch.ones(4, 2, dtype=torch.float64),
        "model.layers.7.mlp.experts.0.up_proj.weight": torch.ones(16, 8, dtype=torch.bfloat16),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
    }
    shape = TinyShape(tie_embeddings=True)
    folder = write_checkpoint(tmp_path / "s", shape, change=lambda tensors: tensors.update(extra))
    reader = FtwReader(convert_checkpoint(folder, tmp_path / "m"))
    assert set(reader.aux_names()) == set(extra)
    for name, tensor in extra.items():
        assert torch.equal(reader.dense(name), tensor)
    assert reader.dense_bytes < reader.index.total_bytes


@pytest.mark.parametrize("quant", ["bf16", "fp8_block"])
def test_convert_when_a_dense_layer_has_an_empty_scale_then_it_is_skipped(
    tmp_path: Path, quant: str
) -> None:
    """Case M-05: a zero-byte scale is carried along and used for nothing."""
    scale = "model.norm.weight_scale_inv"
    folder = write_checkpoint(
        tmp_path / "s", quant=quant, change=lambda t: t.update({scale: torch.empty(0)})
    )
    reader = FtwReader(convert_checkpoint(folder, tmp_path / "m"))
    assert reader.aux_names() == (scale,)
    assert torch.equal(
        reader.weight("model.norm.weight").dequantise(),
        tiny_tensors(quant=quant)["model.norm.weight"].float(),
    )


def test_convert_when_done_then_tokenizer_files_are_identical(tmp_path: Path) -> None:
    """Case C-12: same bytes, hence the same tokens for emoji, CJK, control and added tokens."""
    folder = write_checkpoint(tmp_path / "s")
    (folder / "chat_template.jinja").write_bytes("{# 😀 #}\r\n".encode())
    (folder / "notes.txt").write_text("not a part of the model")
    target = convert_checkpoint(folder, tmp_path / "m")
    copied = {f.name for f in target.iterdir()} - {"model.ftw", "experts.bin", "tensors.bin"}
    assert copied == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    for name in copied:
        assert (target / name).read_bytes() == (folder / name).read_bytes()
    before, after = (Tokenizer.from_file(str(f / "tokenizer.json")) for f in (folder, target))
    ids = before.encode(EMOJI, add_special_tokens=False).ids
    assert after.encode(EMOJI, add_special_tokens=False).ids == ids
    assert after.decode(ids, skip_special_tokens=False) == EMOJI


def test_convert_when_paths_have_every_script_then_it_works(tmp_path: Path) -> None:
    """Case E-17, for source and target."""
    folder = write_checkpoint(tmp_path / "Ž é 模型 😀" / "source")
    target = tmp_path / "Ž é 模型 😀" / "new folder" / "модель 1"
    convert_checkpoint(folder, target)
    assert FtwReader(target).num_records == 10


def test_convert_when_running_then_progress_counts_true_bytes(tmp_path: Path) -> None:
    """Both stages rise to a total that never changes, and that is what lies on the disk."""
    folder = write_checkpoint(tmp_path / "s", quant="fp8_block")
    seen: list[tuple[str, int, int]] = []
    source = SourceCheckpoint(folder)
    recipe = recipe_for(source)
    convert(source, tmp_path / "m", recipe, lambda *step: seen.append(step), lambda: False)
    reader = FtwReader(tmp_path / "m")
    total = reader.pool_bytes + sum(t.num_bytes for t in reader.index.tensors)
    for stage in ("convert", "verify"):
        steps = [(done, of) for name, done, of in seen if name == stage]
        assert {of for _, of in steps} == {total}
        assert [done for done, _ in steps] == sorted({done for done, _ in steps})
        assert steps[-1] == (total, total)
    assert [name for name, _, _ in seen] == sorted(name for name, _, _ in seen)


class CountingSource(SourceCheckpoint):
    """Counts the bytes of weights that are alive at once."""

    alive = most = 0

    def raw(self, name: str) -> torch.Tensor:
        array = np.array(super().raw(name).numpy())
        self.alive += array.nbytes
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self._gone, array.nbytes)
        return torch.from_numpy(array)

    def _gone(self, num_bytes: int) -> None:
        self.alive -= num_bytes


def test_convert_when_running_then_one_expert_or_tensor_is_in_memory(tmp_path: Path) -> None:
    """Case C-10: need does not grow with the model; here it would be 40 experts."""
    shape = TinyShape(num_experts=20, vocab_size=16)
    source = CountingSource(write_checkpoint(tmp_path / "s", shape))
    convert(source, tmp_path / "m", recipe_for(source), lambda *_: None, lambda: False)
    expert = 3 * shape.hidden * shape.moe_intermediate * 2
    largest = max(t.num_bytes for t in source.tensors.values())
    assert source.most <= max(2 * expert, 2 * largest)
    assert source.alive == 0


@pytest.mark.parametrize(
    ("quant", "name"),
    [
        ("fp8_block", f"{EXPERT}.down_proj.weight_scale_inv"),
        ("fp8_block", f"{EXPERT}.up_proj.weight"),
        ("fp8_block", f"{DENSE}_scale_inv"),
        ("bf16", f"{EXPERT}.gate_proj.weight"),
        ("bf16", "model.layers.1.mlp.gate.weight"),
        ("bf16", "lm_head.weight"),
    ],
)
def test_convert_when_a_tensor_is_missing_then_it_is_named_before_any_output(
    tmp_path: Path, quant: str, name: str
) -> None:
    """Case C-05: tensor and model are in the sentence; not even a folder was made."""
    folder = write_checkpoint(tmp_path / "My Model", quant=quant, change=lambda t: t.pop(name))
    target = tmp_path / "out" / "m"
    with pytest.raises(CorruptCheckpoint) as caught:
        convert_checkpoint(folder, target)
    assert caught.value.message == f"My Model lacks the tensor {name}."
    assert not target.parent.exists()


def test_convert_when_many_are_missing_then_the_first_is_named_and_the_rest_counted(
    tmp_path: Path,
) -> None:
    """All experts' scales are gone: no sibling is left to name them after."""

    def drop(tensors: Tensors) -> None:
        for name in [n for n in tensors if ".experts." in n and n.endswith("_scale_inv")]:
            del tensors[name]

    folder = write_checkpoint(tmp_path / "s", quant="fp8_block", change=drop)
    words = r"'gate scale' of expert 0 in layer 0 \(and 29 more\)"
    with pytest.raises(CorruptCheckpoint, match=words):
        convert_checkpoint(folder, tmp_path / "m")


def _reshape(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensors[name].T.contiguous()})


def _retype(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensors[name].to(torch.int32)})


def _rescale(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name + "_scale_inv": torch.ones(1, 2)})


@pytest.mark.parametrize(
    ("quant", "change", "name", "error"),
    [
        ("bf16", _reshape, f"{EXPERT}.up_proj.weight", CorruptCheckpoint),
        ("fp8_block", _reshape, f"{EXPERT}.down_proj.weight_scale_inv", CorruptCheckpoint),
        ("fp8_block", _reshape, f"{DENSE}_scale_inv", CorruptCheckpoint),
        ("bf16", _retype, f"{EXPERT}.up_proj.weight", UnsupportedCheckpoint),
        ("bf16", _retype, "model.norm.weight", UnsupportedCheckpoint),
        ("bf16", _rescale, f"{EXPERT}.up_proj.weight", UnsupportedCheckpoint),
        ("bf16", _rescale, DENSE, UnsupportedCheckpoint),
    ],
)
def test_convert_when_a_tensor_is_of_the_wrong_kind_then_it_is_named(
    tmp_path: Path,
    quant: str,
    change: Callable[[str], Callable[[Tensors], None]],
    name: str,
    error: type[Exception],
) -> None:
    """Shape, dtype, or scales that the format has not."""
    folder = write_checkpoint(tmp_path / "s", quant=quant, change=change(name))
    with pytest.raises(error, match=name.replace(".", r"\.")):
        convert_checkpoint(folder, tmp_path / "m")
    assert not (tmp_path / "m").exists()
