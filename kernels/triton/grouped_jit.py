"""Device code of `kernels.triton.grouped`: what one program does. Types are Triton's."""

# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, E741
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from kernels.triton.fp8_jit import decode_e4m3


@triton.jit
def _weights(codes, GROUP: tl.constexpr, NATIVE: tl.constexpr, dtype: tl.constexpr):
    """Stored codes as exact values of `dtype`."""
    return codes.to(dtype) if GROUP == 0 else decode_e4m3(codes, NATIVE, dtype)


@triton.jit(do_not_specialize=["num_routes"])
def sort_routes(ids, ranks, order, row_starts, num_routes, BLOCK: tl.constexpr):
    """Write one rank's routes, ascending, and its first row; the program behind the last: all rows.

    Every program reads all ids: for what a tile has of them, that is less than a sort's kernels.
    """
    rank = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    before = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, num_routes, BLOCK):
        inside = start + lanes < num_routes
        expert = tl.load(ids + start + lanes, mask=inside, other=0)
        before += (inside & (tl.load(ranks + expert, mask=inside, other=0) < rank)).to(tl.int32)
    row = tl.sum(before, 0)
    tl.store(row_starts + rank, row)
    for start in range(0, num_routes, BLOCK):
        inside = start + lanes < num_routes
        expert = tl.load(ids + start + lanes, mask=inside, other=0)
        mine = inside & (tl.load(ranks + expert, mask=inside, other=0) == rank)
        ones = mine.to(tl.int32)
        place = row + tl.cumsum(ones, 0) - ones
        tl.store(order + place, start + lanes, mask=mine)
        row += tl.sum(ones, 0)


@triton.jit(do_not_specialize=["num_ranks", "block_rows"])
def cut_blocks(row_starts, block_starts, block_ranks, num_ranks, block_rows, SIZE: tl.constexpr):
    """Write each rank's first block of rows, and each block's rank; SIZE is over `num_ranks`.

    One program for all.
    """
    rank = tl.arange(0, SIZE)
    there = rank < num_ranks
    rows = tl.load(row_starts + rank + 1, mask=there, other=0)
    rows -= tl.load(row_starts + rank, mask=there, other=0)
    blocks = (rows + block_rows - 1) // block_rows
    first = tl.cumsum(blocks, 0) - blocks
    tl.store(block_starts + rank, first, mask=rank <= num_ranks)
    for block in range(0, tl.max(blocks, 0)):
        tl.store(block_ranks + first + block, rank, mask=block < blocks)


@triton.jit
def _place(block, row_starts, block_starts, block_ranks, ROWS: tl.constexpr):
    """Rank, sorted rows and their mask of one block of rows."""
    rank = tl.load(block_ranks + block)
    first = tl.load(row_starts + rank) + (block - tl.load(block_starts + rank)) * ROWS
    rows = first + tl.arange(0, ROWS)
    return rank, rows, rows < tl.load(row_starts + rank + 1)


@triton.jit(do_not_specialize=["first", "last"])
def gate_up(
    x, order, row_starts, block_starts, block_ranks, addresses, out, first, last,
    H: tl.constexpr, I: tl.constexpr, K: tl.constexpr, UNIT_BYTES: tl.constexpr,
    GROUP: tl.constexpr, ALIGN: tl.constexpr, NATIVE: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write silu(x gate) * (x up) of the ranks [first, last): [R, I], rows in sorted order."""
    pid = tl.program_id(0)
    across = tl.cdiv(I, COLUMNS)
    block = tl.load(block_starts + first) + pid // across
    if block >= tl.load(block_starts + last):
        return
    rank, rows, live = _place(block, row_starts, block_starts, block_ranks, ROWS)
    tokens = tl.load(order + rows, mask=live, other=0) // K
    columns = (pid % across) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < I
    column = tl.where(inside, columns, 0)
    unit, row = column // 16, column % 16
    VALUE_BYTES: tl.constexpr = 2 if GROUP == 0 else 1
    ELEMENT: tl.constexpr = tl.bfloat16 if GROUP == 0 else tl.uint8
    address = tl.load(addresses + rank)
    record = address.to(tl.pointer_type(ELEMENT))
    depth = tl.arange(0, DEPTH)
    inputs = x + tokens.to(tl.int64)[:, None] * H + depth[None, :]
    gates = record + (unit * (UNIT_BYTES // VALUE_BYTES) + row * (2 * H))[None, :] + depth[:, None]
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    up = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, H, DEPTH):
        left = tl.multiple_of(inputs + start, [1, ALIGN])
        middle = tl.multiple_of(gates + start, [ALIGN, 1])
        right = tl.multiple_of(gates + (start + H), [ALIGN, 1])
        if H % DEPTH == 0:
            a, g, u = tl.load(left), tl.load(middle), tl.load(right)
        else:
            here = start + depth < H
            a = tl.load(left, mask=here[None, :], other=0.0)
            g = tl.load(middle, mask=here[:, None], other=0)
            u = tl.load(right, mask=here[:, None], other=0)
        a = a.to(DOT)
        g, u = _weights(g, GROUP, NATIVE, DOT), _weights(u, GROUP, NATIVE, DOT)
        if GROUP == 0:
            gate = tl.dot(a, g, gate, input_precision="ieee")
            up = tl.dot(a, u, up, input_precision="ieee")
        else:
            SCALES: tl.constexpr = (H + GROUP - 1) // GROUP
            scales = (address + 48 * H).to(tl.pointer_type(tl.float32))
            scales += unit * (UNIT_BYTES // 4) + start // GROUP
            gate += tl.dot(a, g, input_precision="ieee") * tl.load(scales)[None, :]
            up += tl.dot(a, u, input_precision="ieee") * tl.load(scales + SCALES)[None, :]
    small = tl.exp(-tl.abs(gate))  # cannot overflow
    hidden = gate * (tl.where(gate < 0, small, 1.0) / (1.0 + small)) * up
    target = out + rows.to(tl.int64)[:, None] * I + columns[None, :]
    tl.store(target, hidden.to(out.dtype.element_ty), mask=live[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["first", "last"])
def down(
    hidden, order, row_starts, block_starts, block_ranks, addresses, out, first, last,
    H: tl.constexpr, I: tl.constexpr, UNIT_BYTES: tl.constexpr,
    GROUP: tl.constexpr, ALIGN: tl.constexpr, NATIVE: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write hidden [R, I] times down of the ranks [first, last): [T * K, H], rows by route."""
    pid = tl.program_id(0)
    across = tl.cdiv(H, COLUMNS)
    block = tl.load(block_starts + first) + pid // across
    if block >= tl.load(block_starts + last):
        return
    rank, rows, live = _place(block, row_starts, block_starts, block_ranks, ROWS)
    routes = tl.load(order + rows, mask=live, other=0)
    columns = (pid % across) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < H
    VALUE_BYTES: tl.constexpr = 2 if GROUP == 0 else 1
    ELEMENT: tl.constexpr = tl.bfloat16 if GROUP == 0 else tl.uint8
    address = tl.load(addresses + rank)
    record = address.to(tl.pointer_type(ELEMENT))
    depth = tl.arange(0, DEPTH)
    inputs = hidden + tl.where(live, rows, 0).to(tl.int64)[:, None] * I + depth[None, :]
    offset = (depth // 16) * (UNIT_BYTES // VALUE_BYTES) + (32 + depth % 16) * H
    weights = record + (offset[:, None] + columns[None, :])
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, I, DEPTH):
        left = tl.multiple_of(inputs + start, [1, 16])
        step = (start // 16) * (UNIT_BYTES // VALUE_BYTES)
        right = tl.multiple_of(weights + step, [1, ALIGN])
        if I % DEPTH == 0 and H % COLUMNS == 0:
            a, w = tl.load(left), tl.load(right)
        else:
            here = start + depth < I
            a = tl.load(left, mask=here[None, :], other=0.0)
            w = tl.load(right, mask=here[:, None] & inside[None, :], other=0)
        a, w = a.to(DOT), _weights(w, GROUP, NATIVE, DOT)
        if GROUP == 0:
            acc = tl.dot(a, w, acc, input_precision="ieee")
        else:
            SCALES: tl.constexpr = (H + GROUP - 1) // GROUP
            scales = (address + 48 * H).to(tl.pointer_type(tl.float32))
            scales += (start // 16) * (UNIT_BYTES // 4) + 2 * SCALES
            scale = tl.load(scales + columns // GROUP, mask=inside, other=0.0)
            acc += tl.dot(a, w, input_precision="ieee") * scale[None, :]
    target = out + routes.to(tl.int64)[:, None] * H + columns[None, :]
    tl.store(target, acc, mask=live[:, None] & inside[None, :])


@triton.jit
def merge(rows, weights, out, H: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr):
    """Add each token's weighted rows to `out` [T, H], in router order; its type is met once."""
    token = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < H
    total = tl.zeros((COLUMNS,), tl.float32)
    source = rows + token.to(tl.int64) * (K * H) + columns
    for k in range(K):
        weight = tl.load(weights + token * K + k)
        total = tl.fma(
            tl.load(source + k * H, mask=inside, other=0.0),
            tl.full((COLUMNS,), 1.0, tl.float32) * weight,
            total,
        )
    target = out + token.to(tl.int64) * H + columns
    total += tl.load(target, mask=inside, other=0.0).to(tl.float32)
    tl.store(target, total.to(out.dtype.element_ty), mask=inside)
