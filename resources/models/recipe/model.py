"""The student: a small Qwen3-MoE in plain PyTorch, written for training speed.

Weights are kept as training needs them (experts stacked, gate and up side by side); `export`
gives them the names and shapes of published checkpoints. Shapes: B rows, T tokens, D hidden,
E experts, K chosen ones, I expert width, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the model; the defaults are those of the built-in one."""

    vocab: int = 8192
    hidden: int = 384
    layers: int = 8
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 24
    top_k: int = 3
    width: int = 128
    context: int = 2048
    rope_theta: float = 10_000.0
    eps: float = 1e-6


TOY = Shape(vocab=1024, hidden=128, layers=2, heads=4, kv_heads=2, experts=8, top_k=2, context=256)


class Norm(nn.Module):
    """RMS norm over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self._eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed input in its own dtype."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self._eps)


class Experts(nn.Module):
    """Top-k of E gated MLPs, each row sent to its experts by one grouped product."""

    def __init__(self, shape: Shape, grouped: bool) -> None:
        super().__init__()
        self._shape, self._grouped = shape, grouped
        e, d, i = shape.experts, shape.hidden, shape.width
        out = 0.02 / math.sqrt(2 * shape.layers)
        self.gate = nn.Parameter(torch.randn(e, d) * 0.02)
        self.gate_up = nn.Parameter(torch.randn(e, d, 2 * i) * 0.02)
        self.down = nn.Parameter(torch.randn(e, i, d) * out)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: [N, D] -> [N, D], and the balance loss (1 = even use)."""
        e, k, n = self._shape.experts, self._shape.top_k, x.shape[0]
        odds = (x.float() @ self.gate.float().t()).softmax(-1)
        weight, chosen = odds.topk(k, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        flat = chosen.flatten()
        counts = F.one_hot(flat, e).sum(0)
        balance = e * (counts.float() / (n * k) * odds.mean(0)).sum()
        order = flat.argsort(stable=True)
        # Groups start at multiples of 16 rows, as the grouped product wants.
        padded = (counts + 15) // 16 * 16
        ends = padded.cumsum(0)
        sorted_expert = flat[order]
        first = counts.cumsum(0) - counts
        rank = torch.arange(n * k, device=x.device) - first[sorted_expert]
        place = rank + (ends - padded)[sorted_expert]
        rows = x.new_zeros(n * k + e * 16, x.shape[1]).index_copy(0, place, x[order // k])
        gate, up = self._product(rows, self.gate_up, ends).chunk(2, -1)
        done = self._product(F.silu(gate) * up, self.down, ends)[place]
        done = done * weight.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, order // k, done), balance

    def _product(self, rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        weight = weight.to(rows.dtype)
        if self._grouped:
            product = F.grouped_mm if hasattr(F, "grouped_mm") else torch._grouped_mm
            return product(rows, weight, offs=ends.to(torch.int32))
        out = rows.new_zeros(rows.shape[0], weight.shape[2])
        start = 0
        for expert, end in enumerate(ends.tolist()):
            out[start:end] = rows[start:end] @ weight[expert]
            start = end
        return out


class Block(nn.Module):
    """One layer: attention with normed queries and keys, then experts."""

    def __init__(self, shape: Shape, grouped: bool) -> None:
        super().__init__()
        self._shape = shape
        d, h = shape.hidden, shape.head_dim
        cols = (shape.heads + 2 * shape.kv_heads) * h
        self.norm1, self.norm2 = Norm(d, shape.eps), Norm(d, shape.eps)
        self.q_norm, self.k_norm = Norm(h, shape.eps), Norm(h, shape.eps)
        self.qkv = nn.Parameter(torch.randn(cols, d) * 0.02)
        out = 0.02 / math.sqrt(2 * shape.layers)
        self.out = nn.Parameter(torch.randn(d, shape.heads * h) * out)
        self.experts = Experts(shape, grouped)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: [B, T, D] -> [B, T, D], and the balance loss."""
        s = self._shape
        b, t, d = x.shape
        sizes = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        q, k, v = (self.norm1(x) @ self.qkv.to(x.dtype).t()).split(sizes, -1)
        q = self.q_norm(q.view(b, t, s.heads, s.head_dim)).transpose(1, 2)
        k = self.k_norm(k.view(b, t, s.kv_heads, s.head_dim)).transpose(1, 2)
        v = v.view(b, t, s.kv_heads, s.head_dim).transpose(1, 2)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + mixed.transpose(1, 2).reshape(b, t, -1) @ self.out.to(x.dtype).t()
        y, balance = self.experts(self.norm2(x).reshape(b * t, d))
        return x + y.view(b, t, d), balance


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Student(nn.Module):
    """The whole model; the head is the embedding. Computes in `dtype`, keeps float32 weights."""

    def __init__(self, shape: Shape, dtype: torch.dtype, grouped: bool) -> None:
        super().__init__()
        self.shape, self._dtype = shape, dtype
        self.embedding = nn.Parameter(torch.randn(shape.vocab, shape.hidden) * 0.02)
        self.blocks = nn.ModuleList(Block(shape, grouped) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)
        rates = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angle = torch.arange(shape.context).float()[:, None] * rates
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("cos", angle.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angle.sin().to(dtype), persistent=False)

    def forward(
        self, ids: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return logits [B, T, V], or the weighted mean loss; and the balance loss."""
        x = self.embedding.to(self._dtype)[ids]
        balance = x.new_zeros((), dtype=torch.float32)
        for block in self.blocks:
            x, one = block(x, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
            balance = balance + one / self.shape.layers
        logits = self.norm(x) @ self.embedding.to(self._dtype).t()
        if targets is None or weights is None:
            return logits, balance
        loss = F.cross_entropy(
            logits.float().view(-1, self.shape.vocab), targets.reshape(-1), reduction="none"
        )
        weight = weights.reshape(-1)
        return (loss * weight).sum() / weight.sum(), balance
