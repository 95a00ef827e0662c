"""Weights of a synthetic mixture-of-experts model: designed routing, known reply.

Real shapes and bytes (Qwen3-30B-A3B by default), made from a seed in seconds: the same bytes on
every machine, whatever the number of threads. Random weights alone would route almost uniformly and
make an expert cache look useless.

Text. Token ids form one ring, and greedy decoding after token t gives t + 1. A prompt is any
contiguous range of ids and its right continuation the ids that follow, so each reply of a
benchmark can be checked.

Hidden state. The embedding of t points along a*u + b*c[topic(t)] + d*n[t] and has the length
sqrt(H): u is common to all tokens, topic(t) stays the same over runs of ids, and n follows
n[t] ~ rho * n[t - 1] + innovation[t] around the ring. Row t + 1 of the head points along the
innovation of t.

Routing. A router row is popularity * u + noise. The part along u gives each layer a Zipf-like
popularity of its experts, ranked anew in each layer; the noise reads the topic (experts that stay
hot over a run), n (overlap of neighbours) and what the layers added (context). Attention and
experts add about 0.12 of the residual's size each.

Experts. A record is cut out of two long stretches of normal values, one at the scale of gate and
up, one at that of down, at places drawn for each expert: no value is drawn twice for a
record, and making one costs a copy.
"""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.layouts import UNIT_ROWS, Encoding, RecordLayout
from tests.support.checkpoints import quantize_blocks

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

SEED = 20261130
GROUP = 128  # side of an FP8 block, as published checkpoints have it
ROWS_AT_ONCE = 256  # of embedding and head; a few MB, which stay in a core's cache
AR_TERMS = 16  # of the sum that makes n; rho ** 16 is nothing
CODE_STD = 96.0  # of FP8 codes: 4.6 standard deviations reach the largest code
LARGEST_CODE = 448.0
STRETCH_RECORDS = 8  # records whose values a stretch holds
ACTIVATION_RMS = 0.41  # of silu(x) * y for normal x and y


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model. The defaults are those of Qwen3-30B-A3B, at half its depth."""

    layers: int = 24
    hidden: int = 2048
    experts: int = 128
    top_k: int = 8
    intermediate: int = 768
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    vocab: int = 151_936
    max_context: int = 40_960
    encoding: Encoding = "bf16"

    @property
    def layout(self) -> RecordLayout:
        """How one expert lies in memory."""
        group = GROUP if self.encoding == "fp8_block" else 0
        return RecordLayout(self.hidden, self.intermediate, self.encoding, group)

    @property
    def num_records(self) -> int:
        """Experts over all layers."""
        return self.layers * self.experts

    @property
    def pool_bytes(self) -> int:
        """Bytes of all experts."""
        return self.num_records * self.layout.record_bytes

    @property
    def dense_bytes(self) -> int:
        """Bytes of everything else as bf16; FP8 takes less."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        per_layer = attention + self.hidden * (self.experts + 2) + 2 * self.head_dim
        return 2 * (self.layers * per_layer + self.hidden * (2 * self.vocab + 1))


TINY = Shape(
    layers=3,
    hidden=256,
    experts=16,
    top_k=4,
    intermediate=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    vocab=2048,
    max_context=4096,
)
"""Small enough for a test; the reply is still known."""


@dataclass(frozen=True, slots=True)
class Design:
    """What decides routing and reply; see the module.

    Attributes:
        common, topic, own: a, b, d of the embedding.
        sigma: size of a router logit's noise part.
        zipf: exponent of the experts' popularity.
        run_tokens: mean length of a topic's run.
        topics: how many there are.
        rho: similarity of neighbouring tokens.
        share: what attention and experts add to the residual, of its size.
        head: size of a head row.
    """

    common: float = 0.4
    topic: float = 0.45
    own: float = 0.8
    sigma: float = 2.0
    zipf: float = 0.5
    run_tokens: float = 48.0
    topics: int = 64
    rho: float = 0.4
    share: float = 0.12
    head: float = 1.2


class SyntheticWeights:
    """Everything of one model, from shape, seed and design.

    Attributes:
        shape: its sizes.
        seed: of all draws.
    """

    def __init__(
        self, shape: Shape, seed: int = SEED, threads: int = 1, design: Design = Design()
    ) -> None:
        self.shape = shape
        self.seed = seed
        self._design = design
        self._threads = threads
        self._common = _unit(self._normals("common", (1, shape.hidden)))[0]

    @classmethod
    def from_config(cls, config: dict[str, Any], threads: int) -> "SyntheticWeights":
        """Return the weights that a folder's config names under "synthetic"."""
        facts = config["synthetic"]
        return cls(Shape(**facts["shape"]), facts["seed"], threads)

    def embedding_and_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding and head, bfloat16 [V, H] each."""
        shape, design = self.shape, self._design
        innovation = self._normals("innovation", (shape.vocab, shape.hidden), shape.hidden**-0.5)
        topics = _unit(self._normals("topics", (design.topics, shape.hidden)))
        topic_of = self._topic_runs()
        embedding = torch.empty(shape.vocab, shape.hidden, dtype=torch.bfloat16)
        head = torch.empty_like(embedding)

        def fill(first: int) -> None:
            rows = np.arange(first, min(first + ROWS_AT_ONCE, shape.vocab))
            before = np.arange(first - AR_TERMS + 1, first)
            own = _recurrence(innovation[np.concatenate((before, rows)) % shape.vocab], design.rho)
            place = design.common * self._common + design.topic * topics[topic_of[rows]]
            place += design.own * own[AR_TERMS - 1 :]
            size = math.sqrt(shape.hidden)
            embedding[first : first + len(rows)] = torch.from_numpy(_unit(place) * size)
            leads_here = _unit(innovation[(rows - 1) % shape.vocab])
            head[first : first + len(rows)] = torch.from_numpy(leads_here * design.head)

        run_all(fill, range(0, shape.vocab, ROWS_AT_ONCE), self._threads)
        return embedding, head

    def layer(self, layer: int) -> dict[str, torch.Tensor]:
        """Return a layer's weights without its experts, by their names inside the layer.

        With FP8, the attention's projections come as codes and `..._scale_inv`.
        """
        shape = self.shape
        wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        size = shape.hidden**-0.5
        projections = {
            "q": (wide, shape.hidden, size),
            "k": (narrow, shape.hidden, size),
            "v": (narrow, shape.hidden, size),
            "o": (shape.hidden, wide, 2 * self._design.share * wide**-0.5),
        }
        out = {
            "input_layernorm.weight": _ones(shape.hidden),
            "post_attention_layernorm.weight": _ones(shape.hidden),
            "self_attn.q_norm.weight": _ones(shape.head_dim),
            "self_attn.k_norm.weight": _ones(shape.head_dim),
            "mlp.gate.weight": torch.from_numpy(self._router(layer)).to(torch.bfloat16),
        }
        for part, (rows, columns, std) in projections.items():
            name = f"self_attn.{part}_proj.weight"
            values = torch.from_numpy(self._normals(f"{part} {layer}", (rows, columns), std))
            if shape.encoding == "fp8_block":
                out[name], out[f"{name}_scale_inv"] = quantize_blocks(values)
            else:
                out[name] = values.to(torch.bfloat16)
        return out

    def experts(self) -> "ExpertSource":
        """Return the source of expert records."""
        shape, design = self.shape, self._design
        stds = (
            shape.hidden**-0.5,
            2.5 * design.share / (ACTIVATION_RMS * math.sqrt(shape.intermediate)),
        )
        values = shape.layout.num_units * UNIT_ROWS * shape.hidden
        stretches = []
        for part, (std, rows) in enumerate(zip(stds, (2, 1), strict=True)):
            normal = self._normals(f"stretch {part}", (STRETCH_RECORDS, rows * values))
            is_coded = shape.encoding == "fp8_block"
            coded = torch.from_numpy(normal).mul_(CODE_STD if is_coded else std)
            if is_coded:  # torch before 2.13 makes NaN of what is too large
                coded.clamp_(-LARGEST_CODE, LARGEST_CODE)
            stretches.append(coded.to(shape.layout.value_dtype).view(torch.uint8).numpy().ravel())
        return ExpertSource(shape, self.seed, (stretches[0], stretches[1]), stds)

    def _router(self, layer: int) -> Floats:
        """Return router rows, float32 [E, H]."""
        shape, design = self.shape, self._design
        ranks = _draw(self.seed, f"ranks {layer}").permutation(shape.experts) + 1
        popularity = -design.zipf * np.log(ranks.astype(np.float32))
        popularity -= popularity.mean()
        noise = self._normals(
            f"router {layer}", (shape.experts, shape.hidden), design.sigma * shape.hidden**-0.5
        )
        along = popularity / (design.common * math.sqrt(shape.hidden))
        return noise + along[:, None] * self._common

    def _topic_runs(self) -> npt.NDArray[np.int64]:
        """Return each token's topic, [V]: runs of at least 4 ids."""
        draw = _draw(self.seed, "runs")
        count = self.shape.vocab // 4 + 1
        lengths = np.maximum(4, draw.exponential(self._design.run_tokens, count).astype(np.int64))
        topics = draw.integers(self._design.topics, size=count)
        return np.repeat(topics, lengths)[: self.shape.vocab]

    def _normals(self, tag: str, size: tuple[int, int], std: float = 1.0) -> Floats:
        """Draw float32 `size`, row blocks on several threads; the same for any number of them."""
        out = np.empty(size, np.float32)
        step = max(1, (1 << 22) // size[1])

        def fill(first: int) -> None:
            part = out[first : first + step]
            _draw(self.seed, f"{tag} {first}").standard_normal(dtype=np.float32, out=part)
            part *= std

        run_all(fill, range(0, size[0], step), self._threads)
        return out


class ExpertSource:
    """Makes any expert's record, from any thread.

    Args:
        shape: of the model.
        seed: of the places and the scales.
        stretches: bytes of normal values for gate and up, and for down.
        stds: what they shall count.
    """

    def __init__(
        self, shape: Shape, seed: int, stretches: tuple[Bytes, Bytes], stds: tuple[float, float]
    ) -> None:
        self._layout = shape.layout
        self._seed = seed
        self._stretches = stretches
        self._stds = stds

    def fill(self, record: int, out: Bytes) -> None:
        """Write record number `record` into uint8 [record_bytes]."""
        layout = self._layout
        draw = _draw(self._seed, f"record {record}")
        units = layout.num_units
        row_bytes = layout.hidden * layout.value_bytes
        body = out[: units * layout.unit_bytes].reshape(units, layout.unit_bytes)
        out[units * layout.unit_bytes :] = 0
        start = 0
        for stretch, rows in zip(self._stretches, (2 * UNIT_ROWS, UNIT_ROWS), strict=True):
            num_bytes = units * rows * row_bytes
            place = int(draw.integers((len(stretch) - num_bytes) // 16 + 1)) * 16
            end = start + rows * row_bytes
            body[:, start:end] = stretch[place : place + num_bytes].reshape(units, rows * row_bytes)
            start = end
        body[:, start:] = 0
        if layout.group:
            end = start + layout.unit_scale_bytes
            body[:, start:end] = self._scales(draw).view(np.uint8)

    def _scales(self, draw: np.random.Generator) -> Floats:
        """Return each unit's scales, float32 [U, 3 * ceil(H / G)], around what the codes need."""
        layout = self._layout
        blocks = -(-layout.intermediate // layout.group)
        spread = np.exp2(draw.random((blocks, 3, layout.scale_groups), np.float32) - 0.5)
        sizes = np.array([self._stds[0], self._stds[0], self._stds[1]], np.float32) / CODE_STD
        block_of = np.arange(layout.num_units) * UNIT_ROWS // layout.group
        scales = (spread * sizes[:, None])[block_of]
        return np.ascontiguousarray(scales.reshape(layout.num_units, -1), np.float32)


def run_all(work: Callable[[int], None], items: Iterable[int], threads: int) -> None:
    """Call `work` for each item on `threads` threads; raises what a call raised."""
    with ThreadPoolExecutor(max(1, threads), "synthetic") as workers:
        for _ in workers.map(work, items):
            pass


def _draw(seed: int, tag: str) -> np.random.Generator:
    """Return the generator of one thing; the tag is part of its seed."""
    return np.random.Generator(np.random.PCG64DXSM([seed, *tag.encode()]))


def _unit(rows: Floats) -> Floats:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _recurrence(innovation: Floats, rho: float) -> Floats:
    """Return sqrt(1 - rho^2) * sum over k < AR_TERMS of rho^k * innovation[t - k].

    By doubling: (1 + rho B)(1 + rho^2 B^2)(1 + rho^4 B^4)... of the shift B. The first rows lack
    what came before them.
    """
    out = innovation * np.float32(math.sqrt(1 - rho**2))
    shift = 1
    while shift < AR_TERMS:
        out[shift:] = out[shift:] + np.float32(rho**shift) * out[:-shift]
        shift *= 2
    return out


def _ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bfloat16)
