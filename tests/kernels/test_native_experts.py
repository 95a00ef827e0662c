"""The C++ expert kernels: every tier equals the canonical order in every bit."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels.cpu
from kernels.api import expert_kernel
from kernels.cpu import isa_tier
from kernels.layouts import RecordLayout
from kernels.reference.canonical import expert_row
from kernels.reference.experts import ReferenceExperts
from kernels.reference.records import unpack_record
from kernels.registry import choose
from tests.support.experts import random_record

pytestmark = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)

TIERS = ("scalar", "avx2", "avx512")
LAYOUTS = {
    "bf16": RecordLayout(40, 32, "bf16"),
    "bf16-long": RecordLayout(1001, 16, "bf16"),
    "fp8": RecordLayout(64, 48, "fp8_block", 16),
    "fp8-ragged": RecordLayout(40, 32, "fp8_block", 16),
    "fp8-odd": RecordLayout(331, 32, "fp8_block", 48),
    "built-in": RecordLayout(384, 96, "fp8_block", 128),
    "long": RecordLayout(2048, 16, "fp8_block", 128),
}
CPU = torch.device("cpu")


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


@pytest.fixture(params=TIERS)
def tier(request):
    if TIERS.index(request.param) > TIERS.index(isa_tier()):
        pytest.skip(f"this CPU has no {request.param}")
    return request.param


def _kernel(layout, dtype=torch.float32, tier=None):
    from kernels.cpu.experts import NativeExperts

    return NativeExperts(layout, CPU, dtype, tier)


def _inputs(layout, seed, *shape):
    """Inputs over several binades: sums within one binade are exact and hide the order."""
    generator = torch.Generator().manual_seed(seed)
    size = (*shape, layout.hidden)
    powers = torch.randint(-4, 5, size, generator=generator)
    return torch.randn(size, generator=generator) * 2.0**powers


def _random(layout, seed):
    return random_record(layout, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_when_computed_by_any_tier_equals_the_canonical_order(layout, tier, dtype):
    """Scalar, AVX2 and AVX-512 agree with plain torch in every bit (case E-09)."""
    kernel = _kernel(layout, dtype, tier)
    for seed in range(2):
        record, x = _random(layout, seed), _inputs(layout, seed)
        kernel.load([record])
        assert torch.equal(kernel.row(x), expert_row(layout, record, x, dtype))


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.integers(1, 300),
    encoding=st.sampled_from(("bf16", "fp8_block")),
    group=st.sampled_from((16, 32, 48, 128)),
    seed=st.integers(0, 5),
)
def test_row_when_the_width_is_any_keeps_tiers_equal(hidden, encoding, group, seed):
    """Ends of rows that fill no vector, no line and no scale block, on the tiers there are."""
    layout = RecordLayout(hidden, 32, encoding, group if encoding == "fp8_block" else 0)
    record, x = _random(layout, seed), _inputs(layout, seed)
    wanted = expert_row(layout, record, x)
    for tier in TIERS[: TIERS.index(isa_tier()) + 1]:
        kernel = _kernel(layout, tier=tier)
        kernel.load([record])
        assert torch.equal(kernel.row(x), wanted)


@pytest.mark.parametrize("nan", [False, True])
def test_row_when_all_codes_occur_equals_the_canonical_order(tier, nan):
    """Zeros, subnormals and the largest codes are exact; NaN codes are NaN where they must be."""
    layout = RecordLayout(160, 16, "fp8_block", 16)
    record = _random(layout, 1)
    codes = torch.randint(0, 256, (layout.unit_value_bytes,), generator=_seeded(2)).byte()
    codes[(codes & 0x7F) == 0x7F] = 0x80
    if nan:  # in down only: in gate or up one of them would be in every column
        codes[2 * 16 * 160 + 77] = 0x7F
        codes[2 * 16 * 160 + 5 * 160 + 130] = 0xFF
    record[: layout.unit_value_bytes] = codes
    x = _inputs(layout, 3) * 2.0**-8
    kernel = _kernel(layout, tier=tier)
    kernel.load([record])
    row = kernel.row(x)
    assert row.isnan().nonzero().flatten().tolist() == ([77, 130] if nan else [])
    assert torch.equal(row.nan_to_num(7.0), expert_row(layout, record, x).nan_to_num(7.0))
    record[0] = 0x7F
    assert kernel.row(x).isnan().all()


def test_row_when_compared_with_float64_is_as_exact_as_float32_can_be(layout, tier):
    """1e-5 of the largest value, as for the reference."""
    record, x = _random(layout, 4), torch.randn(layout.hidden, generator=_seeded(4))
    gate, up, down = (part.double() for part in unpack_record(layout, record))
    wanted = (torch.nn.functional.silu(gate @ x.double()) * (up @ x.double())) @ down
    kernel = _kernel(layout, tier=tier)
    kernel.load([record])
    assert (kernel.row(x) - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_routes_when_tokens_share_experts_equal_each_row_alone(layout, tier):
    """Any number of tokens, in any order, shared or not: each has the bits of its own row."""
    kernel = _kernel(layout, tier=tier)
    records = [_random(layout, seed) for seed in range(3)]
    x = _inputs(layout, 5, 11)
    kernel.load(records)
    wanted = [[kernel.row(token, place) for token in x] for place in range(3)]
    for number in range(1, 12):
        tokens = [list(range(number)), [10, 2, 5][: number % 4], list(range(number))[::-1]]
        out, expected = torch.full((2, 11, 3, layout.hidden), -1.0).unbind(0)
        kernel.into(out, x, [[(t, place) for t in each] for place, each in enumerate(tokens)])
        for place, each in enumerate(tokens):
            for token in each:
                expected[token, place] = wanted[place][token]
        assert torch.equal(out, expected)
    assert torch.equal(kernel.each(x[3]), torch.stack([rows[3] for rows in wanted]))


def test_row_when_the_record_moves_keeps_its_bits(layout):
    """Nothing depends on alignment or on what was computed before."""
    record, x = _random(layout, 6), _inputs(layout, 6)
    kernel = _kernel(layout)
    kernel.load([record])
    wanted = kernel.row(x)
    for offset in (1, 4, 63):
        shelf = torch.full((layout.record_bytes + 64,), 255, dtype=torch.uint8)
        moved = shelf[offset : offset + layout.record_bytes]
        moved.copy_(record)
        kernel.load([moved, _random(layout, 7)])
        assert torch.equal(kernel.each(x)[0], wanted)


def test_each_when_threads_have_kernels_of_their_own_is_independent():
    """Two threads compute at the same time, each with its own scratch."""
    layout = LAYOUTS["built-in"]
    records = [_random(layout, seed) for seed in range(4)]
    x = _inputs(layout, 8, 2)
    kernel = _kernel(layout)
    kernel.load(records)
    wanted = [kernel.each(row) for row in x]
    failures = []

    def work(number):
        own = _kernel(layout)
        own.load(records)
        for _ in range(30):
            if not torch.equal(own.each(x[number]), wanted[number]):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_rows_when_in_prefill_are_the_references(layout):
    """A prompt chunk is computed by matrix products, whoever computes decode."""
    record, x = _random(layout, 9), _inputs(layout, 9, 5)
    kernel, reference = _kernel(layout), ReferenceExperts(layout, CPU)
    kernel.load([record])
    reference.load([record])
    assert torch.equal(kernel.rows(x), reference.rows(x))
    assert torch.equal(kernel.row(x[0]), expert_row(layout, record, x[0]))


def test_sizes_when_wrong_are_refused_before_memory_is_touched():
    """No address of a tensor that is too short, of another kind or elsewhere reaches C++."""
    layout = LAYOUTS["fp8"]
    kernel, record = _kernel(layout), _random(LAYOUTS["fp8"], 1)
    for wrong in (
        record[:-1],
        record.view(torch.int8),
        torch.cat((record, record))[::2],
        record.to("meta"),
        record.view(2, -1),
    ):
        with pytest.raises(ValueError, match=r"expected torch\.uint8"):
            kernel.load([record, wrong])
    kernel.load([record])
    for x in (torch.zeros(63), torch.zeros(1, 64), torch.zeros(64, device="meta")):
        with pytest.raises(ValueError, match=r"expected torch\.float32"):
            kernel.row(x)
    out = torch.zeros(2, 3, 64)
    for route in ((2, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="not within 2 tokens of 3"):
            kernel.into(out, torch.zeros(2, 64), [[(0, 0), route]])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        kernel.into(out, torch.zeros(2, 64), [[(0, 0)], [(1, 0)]])
    with pytest.raises(ValueError, match=r"expected torch\.float32"):
        kernel.into(out, torch.zeros(1, 64), [[(0, 0)]])


def test_kernel_when_it_cannot_be_built_says_why():
    """Devices, dtypes and tiers that it does not have are errors that can be read."""
    from kernels.cpu.experts import NativeExperts

    with pytest.raises(ValueError, match="run on the CPU"):
        NativeExperts(LAYOUTS["fp8"], torch.device("meta"))
    with pytest.raises(ValueError, match="do not round"):
        _kernel(LAYOUTS["fp8"], torch.float16)
    with pytest.raises(ValueError, match="cannot run the tier avx9"):
        _kernel(LAYOUTS["fp8"], tier="avx9")


def test_registry_when_the_module_is_missing_takes_the_reference(monkeypatch):
    """Without a compiler everything works, and the window says what is missing."""

    def missing():
        raise ImportError("no module")

    chosen = type(expert_kernel(LAYOUTS["fp8"], CPU)).__name__
    assert chosen == ("ReferenceExperts" if isa_tier() == "scalar" else "NativeExperts")
    monkeypatch.setattr(kernels.cpu, "load_native", missing)
    choice = choose("expert_rows", "cpu", "fp8_block")
    assert choice.name == "reference"
    assert "not native: it is not built here" in choice.reason
    assert "it runs on cpu" in choose("expert_rows", "cuda:0", "bf16").reason


def _seeded(seed):
    return torch.Generator().manual_seed(seed)
