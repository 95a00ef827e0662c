"""Quant formats: what they store comes back exactly, and close to what was quantised."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.registry import FORMATS, get_format
from kernels.reference.records import unpack_record
from tests.support.checkpoints import TINY, quantize_blocks


class Sizes:
    """Facts of a model, as `ModelSpec` gives them."""

    def __init__(self, hidden: int, moe_intermediate: int, quant_group: int = 0) -> None:
        self.hidden = hidden
        self.moe_intermediate = moe_intermediate
        self.quant_group = quant_group


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_registry_when_asked_then_every_line_makes_its_format(name: str) -> None:
    """Each line imports and knows its own name."""
    assert get_format(name).name == name


def test_registry_when_name_is_unknown_then_known_ones_are_listed() -> None:
    """One sentence and the choice."""
    with pytest.raises(UnsupportedCheckpoint, match="'int3'") as caught:
        get_format("int3")
    assert "bf16" in caught.value.hint


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 1000))
def test_fp8_when_quantised_and_back_then_error_stays_within_the_formats_step(
    rows: int, columns: int, seed: int
) -> None:
    """e4m3 has 3 mantissa bits: 1/16 relative, plus half a subnormal step of the block."""
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    codes, scale = quantize_blocks(weight)
    back = get_format("fp8_block").dense(codes, scale).dequantise()
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]
    bound = weight.abs() / 16 + wide * 2.0**-10
    assert bool(((back - weight).abs() <= bound * 1.0001).all())


def test_fp8_when_packed_then_record_holds_what_dequantise_gives() -> None:
    """Both ways to the values of an expert agree in every bit, bf16 scales included."""
    fmt = get_format("fp8_block", 128)
    draw = torch.Generator().manual_seed(3)
    tensors: dict[str, torch.Tensor] = {}
    for part, size in (("gate", (96, 160)), ("up", (96, 160)), ("down", (160, 96))):
        codes, scale = quantize_blocks(torch.randn(size, generator=draw))
        tensors[part], tensors[f"{part}_scale"] = codes, scale.to(torch.bfloat16)
    layout = fmt.layout(Sizes(160, 96, 128))
    gate, up, down = unpack_record(layout, fmt.pack(tensors))
    assert torch.equal(gate, fmt.dense(tensors["gate"], tensors["gate_scale"]).dequantise())
    assert torch.equal(up, fmt.dense(tensors["up"], tensors["up_scale"]).dequantise())
    down_weight = fmt.dense(tensors["down"], tensors["down_scale"])
    assert torch.equal(down, down_weight.dequantise().T)


def test_bf16_when_packed_then_values_are_unchanged() -> None:
    """No rounding on the way."""
    fmt = get_format("bf16")
    draw = torch.Generator().manual_seed(4)
    sizes = {"gate": (48, 30), "up": (48, 30), "down": (30, 48)}
    tensors = {k: torch.randn(v, generator=draw).bfloat16() for k, v in sizes.items()}
    gate, up, down = unpack_record(fmt.layout(Sizes(30, 48)), fmt.pack(tensors))
    assert torch.equal(gate, tensors["gate"].float())
    assert torch.equal(up, tensors["up"].float())
    assert torch.equal(down, tensors["down"].float().T)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_dense_when_plain_dense_weight_then_only_widened(name: str) -> None:
    """Norms and routers of an FP8 checkpoint are plain bf16; the input is left alone."""
    weight = torch.randn(5, 7).bfloat16()
    out = get_format(name).dense(weight, None).dequantise()
    assert out.dtype == torch.float32
    assert torch.equal(out, weight.float())


def test_dense_when_scale_has_the_wrong_shape_then_it_refuses() -> None:
    """A transposed scale is not broadcast quietly."""
    codes, scale = quantize_blocks(torch.randn(300, 100))
    with pytest.raises(ValueError, match="do not go with"):
        get_format("fp8_block").dense(codes, scale.T)


@pytest.mark.parametrize(("name", "group"), [("bf16", 128), ("fp8_block", 100), ("fp8_block", -16)])
def test_format_when_group_is_impossible_then_unsupported(name: str, group: int) -> None:
    """Block sizes that no record can hold are refused by name."""
    with pytest.raises(UnsupportedCheckpoint):
        get_format(name, group)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_layout_when_width_is_no_multiple_of_16_then_unsupported(name: str) -> None:
    """The number is in the sentence."""
    with pytest.raises(UnsupportedCheckpoint, match="40"):
        get_format(name).layout(Sizes(TINY.hidden, 40))
