"""Device code of `kernels.triton.dense`: what one program does. Types are Triton's."""

# ruff: noqa: ANN001, ANN201, PLR0913
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from kernels.triton.fp8_jit import decode_e4m3


@triton.jit
def rms_norm(
    x, weight, narrow, wide, eps, H: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Norm one row of [T, H] into `narrow`, and unrounded into `wide` if WIDE."""
    row = tl.program_id(0).to(tl.int64) * H
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    values = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / H + eps)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    values = values * scale * factor
    tl.store(narrow + row + columns, values.to(narrow.dtype.element_ty), mask=inside)
    if WIDE:
        tl.store(wide + row + columns, values, mask=inside)


@triton.jit
def take_best(scores, ids, E: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr):
    """Move the K largest of a row's scores (0 to 1) to its front, and write whose they are.

    Largest first, of equal ones the lower; NaN counts as more than any number, as torch sorts.
    Shapes: scores [T, E], ids [T, K].
    """
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, SIZE)
    left = tl.load(scores + row * E + lanes, mask=lanes < E, other=-1.0)
    left = tl.where(left == left, left, 2.0)
    for k in range(K):
        best = tl.max(left, 0)
        first = tl.min(tl.where(left == best, lanes, SIZE), 0)
        tl.store(scores + row * E + k, tl.where(best > 1.5, float("nan"), best))
        tl.store(ids + row * K + k, first)
        left = tl.where(lanes == first, -1.0, left)


@triton.jit(do_not_specialize=["layer_id", "num_layers"])
def rotate_and_store(
    qkv, norms, cos, sin, slots, pages, layer_id, num_layers, eps,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr,
    PAGE: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Norm and rotate some heads of one token in place; copy keys and values to their page.

    Pages lie as page -> layer -> keys, values -> tokens -> heads -> D.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, HALF)
    there = (head < QUERIES + 2 * KEYS)[:, None] & (pair < D // 2)[None, :]
    turns = (head < QUERIES + KEYS)[:, None]
    place = qkv + token * ((QUERIES + 2 * KEYS) * D) + head[:, None] * D + pair[None, :]
    low = tl.load(place, mask=there, other=0.0).to(tl.float32)
    high = tl.load(place + D // 2, mask=there, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(low * low + high * high, 1) / D + eps)[:, None]
    norm = norms + head[:, None] * D + pair[None, :]
    normed_low = low * scale * tl.load(norm, mask=there & turns, other=0.0).to(tl.float32)
    norm += D // 2
    normed_high = high * scale * tl.load(norm, mask=there & turns, other=0.0).to(tl.float32)
    # Sines come signed: the first half of D is negated.
    angle, inside = token * D + pair, pair < D // 2
    cosine = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    low = tl.where(turns, normed_low * cosine + normed_high * sine, low)
    cosine = tl.load(cos + angle + D // 2, mask=inside, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(sin + angle + D // 2, mask=inside, other=0.0).to(tl.float32)[None, :]
    high = tl.where(turns, normed_high * cosine + normed_low * sine, high)
    low, high = low.to(qkv.dtype.element_ty), high.to(qkv.dtype.element_ty)
    tl.store(place, low, mask=there)
    tl.store(place + D // 2, high, mask=there)
    slot = tl.load(slots + token)
    kept = head - QUERIES  # heads of keys, then of values
    block = (slot // PAGE * num_layers + layer_id) * 2 + kept // KEYS
    target = (block * PAGE + slot % PAGE) * (KEYS * D) + kept % KEYS * D
    target = pages + target[:, None] + pair[None, :]
    stored = there & (kept >= 0)[:, None]
    tl.store(target, low.to(pages.dtype.element_ty), mask=stored)
    tl.store(target + D // 2, high.to(pages.dtype.element_ty), mask=stored)


@triton.jit
def dequantise(
    codes, scales, out, columns, GROUP: tl.constexpr, NATIVE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write a part of a row of code * scale: codes [N, K], scales [.., ceil(K/G)] -> [N, K]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    stored = tl.load(codes + row * columns + column, mask=inside, other=0)
    scale = scales + row // GROUP * ((columns + GROUP - 1) // GROUP) + column // GROUP
    values = decode_e4m3(stored, NATIVE, tl.float32)
    values *= tl.load(scale, mask=inside, other=0.0)
    tl.store(out + row * columns + column, values.to(out.dtype.element_ty), mask=inside)
