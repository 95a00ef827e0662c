"""A model that was never here: its sizes from config facts, whether it fits, how fast it may be.

Pure arithmetic. The speed is a range between the most and the least that engines of this kind were
seen to lose beside bandwidth; without measured rates of this machine there is none.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from app.predict.fit import Fit, judge_fit
from app.predict.profiles import Profile
from app.predict.speed import routed_bytes
from engine.protocol.messages import MissPolicy

_BLOCK = 128 * 128  # weights that share one FP8 scale
_CONVERTED = 1.03  # of the source, on disk
_VRAM_ROOM = 1.10
# A card also holds buffers of steps, a chunk of a prompt, and experts that stream through.
_CARD_SCRATCH, _CARD_ROOM = 768 << 20, 1.3
_CPU_SCRATCH = 3 << 30  # a prompt's attention over a long context, and what the system keeps
# Time per layer that is not bandwidth, as the paper's system shows it at 25 % and 5 % of misses.
# Source: derived from the decode speeds of arXiv 2608.16157.
_LAYER_S = (86e-6, 216e-6)
# Share of experts on the device -> share of routes served there, measured on several machines.
# Source: public threads llama.cpp#27861, FreeToken#231, imp#1359.
_SEEN_HITS = ((0.0, 0.0), (0.125, 0.67), (0.25, 0.81), (0.37, 0.93), (0.59, 0.975), (1.0, 1.0))
_CPU_SHARES = (0.3, 0.8)  # of the measured kernel rate that a whole step reaches without a GPU

Limit = Literal["ram", "vram", "disk"]


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """What config.json says of a mixture-of-experts model whose layers all have experts."""

    quant: str
    layers: int
    experts: int
    top_k: int
    hidden: int
    moe_intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def expert_bytes(self) -> int:
        """One expert: gate, up and down."""
        return self._linear(3 * self.hidden * self.moe_intermediate)

    @property
    def pool_bytes(self) -> int:
        """All experts."""
        return self.layers * self.experts * self.expert_bytes

    @property
    def dense_bytes(self) -> int:
        """Attention, router, norms, embedding and head."""
        return self.layers * self._linear(self._attention) + 2 * self._plain

    @property
    def cpu_bytes(self) -> int:
        """Main memory that the engine wants where there is no card, with the smallest cache."""
        dense = 4 * (self.layers * self._attention + self._plain)
        staging = 2 * self.experts * self.expert_bytes  # two layers, for prompts
        return self.pool_bytes + dense + staging + _CPU_SCRATCH

    @property
    def _attention(self) -> int:
        return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)

    @property
    def _plain(self) -> int:
        router = self.hidden * self.experts
        norms = 2 * (self.hidden + self.head_dim)
        return self.layers * (router + norms) + self.hidden + 2 * self.vocab * self.hidden

    @property
    def total_bytes(self) -> int:
        """All weights, as published."""
        return self.pool_bytes + self.dense_bytes

    def _linear(self, count: int) -> int:
        """Bytes of weights in the model's format; what is not FP8 counts as two bytes each."""
        return count + 2 * (count // _BLOCK) if self.quant == "fp8_block" else 2 * count


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """What a model must fit into, in bytes; `vram_total` 0 = no GPU, `disk_free` -1 = not known."""

    ram_total: int = 0
    ram_free: int = 0
    vram_total: int = 0
    disk_free: int = -1
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class DownloadAdvice:
    """Whether it fits, and the figures that decide: `need` and `have` bytes of `limit`."""

    fit: Fit
    limit: Limit = "ram"
    need_bytes: int = 0
    have_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SpeedGuess:
    """Decode speed to expect, tokens/s."""

    low: float
    high: float


def disk_need(total_bytes: int) -> int:
    """Return the bytes that download and conversion take together (case D-08)."""
    return total_bytes + round(total_bytes * _CONVERTED)


def judge_download(facts: ConfigFacts, machine: ThisMachine) -> DownloadAdvice:
    """Judge a model before it is fetched: what can never work first, then what is short now."""
    ram = judge_fit(facts.total_bytes, machine.ram_total, machine.ram_free)
    if ram.fit in (Fit.TOO_BIG, Fit.UNKNOWN):
        return DownloadAdvice(ram.fit, "ram", ram.need_bytes, ram.have_bytes)
    vram = round(facts.dense_bytes * _VRAM_ROOM)
    if 0 < machine.vram_total < vram:
        return DownloadAdvice(Fit.TOO_BIG, "vram", vram, machine.vram_total)
    card = round((facts.dense_bytes + _CARD_SCRATCH) * _CARD_ROOM)
    if 0 < machine.vram_total < card:
        return DownloadAdvice(Fit.TIGHT, "vram", card, machine.vram_total)
    if not machine.vram_total and machine.ram_free < facts.cpu_bytes:
        return DownloadAdvice(Fit.TIGHT, "ram", facts.cpu_bytes, machine.ram_free)
    disk = disk_need(facts.total_bytes)
    if 0 <= machine.disk_free < disk:
        return DownloadAdvice(Fit.TIGHT, "disk", disk, machine.disk_free)
    return DownloadAdvice(ram.fit, "ram", ram.need_bytes, ram.have_bytes)


def guess_speed(facts: ConfigFacts, machine: ThisMachine) -> SpeedGuess | None:
    """Return the decode speed to expect; None without a measurement, or if it cannot run here."""
    profile = machine.profile
    if profile is None or judge_download(facts, machine).fit in (Fit.TOO_BIG, Fit.UNKNOWN):
        return None
    routed = routed_bytes(facts.layers, facts.top_k, facts.expert_bytes)
    if profile.emulated or not machine.vram_total:
        whole_s = (routed + facts.dense_bytes) / (profile.cpu_gbps * 1e9)
        low, high = (share / whole_s for share in _CPU_SHARES)
        return SpeedGuess(low, high)
    rate = profile.miss_rate(MissPolicy.SPLIT)
    resident = max(0.0, machine.vram_total / _VRAM_ROOM - facts.dense_bytes) / facts.pool_bytes
    resident = min(1.0, resident)
    best, worst = _LAYER_S
    high = 1 / (facts.layers * best + (1 - seen_hits(resident)) * routed / rate)
    low = 1 / (facts.layers * worst + (1 - resident) * routed / rate)  # as if routing were even
    return SpeedGuess(low, high)


def seen_hits(resident: float) -> float:
    """Return the share of routes served on the device with this share of experts there."""
    for (x0, y0), (x1, y1) in pairwise(_SEEN_HITS):
        if resident <= x1:
            return y0 + (y1 - y0) * (resident - x0) / (x1 - x0)
    return 1.0
