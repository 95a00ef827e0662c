"""Records of layout `units16`: what is packed comes back, and lies where kernels look for it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.layouts import UNIT_ROWS, RecordLayout
from kernels.reference.records import Scales, pack_record, unpack_record

BUILTIN = RecordLayout(384, 96, "fp8_block", 128)


def make_expert(
    layout: RecordLayout, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Scales | None]:
    draw = torch.Generator().manual_seed(seed)
    rows, width = layout.intermediate, layout.hidden
    dtype = layout.value_dtype
    gate, up = (torch.randn(rows, width, generator=draw).to(dtype) for _ in range(2))
    down = torch.randn(width, rows, generator=draw).to(dtype)
    if not layout.group:
        return gate, up, down, None
    along, across = -(-rows // layout.group), layout.scale_groups
    sizes = ((along, across), (along, across), (across, along))
    scales = tuple(torch.rand(size, generator=draw) + 0.01 for size in sizes)
    return gate, up, down, (scales[0], scales[1], scales[2])


def naive(weight: torch.Tensor, scale: torch.Tensor | None, group: int) -> torch.Tensor:
    """Value times scale, one by one."""
    out = weight.to(torch.float32)
    if scale is None:
        return out
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            out[row, column] *= scale[row // group, column // group]
    return out


layouts = st.builds(
    lambda hidden, units, group: RecordLayout(
        hidden, units * UNIT_ROWS, "fp8_block" if group else "bf16", group
    ),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([0, 16, 32, 128]),
)


@settings(deadline=None, max_examples=40)
@given(layouts, st.integers(0, 1000))
def test_record_when_unpacked_then_equals_the_dequantised_weights(
    layout: RecordLayout, seed: int
) -> None:
    """Bit for bit, for any size, also with partial scale blocks."""
    gate, up, down, scales = make_expert(layout, seed)
    record = pack_record(layout, gate, up, down, scales)
    assert record.shape == (layout.record_bytes,)
    three = scales or (None, None, None)
    expected = (
        naive(gate, three[0], layout.group),
        naive(up, three[1], layout.group),
        naive(down, three[2], layout.group).T,
    )
    for part, wanted in zip(unpack_record(layout, record), expected, strict=True):
        assert part.dtype == torch.float32
        assert part.is_contiguous()
        assert torch.equal(part, wanted)


def test_record_when_built_in_sizes_then_blocks_are_partial_and_exact() -> None:
    """I = 96 is less than one block of 128."""
    gate, up, down, scales = make_expert(BUILTIN)
    assert scales is not None
    record = pack_record(BUILTIN, gate, up, down, scales)
    assert record.numel() == 114_688
    unpacked = unpack_record(BUILTIN, record)
    wide = scales[2].repeat_interleave(128, 0)
    assert torch.equal(unpacked[2], (down.float() * wide).T)


def test_record_when_read_by_hand_then_units_lie_as_documented() -> None:
    """g0 u0 g1 u1 .. g15 u15, d0 .. d15, scales: a C kernel reads these bytes without us."""
    layout = RecordLayout(32, 48, "fp8_block", 32)
    gate, up, down, scales = make_expert(layout)
    assert scales is not None
    record = pack_record(layout, gate, up, down, scales)
    codes = record.view(torch.float8_e4m3fn)
    for unit in range(layout.num_units):
        base = unit * layout.unit_bytes
        for row in range(UNIT_ROWS):
            at = 16 * unit + row
            gate_at, up_at = base + 2 * row * 32, base + (2 * row + 1) * 32
            down_at = base + (2 * UNIT_ROWS + row) * 32
            assert torch.equal(codes[gate_at : gate_at + 32].float(), gate[at].float())
            assert torch.equal(codes[up_at : up_at + 32].float(), up[at].float())
            assert torch.equal(codes[down_at : down_at + 32].float(), down[:, at].float())
        start = base + layout.unit_value_bytes
        found = record[start : start + 12].view(torch.float32)
        block = 16 * unit // 32
        assert found.tolist() == [
            scales[0][block, 0].item(),
            scales[1][block, 0].item(),
            scales[2][0, block].item(),
        ]


def test_record_when_fp8_code_is_any_of_256_then_value_is_torchs() -> None:
    """The table agrees with torch for every code, NaN and subnormals included."""
    layout = RecordLayout(16, 16, "fp8_block", 16)
    codes = torch.arange(256, dtype=torch.uint8).view(16, 16).view(torch.float8_e4m3fn)
    one = torch.ones(1, 1)
    gate, _, _ = unpack_record(layout, pack_record(layout, codes, codes, codes, (one, one, one)))
    assert torch.equal(gate.view(torch.int32), codes.float().view(torch.int32))


@pytest.mark.parametrize("kind", ["shape", "dtype", "no scales", "scale shape", "needless scales"])
def test_pack_when_tensors_do_not_fit_the_layout_then_it_refuses(kind: str) -> None:
    """A wrong tensor is never packed into a record that looks right."""
    gate, up, down, scales = make_expert(BUILTIN)
    layout = BUILTIN
    assert scales is not None
    if kind == "shape":
        down = down.T
    elif kind == "dtype":
        up = up.to(torch.bfloat16)
    elif kind == "scale shape":
        scales = (scales[0], scales[1], scales[2].T)
    elif kind == "needless scales":
        layout = RecordLayout(384, 96, "bf16")
        gate, up, down = (t.to(torch.bfloat16) for t in (gate, up, down))
    with pytest.raises(ValueError, match=r"expected|scales"):
        pack_record(layout, gate, up, down, None if kind == "no scales" else scales)


def test_unpack_when_record_has_another_size_then_it_refuses() -> None:
    """A record of another layout is not read as if it were this one."""
    with pytest.raises(ValueError, match="a record is uint8"):
        unpack_record(BUILTIN, torch.zeros(4096, dtype=torch.uint8))
