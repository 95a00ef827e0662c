"""The KV pool: what is written is read back, through page tables and resizes."""

import itertools

import pytest
import torch

from engine.cache import kv
from engine.cache.kv import KvPool, kv_bytes_per_token
from engine.cache.pages import PageAllocator
from engine.forward import PAGE_TOKENS, ForwardBatch
from engine.protocol.errors import BudgetError
from kernels.device.cpu import CpuDevice

LAYERS, HEADS, SIZE = 3, 2, 4


def make_pool(num_pages: int, max_pages: int = 12, budget_pages: int = 12) -> KvPool:
    page = kv_bytes_per_token(LAYERS, HEADS, SIZE, torch.float32) * PAGE_TOKENS
    device = CpuDevice(budget_pages * page)
    return KvPool(LAYERS, HEADS, SIZE, torch.float32, device, max_pages, num_pages)


def batch_of(table: list[int], start: int, end: int) -> ForwardBatch:
    """One sequence's tokens [start, end)."""
    slots = [table[p // PAGE_TOKENS] * PAGE_TOKENS + p % PAGE_TOKENS for p in range(start, end)]
    empty = torch.zeros(end - start, dtype=torch.int64)
    return ForwardBatch(
        "prefill", empty, empty, torch.tensor(slots), torch.tensor([table]), (end,), ()
    )


def values_of(name: int, layer: int, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values that tell sequence, layer and position apart."""
    base = torch.arange(start, end, dtype=torch.float32).unsqueeze(1) + 1000 * layer + 10_000 * name
    keys = base.expand(-1, HEADS * SIZE) + torch.arange(HEADS * SIZE) / 100
    return keys, -keys


def fill(pool: KvPool, name: int, table: list[int], start: int, end: int) -> None:
    rows = pool.rows(batch_of(table, start, end))
    for layer in range(LAYERS):
        both = torch.cat(values_of(name, layer, start, end), dim=1)
        pool.write(rows, layer, both.view(end - start, 2 * HEADS, SIZE))


def check(pool: KvPool, name: int, table: list[int], length: int) -> None:
    rows = pool.rows(batch_of(table, length - 1, length))
    for layer in range(LAYERS):
        keys, values = pool.read(rows, layer, 0)
        wanted = values_of(name, layer, 0, length)[0].view(length, HEADS, SIZE)
        assert torch.equal(keys, wanted)
        assert torch.equal(values, -wanted)


def test_read_when_written_in_odd_steps_then_all_in_order() -> None:
    """Chunks that end in the middle of a page lie behind each other."""
    pool = make_pool(8)
    table = [5, 0, 7, 2]
    borders = [0, 7, 16, 17, 33, 50]
    for start, end in itertools.pairwise(borders):
        fill(pool, 1, table, start, end)
        check(pool, 1, table, end)


def test_read_when_two_sequences_interleave_then_each_sees_its_own() -> None:
    """Pages of one sequence are never seen by another."""
    pool = make_pool(8)
    fill(pool, 1, [0, 2, 4], 0, 40)
    fill(pool, 2, [1, 3, 5], 0, 35)
    check(pool, 1, [0, 2, 4], 40)
    check(pool, 2, [1, 3, 5], 35)


def test_resize_when_shrunk_and_grown_then_contents_follow() -> None:
    """Moves carry pages below the border; growing keeps every page at its place."""
    pool, pages = make_pool(8), PageAllocator(8)
    first, second = list(pages.alloc(3) or ()), list(pages.alloc(3) or ())
    fill(pool, 1, first, 0, 44)
    fill(pool, 2, second, 0, 40)
    pages.free(first)
    moves = pages.shrink(4)
    pool.resize(4, moves)
    second = [dict(moves).get(page, page) for page in second]
    assert (pool.num_pages, pool.used_bytes) == (4, 4 * pool.page_bytes)
    check(pool, 2, second, 40)
    pages.grow(11)
    pool.resize(11)
    check(pool, 2, second, 40)
    third = list(pages.alloc(5) or ())
    fill(pool, 3, third, 0, 80)
    check(pool, 3, third, 80)
    check(pool, 2, second, 40)


@pytest.mark.parametrize("at_once", [0, 1, 2, 3, 64])
def test_resize_when_many_pages_move_then_no_more_than_a_piece_is_copied_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shrink asks for no memory of the size of what moves; a piece is one page at least."""
    pool = make_pool(12)
    monkeypatch.setattr(kv, "MOVE_BYTES", at_once * pool.page_bytes)
    tables = [[6, 11], [7, 9], [10, 8]]
    for name, table in enumerate(tables):
        fill(pool, name, table, 0, 30)
    taken = []
    select = torch.Tensor.index_select

    def watched(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
        taken.append(len(index))
        return select(tensor, dim, index)

    monkeypatch.setattr(torch.Tensor, "index_select", watched)
    pool.resize(6, [(source, source - 6) for source in range(6, 12)])
    monkeypatch.undo()
    assert sum(taken) == 6
    assert max(taken) == min(6, max(1, at_once))
    for name, table in enumerate(tables):
        check(pool, name, [page - 6 for page in table], 30)


def test_resize_when_refused_then_nothing_is_lost() -> None:
    """A device without room leaves size and contents as they were."""
    pool = make_pool(4, max_pages=12, budget_pages=6)
    fill(pool, 1, [3, 1], 0, 20)
    with pytest.raises(BudgetError, match="No room for 112 tokens of context"):
        pool.resize(7)
    assert pool.num_pages == 4
    check(pool, 1, [3, 1], 20)


@pytest.mark.parametrize("num_pages", [0, 13])
def test_resize_when_out_of_bounds_then_both_bounds_are_named(num_pages: int) -> None:
    """The sentence speaks in tokens."""
    pool = make_pool(4)
    with pytest.raises(BudgetError, match="the range is 16 to 192"):
        pool.resize(num_pages)


def test_bytes_when_asked_then_all_layers_count() -> None:
    """3 layers x (keys, values) x 2 heads x 4 values x 4 bytes."""
    pool = make_pool(2)
    assert pool.bytes_per_token == 192
    assert pool.page_bytes == 3072


def test_close_when_called_then_the_budget_is_free_again() -> None:
    """Load and unload give everything back."""
    device = CpuDevice(1 << 20)
    pool = KvPool(LAYERS, HEADS, SIZE, torch.float32, device, 8, 4)
    assert device.free_bytes() == (1 << 20) - pool.used_bytes
    pool.close()
    assert device.free_bytes() == 1 << 20


def test_pool_when_the_device_is_full_then_a_sentence_with_tokens() -> None:
    """A load that does not fit says so in the person's unit."""
    with pytest.raises(BudgetError, match="No room for 160 tokens of context"):
        make_pool(10, budget_pages=6)
