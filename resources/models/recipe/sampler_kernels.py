"""Triton kernels of the teacher's decode step, each beside the plain PyTorch form it must equal.

Shapes: B sequences, one token each; NUM_HEADS query heads share NUM_KV_HEADS; C cache positions.
`selfcheck` compares both forms on the device before anything is generated.
"""

# ruff: noqa: ANN001, ANN202, PLR0913  Triton's own way to write kernels

import torch
import triton
import triton.language as tl
from torch import Tensor

from recipe.teacher import HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, RMS_EPS

GROUP = NUM_HEADS // NUM_KV_HEADS
_HALF = HEAD_DIM // 2
_Q_COLS, _KV_COLS = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM


def attend_plain(qkv: Tensor, cache: Tensor, position: Tensor, rotary: Tensor) -> Tensor:
    """Rotate, write this token's key and value, attend over positions 0..position.

    Shapes: qkv [B, (9+3+3)*64], cache [2, B, 3, C, 64] (changed), position [B], rotary
    [2, C, 64] float32 (cosines, then sines signed for the two halves) -> [B, 9*64].
    """
    num_rows, capacity = qkv.shape[0], cache.shape[3]
    cos, sin = rotary[0][position][:, None], rotary[1][position][:, None]
    q, k, v = qkv.split([_Q_COLS, _KV_COLS, _KV_COLS], -1)

    def rotate(x: Tensor) -> Tensor:
        x = x.float()
        return (x * cos + x.roll(_HALF, -1) * sin).to(qkv.dtype)

    q = rotate(q.view(num_rows, NUM_HEADS, HEAD_DIM))
    rows = torch.arange(num_rows, device=qkv.device)
    cache[0, rows, :, position] = rotate(k.view(num_rows, NUM_KV_HEADS, HEAD_DIM))
    cache[1, rows, :, position] = v.view(num_rows, NUM_KV_HEADS, HEAD_DIM)
    mask = torch.arange(capacity, device=qkv.device) <= position[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(
        q.view(num_rows, NUM_KV_HEADS, GROUP, HEAD_DIM),
        cache[0],
        cache[1],
        attn_mask=mask[:, None, None],
    )
    return out.reshape(num_rows, _Q_COLS)


@triton.jit
def _attend(
    qkv, cache, position, rotary, out, capacity, value_step,
    KV: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, kv = tl.program_id(0), tl.program_id(1)
    here = tl.load(position + row).to(tl.int32)
    d = tl.arange(0, D)
    other = (d + D // 2) % D
    cos = tl.load(rotary + here * D + d)
    sin = tl.load(rotary + capacity * D + here * D + d)
    heads = tl.arange(0, 16)  # G query heads, padded to the least that the matrix unit takes
    base = qkv + row * (KV * (G + 2) * D)
    q_at = base + (kv * G + heads[:, None]) * D
    live = (heads < G)[:, None]
    q = tl.load(q_at + d[None, :], mask=live, other=0.0).to(tl.float32)
    q_other = tl.load(q_at + other[None, :], mask=live, other=0.0).to(tl.float32)
    dtype = qkv.dtype.element_ty
    q = (q * cos[None, :] + q_other * sin[None, :]).to(dtype)
    k_at = base + (KV * G + kv) * D
    k_new = tl.load(k_at + d).to(tl.float32) * cos + tl.load(k_at + other).to(tl.float32) * sin
    k_new = k_new.to(dtype)
    v_new = tl.load(base + (KV * (G + 1) + kv) * D + d)
    line = (row * KV + kv).to(tl.int64) * capacity * D
    tl.store(cache + line + here * D + d, k_new)
    tl.store(cache + value_step + line + here * D + d, v_new)
    scale: tl.constexpr = 0.125  # 1 / sqrt(64)
    top = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
    total = tl.full([16], 1.0, tl.float32)
    acc = tl.zeros([16, D], tl.float32) + v_new.to(tl.float32)[None, :]
    for start in range(0, here, BLOCK):  # the new token is in already; older ones lie in the cache
        at = start + tl.arange(0, BLOCK)
        known = at < here
        tile = at[:, None] * D + d[None, :]
        k = tl.load(cache + line + tile, mask=known[:, None], other=0.0)
        v = tl.load(cache + value_step + line + tile, mask=known[:, None], other=0.0)
        score = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        score = tl.where(known[None, :], score, -1e30)
        new_top = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(dtype), v).to(tl.float32)
        top = new_top
    o_at = out + row * (KV * G * D) + (kv * G + heads[:, None]) * D + d[None, :]
    tl.store(o_at, (acc / total[:, None]).to(dtype), mask=live)


def attend(qkv: Tensor, cache: Tensor, position: Tensor, rotary: Tensor) -> Tensor:
    """Do what `attend_plain` does, in one kernel that reads no position beyond the row's own."""
    out = torch.empty(qkv.shape[0], _Q_COLS, device=qkv.device, dtype=qkv.dtype)
    _attend[(qkv.shape[0], NUM_KV_HEADS)](
        qkv, cache, position, rotary, out, cache.shape[3], cache.stride(0),
        KV=NUM_KV_HEADS, G=GROUP, D=HEAD_DIM, BLOCK=64, num_warps=2,
    )  # fmt: skip
    return out


def add_norm_plain(x: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
    """Add `delta` to the residual stream `x` in place; return its RMS norm times `weight`."""
    x.add_(delta)
    return torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), RMS_EPS).to(
        x.dtype
    )


@triton.jit
def _add_norm(x, delta, weight, out, WIDTH: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < WIDTH
    place = row * WIDTH + at
    total = tl.load(x + place, mask=live, other=0.0).to(tl.float32)
    total += tl.load(delta + place, mask=live, other=0.0).to(tl.float32)
    total = total.to(x.dtype.element_ty)
    tl.store(x + place, total, mask=live)
    value = total.to(tl.float32)
    rate = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + EPS)
    value = value * rate * tl.load(weight + at, mask=live, other=0.0).to(tl.float32)
    tl.store(out + place, value.to(x.dtype.element_ty), mask=live)


def add_norm(x: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
    """Do what `add_norm_plain` does, in one kernel."""
    out = torch.empty_like(x)
    _add_norm[(x.shape[0],)](
        x, delta, weight, out, WIDTH=x.shape[1], EPS=RMS_EPS, BLOCK=1024, num_warps=4
    )
    return out


def gate_plain(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up. Shapes: [B, 2I] -> [B, I]."""
    gate, up = gate_up.float().chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


@triton.jit
def _gate(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate_up + row * 2 * WIDTH + at).to(tl.float32)
    u = tl.load(gate_up + row * 2 * WIDTH + WIDTH + at).to(tl.float32)
    tl.store(out + row * WIDTH + at, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty))


def gate(gate_up: Tensor) -> Tensor:
    """Do what `gate_plain` does, in one kernel; I is a multiple of 512."""
    width = gate_up.shape[1] // 2
    out = torch.empty(gate_up.shape[0], width, device=gate_up.device, dtype=gate_up.dtype)
    _gate[(gate_up.shape[0], width // 512)](gate_up, out, WIDTH=width, BLOCK=512, num_warps=4)
    return out


def sample_plain(
    logits: Tensor, dice: Tensor, temperature: float, min_p: float
) -> tuple[Tensor, Tensor]:
    """Draw one token a row by the inverse of the cumulative distribution.

    Shapes: logits [B, V], dice [B] in [0, 1). Returns: token ids [B] int64, each at least `min_p`
    times as likely as the likeliest, and their log-probabilities at temperature 1 [B] float32.
    """
    logits = logits.float()
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
    weight = torch.where(scaled < torch.log(torch.tensor(min_p)).item(), 0.0, scaled.exp())
    sums = weight.cumsum(-1)
    chosen = (sums <= dice[:, None] * sums[:, -1:]).sum(-1).clamp(max=logits.shape[1] - 1)
    return chosen, logits.log_softmax(-1).gather(-1, chosen[:, None]).squeeze(1)


@triton.jit
def _sample(
    logits, dice, tokens, scores, temperature, log_min_p, V: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    base = logits + row.to(tl.int64) * V
    best = tl.full([BLOCK], -1e30, tl.float32)
    for start in range(0, V, BLOCK):
        best = tl.maximum(best, tl.load(base + start + tl.arange(0, BLOCK)).to(tl.float32))
    top = tl.max(best, 0)
    drawn = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        x = tl.load(base + start + tl.arange(0, BLOCK)).to(tl.float32) - top
        plain += tl.exp(x)
        y = x / temperature
        drawn += tl.where(y < log_min_p, 0.0, tl.exp(y))
    target = tl.load(dice + row) * tl.sum(drawn, 0)
    before = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    chosen = tl.sum(tl.zeros([BLOCK], tl.int32), 0)
    for start in range(0, V, BLOCK):
        y = (tl.load(base + start + tl.arange(0, BLOCK)).to(tl.float32) - top) / temperature
        weight = tl.where(y < log_min_p, 0.0, tl.exp(y))
        sums = before + tl.cumsum(weight, 0)
        chosen += tl.sum((sums <= target).to(tl.int32), 0)
        before += tl.sum(weight, 0)
    chosen = tl.minimum(chosen, V - 1)
    tl.store(tokens + row, chosen.to(tl.int64))
    score = tl.load(base + chosen).to(tl.float32) - top - tl.log(tl.sum(plain, 0))
    tl.store(scores + row, score)


def sample(logits: Tensor, dice: Tensor, temperature: float, min_p: float) -> tuple[Tensor, Tensor]:
    """Do what `sample_plain` does, reading each row three times and writing two numbers."""
    num_rows, vocab = logits.shape
    tokens = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    scores = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    log_min_p = torch.log(torch.tensor(min_p)).item()
    _sample[(num_rows,)](
        logits, dice, tokens, scores, temperature, log_min_p, V=vocab, BLOCK=4096, num_warps=8
    )
    return tokens, scores
