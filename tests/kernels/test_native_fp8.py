"""The C++ FP8 kernels where they branch: rare codes, changing scales, many tokens."""

import pytest
import torch

from kernels.cpu import isa_tier
from kernels.layouts import RecordLayout
from kernels.reference.canonical import expert_row
from tests.support.experts import random_record

pytestmark = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)

TIERS = ("scalar", "avx2", "avx512")
RARE = (0x00, 0x80, 0x01, 0x87, 0x07, 0x81)  # zeros and subnormals
NAN = (0x7F, 0xFF)
CPU = torch.device("cpu")


@pytest.fixture(params=TIERS)
def tier(request):
    if TIERS.index(request.param) > TIERS.index(isa_tier()):
        pytest.skip(f"this CPU has no {request.param}")
    return request.param


def _kernel(layout, tier):
    from kernels.cpu.experts import NativeExperts

    return NativeExperts(layout, CPU, torch.float32, tier)


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


def _x(layout, seed, *shape):
    """Inputs over several binades, so that the order of sums shows."""
    generator, size = _seeded(seed), (*shape, layout.hidden)
    powers = torch.randint(-4, 5, size, generator=generator)
    return torch.randn(size, generator=generator) * 2.0**powers


def _units(layout, record):
    return record[: layout.num_units * layout.unit_bytes].view(layout.num_units, -1)


def _normal_record(layout, seed):
    """A record with normal codes only, which are read in the shortest way."""
    record = random_record(layout, _seeded(seed))
    size = (layout.num_units, layout.unit_value_bytes)
    sizes = torch.randint(0x08, 0x7F, size, generator=_seeded(seed))
    signs = torch.randint(0, 2, size, generator=_seeded(seed + 1)) * 0x80
    _units(layout, record)[:, : layout.unit_value_bytes] = (sizes + signs).byte()
    return record


def _scales(layout, record):
    """The scales of each unit, as they lie: float32 [units, 3, blocks], shared with the record."""
    blocks = -(-layout.hidden // layout.group)
    held = _units(layout, record)[:, layout.unit_value_bytes :][:, : 12 * blocks]
    return held.view(torch.float32).view(layout.num_units, 3, blocks)


@pytest.mark.parametrize("hidden", [256, 200])
def test_row_when_one_code_is_rare_equals_the_canonical_order(tier, hidden):
    """A zero or a subnormal among normal codes is exact, wherever it lies in its row."""
    layout = RecordLayout(hidden, 16, "fp8_block", 128)
    kernel, x = _kernel(layout, tier), _x(layout, 1) * 2.0**-6
    for place in range(0, hidden, 7):
        record = _normal_record(layout, 2)
        for part, row in enumerate((0, 31, 32, 47)):  # of gate, up, down
            code = RARE[(place + part) % len(RARE)]
            record[row * hidden + (place + 61 * part) % hidden] = code
        kernel.load([record])
        assert torch.equal(kernel.row(x), expert_row(layout, record, x)), place


def test_row_when_one_code_is_nan_is_nan_there(tier):
    """One NaN code among normal ones is found wherever it lies; nothing else becomes NaN."""
    layout = RecordLayout(256, 16, "fp8_block", 128)
    kernel, x = _kernel(layout, tier), _x(layout, 3) * 2.0**-6
    for place in range(0, 256, 5):
        code = NAN[place % 2]
        record = _normal_record(layout, 4)
        record[(32 + place % 16) * 256 + place] = code  # of down: only its own column
        kernel.load([record])
        row = kernel.row(x)
        assert row.isnan().nonzero().flatten().tolist() == [place]
        wanted = expert_row(layout, record, x).nan_to_num(3.0)
        assert torch.equal(row.nan_to_num(3.0), wanted)
        record[place % 32 * 256 + place] = code  # of gate or up: every column
        assert kernel.row(x).isnan().all()


@pytest.mark.parametrize(("hidden", "group"), [(384, 128), (448, 64), (320, 128), (200, 48)])
def test_rows_when_scales_change_between_units_keep_their_bits(tier, hidden, group):
    """Units with scales of their own, in part the last unit's, negative and zero; 1 to 9 tokens."""
    layout = RecordLayout(hidden, 96, "fp8_block", group)
    records = [_normal_record(layout, seed) for seed in (5, 6)]
    for record in records:
        scales = _scales(layout, record)
        scales.copy_(torch.randn(scales.shape, generator=_seeded(7)) * 1e-3)
        scales[0, :, 0] = 0.0
        scales[2] = scales[3]  # two neighbours alike,
        scales[4, :2] = scales[5, :2]  # two that differ in down only,
        scales[1, 0] = scales[0, 0]  # and two that share those of gate
    x = _x(layout, 8, 9)
    kernel = _kernel(layout, tier)
    kernel.load(records)
    wanted = torch.stack(
        [torch.stack([expert_row(layout, record, row) for record in records]) for row in x]
    )
    for tokens in range(1, 10):
        out = torch.zeros(9, 2, hidden)
        kernel.into(out, x, [[(t, place) for t in range(tokens)] for place in range(2)])
        assert torch.equal(out[:tokens], wanted[:tokens]), tokens
