"""Grouped experts: the Triton kernels against plain torch, and both against float64.

Without a card the kernels run in Triton's interpreter, in float32 (its bf16 products are wrong);
with one they run compiled, in bf16 and at real sizes.
"""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from kernels.grouped import RecordTable
from kernels.layouts import RecordLayout
from kernels.reference.grouped import ReferenceGrouped
from kernels.reference.records import unpack_record
from kernels.triton.grouped import SORT_BLOCK, SortedRoutes, TritonGrouped, sort_routes
from tests.kernels.triton.where import DEVICE, interpreted, on_card
from tests.support.experts import random_record

BF16, FLOAT = torch.bfloat16, torch.float32

LAYOUTS = {
    "bf16": RecordLayout(40, 32, "bf16"),
    "bf16-odd": RecordLayout(50, 48, "bf16"),
    "fp8": RecordLayout(64, 48, "fp8_block", 16),
    "fp8-ragged": RecordLayout(72, 32, "fp8_block", 32),
    "fp8-odd": RecordLayout(35, 16, "fp8_block", 48),
}


class Bank:
    """E random records, scattered in memory, and their table in an order of arrival."""

    def __init__(self, layout, experts, seed, device=DEVICE, shift=0):
        generator = torch.Generator().manual_seed(seed)
        self.layout = layout
        self.records = [random_record(layout, generator) for _ in range(experts)]
        self.order = torch.randperm(experts, generator=generator).roll(shift)
        self.memory = torch.zeros(2 * experts, layout.record_bytes, dtype=torch.uint8)
        self.memory[1::2] = torch.stack([self.records[e] for e in self.order])
        self.memory = self.memory.to(device)
        places = self.memory[1::2]
        ranks = torch.empty(experts, dtype=torch.int32)
        ranks[self.order] = torch.arange(experts, dtype=torch.int32)
        addresses = torch.tensor([place.data_ptr() for place in places])
        self.table = RecordTable(ranks.to(device), addresses.to(device), places.__getitem__)


def case(layout, tokens, experts, top_k, seed=0, device=DEVICE, skew=0.0):
    """Return (x, ids, weights); with `skew` some experts get nothing and some a lot."""
    generator = torch.Generator().manual_seed(seed + 100)
    x = torch.randn(tokens, layout.hidden, generator=generator)
    liking = torch.arange(experts) * skew
    scores = torch.randn(tokens, experts, generator=generator) + liking
    ids = scores.topk(top_k).indices.to(torch.int32)
    weights = torch.rand(tokens, top_k, generator=generator)
    return x.to(device), ids.to(device), weights.to(device)


def run(kernel, bank, x, ids, weights, cuts=(), out=None):
    """Compute in portions that end at `cuts`."""
    task = kernel.begin(x, ids, bank.table, x.shape[0])
    ends = [0, *cuts, len(bank.records)]
    for first, last in pairwise(ends):
        task.compute(first, last)
    result = torch.zeros_like(x, dtype=torch.float32) if out is None else out
    task.merge(weights, result)
    return result


def oracle(bank, x, ids, weights, dtype=torch.float64):
    """Every route on its own in float64; the activation rounded to `dtype` once."""
    parts = [[p.double() for p in unpack_record(bank.layout, r)] for r in bank.records]
    out = torch.zeros(x.shape, dtype=torch.float64)
    rows = x.cpu().to(dtype).double()
    for expert, (gate, up, down) in enumerate(parts):
        tokens, places = (ids.cpu() == expert).nonzero(as_tuple=True)
        hidden = torch.nn.functional.silu(rows[tokens] @ gate.T) * (rows[tokens] @ up.T)
        weighted = (hidden.to(dtype).double() @ down) * weights.cpu()[tokens, places, None].double()
        out.index_add_(0, tokens, weighted)
    return out


def kernels(layout, dtype):
    return {
        "reference": ReferenceGrouped(layout, torch.device(DEVICE), dtype),
        "triton": TritonGrouped(layout, torch.device(DEVICE), dtype),
    }


def close(got, wanted, bound):
    """Largest error, against the largest value: weights span ten binades."""
    error = (got.cpu().double() - wanted).abs().max() / wanted.abs().max()
    assert error < bound, f"{error:.2e} of the largest value"


@interpreted
@pytest.mark.parametrize("name", ["reference", "triton"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("tokens", [1, 19])
def test_rows_when_compared_with_float64_are_as_exact_as_float32_can_be(name, layout, tokens):
    """Odd sizes, experts without and with several blocks of rows: 2e-6 of the largest value."""
    bank = Bank(layout, 5, seed=1)
    x, ids, weights = case(layout, tokens, 5, 3, skew=0.8)
    got = run(kernels(layout, torch.float32)[name], bank, x, ids, weights, cuts=(2, 3))
    close(got, oracle(bank, x, ids, weights), 2e-6)


@interpreted
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_rows_when_records_arrive_in_another_order_keep_their_bits(layout):
    """Ranks, addresses and portions say when and where, never what: as with another residency."""
    results = []
    for shift, cuts in ((0, ()), (1, (1,)), (3, (1, 2, 4))):
        bank = Bank(layout, 5, seed=2, shift=shift)
        x, ids, weights = case(layout, 9, 5, 3, skew=0.8)
        results.append(run(kernels(layout, FLOAT)["triton"], bank, x, ids, weights, cuts))
    assert all(torch.equal(results[0], other) for other in results[1:])


@interpreted
def test_rows_when_cut_into_tiles_are_those_of_the_chunk():
    """Tiles share launch shapes; bits are compared on a card, NumPy looks at a row's position."""
    layout = LAYOUTS["fp8"]
    bank, kernel = Bank(layout, 5, seed=3), kernels(layout, FLOAT)["triton"]
    x, ids, weights = case(layout, 24, 5, 3)
    whole = run(kernel, bank, x, ids, weights)
    for begin, end in ((0, 9), (9, 24)):
        task = kernel.begin(x[begin:end], ids[begin:end], bank.table, 24)
        task.compute(0, 5)
        out = torch.zeros(end - begin, layout.hidden)
        task.merge(weights[begin:end], out)
        close(out, whole[begin:end].double(), 1e-6)


@interpreted
@pytest.mark.parametrize("name", ["reference", "triton"])
def test_merge_adds_to_what_is_there(name):
    """The residual stream goes in, and comes out with the experts added."""
    layout = LAYOUTS["bf16"]
    bank, kernel = Bank(layout, 4, seed=4), kernels(layout, FLOAT)[name]
    x, ids, weights = case(layout, 6, 4, 2)
    alone = run(kernel, bank, x, ids, weights)
    stream = torch.linspace(-3, 3, x.numel()).view_as(x)
    added = run(kernel, bank, x, ids, weights, out=stream.clone())
    assert torch.equal(added, stream + alone)


@interpreted
@pytest.mark.parametrize("name", ["reference", "triton"])
def test_merge_into_a_narrow_stream_rounds_once(name):
    """A residual stream in halves: the experts' sum is float32 until it meets it."""
    layout = LAYOUTS["bf16"]
    bank, kernel = Bank(layout, 4, seed=4), kernels(layout, FLOAT)[name]
    x, ids, weights = case(layout, 6, 4, 3)
    weights /= run(kernel, bank, x, ids, weights).abs().max()  # halves do not go far
    alone = run(kernel, bank, x, ids, weights)
    stream = torch.linspace(-3, 3, x.numel()).view_as(x).half()
    added = run(kernel, bank, x, ids, weights, out=stream.clone())
    assert torch.equal(added, (stream.float() + alone).half())


@interpreted
def test_activation_is_rounded_once_to_the_given_type():
    """Inputs and the activation are halves here, sums are float32, as in the reference."""
    layout = LAYOUTS["fp8"]
    bank = Bank(layout, 4, seed=5)
    x, ids, weights = case(layout, 9, 4, 2)
    got = {n: run(k, bank, x, ids, weights) for n, k in kernels(layout, torch.float16).items()}
    wanted = oracle(bank, x, ids, weights, torch.float16)
    for result in got.values():
        close(result, wanted, 2e-3)
        assert not torch.equal(result, run(kernels(layout, FLOAT)["triton"], bank, x, ids, weights))


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_every_fp8_code_is_read_exactly(native):
    """One row of each expert's gate, up and down holds codes in turn; NaN codes give NaN."""
    if native and DEVICE == "cpu":
        pytest.skip("needs an NVIDIA GPU")
    layout = RecordLayout(16, 16, "fp8_block", 16)
    kernel = TritonGrouped(layout, torch.device(DEVICE), FLOAT if DEVICE == "cpu" else BF16)
    kernel.record_facts["NATIVE"] = native
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(torch.float8_e4m3fn).float()
    records = torch.zeros(256, layout.record_bytes, dtype=torch.uint8)
    one = torch.tensor([1.0]).to(torch.float8_e4m3fn).view(torch.uint8)
    records[:, 0] = records[:, 16] = one  # gate and up row 0 read x[0]
    records[:, 32 * 16] = codes  # down row 0, column 0
    scales = torch.ones(256, 3).view(torch.uint8)
    records[:, layout.unit_value_bytes : layout.unit_value_bytes + 12] = scales
    records = records.to(DEVICE)
    ranks = torch.arange(256, dtype=torch.int32, device=DEVICE)
    addresses = records.data_ptr() + torch.arange(256) * layout.record_bytes
    table = RecordTable(ranks, addresses.to(DEVICE), records.__getitem__)
    x = torch.zeros(256, 16, device=DEVICE)
    x[:, 0] = 1.0
    task = kernel.begin(x, ranks.view(256, 1), table, 256)
    task.compute(0, 256)
    out = torch.zeros(256, 16, device=DEVICE)
    task.merge(torch.ones(256, 1, device=DEVICE), out)
    hidden = torch.nn.functional.silu(torch.tensor(1.0))
    hidden = hidden.to(kernel.dtype).float()
    torch.testing.assert_close(out[:, 0].cpu(), values * hidden, rtol=1e-6, atol=0, equal_nan=True)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.sampled_from([1, 4, 16]))
def test_sorted_routes_name_every_route_once_in_blocks_of_one_rank(tokens, experts, top_k, rows):
    """Order, starts and blocks: rank by rank, stable, every block of rows inside its rank."""
    generator = torch.Generator().manual_seed(tokens * 100 + experts)
    ids = torch.randint(experts, (tokens, top_k), generator=generator, dtype=torch.int32)
    ranks = torch.randperm(experts, generator=generator).to(torch.int32)
    made = SortedRoutes(*(one.cpu() for one in sort_routes(ids.to(DEVICE), ranks.to(DEVICE), rows)))
    keys = ranks[ids.flatten()]
    assert sorted(made.order.tolist()) == list(range(tokens * top_k))
    assert keys[made.order].tolist() == sorted(keys.tolist())
    for rank in range(experts):
        mine = made.order[made.row_starts[rank] : made.row_starts[rank + 1]].tolist()
        assert mine == sorted(mine)
        assert all(keys[route] == rank for route in mine)
        first, last = made.block_starts[rank], made.block_starts[rank + 1]
        assert last - first == -(-len(mine) // rows)
        assert made.block_ranks[first:last].tolist() == [rank] * int(last - first)
    assert made.block_starts[-1] <= len(made.block_ranks)


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (700, 4), (512, 8)])
def test_sorted_routes_have_the_order_of_a_stable_sort(shape):
    """Also where there are more than one program looks at together; ids may be a part of more."""
    generator = torch.Generator().manual_seed(shape[0])
    wide = torch.randint(6, (shape[0], shape[1] + 2), generator=generator, dtype=torch.int32)
    ids, ranks = wide.to(DEVICE)[:, 1:-1], torch.randperm(7, generator=generator).to(torch.int32)
    made = sort_routes(ids, ranks.to(DEVICE), 16)
    assert SORT_BLOCK < 700 * 4
    keys, order = ranks[ids.cpu().flatten()].sort(stable=True)
    counts = torch.bincount(keys, minlength=7)
    assert torch.equal(made.order.cpu(), order.to(torch.int32))
    assert made.row_starts.tolist() == [0, *counts.cumsum(0).tolist()]
    assert made.block_starts.tolist() == [0, *(-(-counts // 16)).cumsum(0).tolist()]


# --- compiled, on a card ----------------------------------------------------------------------

QWEN3 = {
    "bf16": RecordLayout(2048, 768, "bf16"),
    "fp8": RecordLayout(2048, 768, "fp8_block", 128),
}
BOUND = 1e-2  # bf16 inputs and activations: 2 ** -9 each, of sums over rows of very unequal size


@on_card
@pytest.mark.parametrize("layout", QWEN3.values(), ids=QWEN3)
@pytest.mark.parametrize("tokens", [1, 40, 500, 2500])
def test_rows_at_full_size_agree_with_float64(layout, tokens):
    """Real shapes and every tile: bf16 inputs, float32 sums, one rounding of the activation."""
    bank = Bank(layout, 8, seed=6)
    x, ids, weights = case(layout, tokens, 8, 2, skew=0.1)
    got = run(kernels(layout, BF16)["triton"], bank, x, ids, weights, cuts=(3,))
    few = slice(0, 64)
    close(got[few], oracle(bank, x[few], ids[few], weights[few], BF16), BOUND)


@on_card
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("tokens", [1, 40, 700])
def test_rows_at_odd_sizes_agree_with_float64(layout, tokens):
    """Ragged hidden sizes, blocks and tiles, unaligned rows."""
    bank = Bank(layout, 5, seed=7)
    x, ids, weights = case(layout, tokens, 5, 3, skew=0.4)
    got = run(kernels(layout, BF16)["triton"], bank, x, ids, weights, cuts=(2,))
    close(got, oracle(bank, x, ids, weights, BF16), BOUND)


@on_card
@pytest.mark.parametrize("layout", QWEN3.values(), ids=QWEN3)
@pytest.mark.parametrize("tokens", [40, 500, 2500])
def test_bits_on_a_card_do_not_depend_on_where_or_when_records_arrive(layout, tokens):
    """Another order of ranks, other addresses, other portions, other tiles: one result."""
    kernel, results = kernels(layout, BF16)["triton"], []
    x, ids, weights = case(layout, tokens, 8, 2)
    for shift, cuts in ((0, ()), (3, (2, 5)), (5, (1, 2, 3, 7))):
        bank = Bank(layout, 8, seed=8, shift=shift)
        results.append(run(kernel, bank, x, ids, weights, cuts))
    half = tokens // 2
    for begin, end in ((0, half), (half, tokens)):
        task = kernel.begin(x[begin:end], ids[begin:end], bank.table, tokens)
        task.compute(0, 8)
        out = torch.zeros(end - begin, layout.hidden, device=DEVICE)
        task.merge(weights[begin:end], out)
        assert torch.equal(out, results[0][begin:end])
    assert all(torch.equal(results[0], other) for other in results[1:])
