"""One expert's arithmetic: against an oracle in float64, and bit for bit wherever it runs."""

import pytest
import torch

from kernels.layouts import RecordLayout
from kernels.reference.experts import FP8_SCALE, ReferenceExperts, expert_row, expert_rows
from kernels.reference.records import unpack_record
from tests.support.experts import random_record

LAYOUTS = {
    "bf16": RecordLayout(40, 32, "bf16"),
    "fp8": RecordLayout(64, 48, "fp8_block", 16),
    "fp8-ragged": RecordLayout(40, 32, "fp8_block", 16),
    "built-in": RecordLayout(384, 96, "fp8_block", 128),
}
CPU = torch.device("cpu")


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


def _oracle(layout, record, x):
    gate, up, down = (part.double() for part in unpack_record(layout, record))
    x = x.double()
    hidden = torch.nn.functional.silu(x @ gate.T) * (x @ up.T)
    return hidden @ down


def test_row_when_compared_with_float64_is_as_exact_as_float32_can_be(layout):
    """Products of exact weights, fp32 sums: 1e-5 of the largest value (few hundred terms)."""
    generator = torch.Generator().manual_seed(1)
    record = random_record(layout, generator)
    x = torch.randn(5, layout.hidden, generator=generator)
    wanted = _oracle(layout, record, x)
    bound = 1e-5 * wanted.abs().max().item()
    rows = torch.stack([expert_row(layout, record, row) for row in x])
    assert rows.dtype == torch.float32
    assert (rows - wanted).abs().max().item() < bound
    assert (expert_rows(layout, record, x) - wanted).abs().max().item() < bound


def test_row_when_the_record_moves_or_threads_change_keeps_its_bits(layout):
    """Bits depend on record and input alone: not on addresses, other work or threads."""
    generator = torch.Generator().manual_seed(2)
    record, other = (random_record(layout, generator) for _ in range(2))
    batch = torch.randn(3, layout.hidden + 1, generator=generator)
    wanted = expert_row(layout, record, batch[1, 1:].contiguous())
    kernel = ReferenceExperts(layout, CPU)
    kernel.load([other])
    kernel.rows(batch[:, 1:])
    shelf = torch.empty(3, layout.record_bytes, dtype=torch.uint8)
    shelf[2] = record
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            kernel.load([shelf[2]])
            assert torch.equal(kernel.row(batch[1, 1:]), wanted)
    finally:
        torch.set_num_threads(before)


def test_load_when_done_has_let_go_of_the_record(layout):
    """A slot may be overwritten as soon as its record is loaded."""
    generator = torch.Generator().manual_seed(3)
    record = random_record(layout, generator)
    x = torch.randn(layout.hidden, generator=generator)
    wanted = expert_row(layout, record, x)
    kernel = ReferenceExperts(layout, CPU)
    kernel.load([record])
    record.fill_(255)
    assert torch.equal(kernel.row(x), wanted)


@pytest.mark.parametrize("with_nan", [False, True])
def test_load_when_fp8_reads_all_codes_exactly(with_nan):
    """All 256 codes equal torch's own conversion; the two NaNs take another way than the rest."""
    layout = RecordLayout(16, 16, "fp8_block", 16)
    record = torch.zeros(layout.record_bytes, dtype=torch.uint8)
    codes = torch.arange(layout.unit_value_bytes, dtype=torch.int32).to(torch.uint8)
    if not with_nan:
        codes[codes % 128 == 127] = 0
    record[: layout.unit_value_bytes] = codes
    kernel = ReferenceExperts(layout, CPU)
    kernel.load([record])
    wanted = codes.view(torch.float8_e4m3fn).to(torch.float32)
    got = kernel._scratch.values[0].view(-1) * FP8_SCALE
    assert bool(got.isnan().any()) == with_nan
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_each_when_experts_are_computed_together_equals_each_alone(layout):
    """What is computed beside a row does not change its bits, for any number of experts."""
    generator = torch.Generator().manual_seed(5)
    kernel = ReferenceExperts(layout, CPU)
    records = [random_record(layout, generator) for _ in range(kernel.capacity)]
    x = torch.randn(layout.hidden, generator=generator)
    wanted = torch.stack([expert_row(layout, record, x) for record in records])
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for count in range(1, kernel.capacity + 1):
                kernel.load(records[:count])
                assert torch.equal(kernel.each(x), wanted[:count])
                assert torch.equal(kernel.row(x, count - 1), wanted[count - 1])
    finally:
        torch.set_num_threads(before)


def test_row_when_activation_is_bf16_rounds_once(layout):
    """The activation between the products is rounded to its dtype, nothing else is."""
    generator = torch.Generator().manual_seed(4)
    record = random_record(layout, generator)
    x = torch.randn(layout.hidden, generator=generator)
    gate, up, down = (part.double() for part in unpack_record(layout, record))
    hidden = torch.nn.functional.silu(gate @ x.double()) * (up @ x.double())
    wanted = hidden.float().bfloat16().double() @ down
    row = expert_row(layout, record, x, torch.bfloat16)
    # A value next to a rounding border may fall to the other side: one bf16 step of one term.
    assert (row - wanted).abs().max() < 2**-8 * (hidden.abs() @ down.abs()).max()
    assert not torch.equal(row, expert_row(layout, record, x))
