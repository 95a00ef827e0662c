"""Who would be resident after which step: the policy of a card's decode kernels, replayed.

`moe_plan.cuh` between `engine.moe.device_prefill` and `engine.moe.device_residency`, on routes
alone, without bytes or devices; exact, given the share of the missing units that the link brings.
Beside the product's policy it knows slots for parts of an expert, fills while a layer's dense half
leaves the link idle, and the oracle. Called by `tests.perf.replay`.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.moe.device_experts import STORE_PART
from engine.moe.device_planner import PrefillRates, hotness, prefers_demand
from engine.moe.device_prefill import PrefillOptions
from engine.moe.device_residency import PROMPT_USE
from engine.moe.prompt_routes import PROMPT_LOSS
from kernels.cuda.moe_state import NUM_VICTIMS, MoePolicy
from kernels.cuda.residency import FREE, NO_SLOT

UNIT_BYTES = 196_608  # of Qwen3-30B-A3B in bf16
NEVER = -1e9  # level of a record that was never used
LEAST_LEVEL = -100.0  # of one that was, however long ago
FIXED_POINT = 1024.0  # a use by a prompt's last token, as `prompt_uses` counts
ASKED_AHEAD = 12  # records that fills of a dense half may choose from

Scope = Literal["begun", "next", "all"]


class Conversation(NamedTuple):
    """Routes of a prompt and of the steps that follow: int64 [T, L, K] each, ids within a layer."""

    prompt: NDArray[np.int64]
    reply: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides who is resident; the defaults are the product's.

    Attributes:
        growth: log2 of what a use loses in one step.
        units: of an expert.
        parts: slots of an expert; each holds as many of its units, in order.
        store_part: a slot is given if the link brings this part of what it holds.
        link_share: of the missing units, over the link.
        prompt_use: what a use by a prompt's last token counts.
        prompt_loss: what a use still counts one token of a prompt later.
        dense_units: units that the link brings during each layer's dense half.
        dense_scope: whose: of the layer that comes those that own a slot, or all; or anybody's.
    """

    growth: float = MoePolicy().growth
    units: int = 48
    parts: int = 1
    store_part: int = STORE_PART
    link_share: float = 0.3
    prompt_use: float = PROMPT_USE
    prompt_loss: float = PROMPT_LOSS
    dense_units: int = 0
    dense_scope: Scope = "begun"

    @property
    def part_units(self) -> int:
        """Units that a slot holds."""
        return self.units // self.parts


class Ranking(ABC):
    """How much records are worth a slot, as numbers that change only with use.

    Attributes:
        levels: by record; higher is better.
        unused: level of a record that nobody has used.
    """

    def __init__(self, records: int, unused: float) -> None:
        self.levels, self.unused = np.full(records, unused), unused

    @abstractmethod
    def use(self, record: int, tick: int) -> None:
        """Count a use by a decode step; a tick is a layer."""

    @abstractmethod
    def read(self, first: int, routes: NDArray[np.int64], experts: int, tick: int) -> None:
        """Count a prompt's routes [T, K] to the experts of the layer that begins at `first`."""


class Recency(Ranking):
    """LRU."""

    def __init__(self, records: int) -> None:
        super().__init__(records, 0.0)

    def use(self, record: int, tick: int) -> None:
        """See `Ranking`."""
        self.levels[record] = tick

    def read(self, first: int, routes: NDArray[np.int64], experts: int, tick: int) -> None:
        """See `Ranking`; all of a prompt is one moment."""
        self.levels[first + np.unique(routes)] = tick


class Frequency(Ranking):
    """Uses that count less the longer ago they were: log2 of their sum, as of tick 0."""

    def __init__(self, records: int, layers: int, rules: Rules) -> None:
        super().__init__(records, NEVER)
        self._growth, self._rules = rules.growth / layers, rules

    def use(self, record: int, tick: int) -> None:
        """See `Ranking`."""
        now = self._growth * tick
        self.levels[record] = now + math.log2(2.0 ** (float(self.levels[record]) - now) + 1.0)

    def read(self, first: int, routes: NDArray[np.int64], experts: int, tick: int) -> None:
        """See `Ranking`; as `DeviceResidency.credit`."""
        tokens, top_k = routes.shape
        now, loss = self._growth * tick, self._rules.prompt_loss
        weights = np.round(loss ** np.arange(tokens - 1, -1, -1.0) * FIXED_POINT)
        sums = np.bincount(routes.ravel(), np.repeat(weights, top_k), experts)
        uses = sums / FIXED_POINT * self._rules.prompt_use
        old = self.levels[first : first + experts] - now
        faded = np.where(
            old > NEVER / 2, np.maximum(old + tokens * math.log2(loss), LEAST_LEVEL), NEVER
        )
        grown = np.log2(np.where(uses > 0, np.exp2(faded) + uses, 1.0))
        self.levels[first : first + experts] = now + np.where(uses > 0, grown, faded)


class Oracle(Ranking):
    """The sooner a record is used again by a step of these conversations, the better."""

    def __init__(self, records: int, experts: int, conversations: Sequence[Conversation]) -> None:
        super().__init__(records, -math.inf)
        self._coming: list[deque[int]] = [deque() for _ in range(records)]
        layers = (routes for talk in conversations for step in talk.reply for routes in step)
        num_layers = records // experts
        for tick, routes in enumerate(layers):
            for expert in routes.tolist():
                self._coming[tick % num_layers * experts + expert].append(tick)
        for record in range(records):
            self._look(record)

    def use(self, record: int, tick: int) -> None:
        """See `Ranking`."""
        self._coming[record].popleft()
        self._look(record)

    def read(self, first: int, routes: NDArray[np.int64], experts: int, tick: int) -> None:
        """See `Ranking`; what was read changes nothing."""

    def _look(self, record: int) -> None:
        coming = self._coming[record]
        self.levels[record] = -coming[0] if coming else -math.inf


@dataclass(slots=True)
class Counts:
    """Sums over steps; units but for `steps` and `fills`, which are slots that changed owner."""

    steps: int = 0
    hit: int = 0
    link: int = 0
    cpu: int = 0
    dense: int = 0
    fills: int = 0

    @property
    def missed(self) -> int:
        """Units that lay in no slot."""
        return self.link + self.cpu

    def __add__(self, other: "Counts") -> "Counts":
        mine, theirs = ((c.steps, c.hit, c.link, c.cpu, c.dense, c.fills) for c in (self, other))
        return Counts(*map(sum, zip(mine, theirs, strict=True)))


class Replay:
    """The tables of one model on one card.

    A record is an expert of a layer, a part one of `Rules.parts` runs of its units. The link brings
    the last units of the list, the forecast of which is right.

    Attributes:
        owner: by slot, part or -1. slot_of: by part, slot or -1.
        valid: by part, units of it that lie in its slot, from the first on.
        counts: since it was last set.
    """

    def __init__(
        self, layers: int, experts: int, slots: int, ranking: Ranking, rules: Rules = Rules()
    ) -> None:
        if rules.units % rules.parts:
            raise ValueError(f"{rules.units} units are not {rules.parts} equal parts")
        self._layers, self._experts, self._ranking, self._rules = layers, experts, ranking, rules
        parts = layers * experts * rules.parts
        self.owner = np.full(min(slots * rules.parts, parts), FREE)
        self.slot_of, self.valid = [NO_SLOT] * parts, [0] * parts
        self.counts = Counts()
        self._victims: list[tuple[int, int]] = []
        self._tick = 0
        self._store_min = max(1, rules.part_units // rules.store_part)

    def prompt(self, routes: NDArray[np.int64]) -> None:
        """Read a prompt, [T, L, K], as `DevicePrefill` and `DeviceResidency` do."""
        experts, record_bytes = self._experts, self._rules.units * UNIT_BYTES
        missing = [
            [e for e in range(experts) if self._missing(layer * experts + e)]
            for layer in range(self._layers)
        ]
        bytes_a_layer = sum(map(len, missing)) * record_bytes / self._layers
        tokens, _, top_k = routes.shape
        if prefers_demand(tokens, top_k, experts, bytes_a_layer, PrefillRates()):
            used = [set(routes[:, layer].ravel().tolist()) for layer in range(self._layers)]
            missing = [[e for e in m if e in u] for m, u in zip(missing, used, strict=True)]
        last = routes[-PrefillOptions().warm_tokens :]
        for layer in range(self._layers):
            self._ranking.read(layer * experts, routes[:, layer], experts, self._tick)
            heat = hotness(last[:, layer].tolist())
            all_free = np.flatnonzero(self.owner == FREE).tolist()
            free = deque(all_free[: -(-len(all_free) // (self._layers - layer))])
            self._admit(layer, missing[layer], heat, free)
        self._victims = []

    def step(self, routes: NDArray[np.int64]) -> None:
        """Decode one token, [L, K]."""
        self.counts.steps += 1
        for layer, experts in enumerate(routes.tolist()):
            records = [layer * self._experts + expert for expert in experts]
            for record in records:
                self._ranking.use(record, self._tick)
            self._tick += 1
            levels = self._ranking.levels
            listed = [record for record in records if self._missing(record)]
            units = sum(map(self._missing, listed))
            self.counts.hit += len(records) * self._rules.units - units
            if listed:
                listed.sort(key=lambda record: -levels[record])
                self._serve(listed, units, set(records))
                self._search()
            if self._rules.dense_units:
                self._fill_dense((layer + 1) % self._layers)

    def _missing(self, record: int) -> int:
        parts = self._rules.parts
        return self._rules.units - sum(self.valid[record * parts : record * parts + parts])

    def _incomplete(self, record: int) -> Iterator[tuple[int, int]]:
        """Yield (part, units that it lacks), in the order in which the link brings them."""
        for part in range(record * self._rules.parts, (record + 1) * self._rules.parts):
            if need := self._rules.part_units - self.valid[part]:
                yield part, need

    def _is_begun(self, record: int) -> bool:
        return any(self.slot_of[part] != NO_SLOT for part, _ in self._incomplete(record))

    def _serve(self, listed: Sequence[int], units: int, routed: set[int]) -> None:
        """Share out what is missed; `listed` are the records, those of most worth first."""
        link = int(units * self._rules.link_share + 0.5)
        self.counts.link += link
        self.counts.cpu += units - link
        victims = self._usable(routed)
        landed = []
        for record in listed:
            for part, need in self._incomplete(record):
                comes = min(link, need)
                link -= comes
                if self.slot_of[part] == NO_SLOT and comes >= self._store_min:
                    self._give(part, next(victims, NO_SLOT))
                landed.append((part, comes))
        for part, comes in landed:
            if self.slot_of[part] != NO_SLOT:
                self.valid[part] += comes

    def _fill_dense(self, layer: int) -> None:
        """Bring units that nobody waits for, of who is worth most, until the next list."""
        levels, left = self._ranking.levels, self._rules.dense_units
        first, last = 0, len(levels)
        if self._rules.dense_scope != "all":
            first, last = layer * self._experts, (layer + 1) * self._experts
        order = (first + np.argsort(-levels[first:last], kind="stable")).tolist()
        wanted = (r for r in order if levels[r] > self._ranking.unused and self._missing(r))
        only_begun = self._rules.dense_scope == "begun"
        if only_begun:
            wanted = (r for r in wanted if self._is_begun(r))
        victims = iter(()) if only_begun else self._usable(set())
        for record in islice(wanted, ASKED_AHEAD):
            for part, need in self._incomplete(record):
                if not left:
                    return
                if self.slot_of[part] == NO_SLOT and not self._give(part, next(victims, NO_SLOT)):
                    continue
                brought = min(left, need)
                self.valid[part] += brought
                self.counts.dense += brought
                left -= brought

    def _usable(self, routed: set[int]) -> Iterator[int]:
        """Yield slots that may change owner, those of least worth first."""
        for slot, part in self._victims:
            if self.owner[slot] == part and part // self._rules.parts not in routed:
                yield slot

    def _give(self, part: int, slot: int) -> bool:
        """Give a part this slot, if it is worth more than who lies there."""
        levels, parts = self._ranking.levels, self._rules.parts
        if slot == NO_SLOT:
            return False
        owner = int(self.owner[slot])
        if owner != FREE and levels[part // parts] <= levels[owner // parts]:
            return False
        self._move(part, slot)
        self.counts.fills += 1
        return True

    def _move(self, part: int, slot: int) -> None:
        owner = int(self.owner[slot])
        if owner != FREE:
            self.slot_of[owner], self.valid[owner] = NO_SLOT, 0
        self.owner[slot], self.slot_of[part], self.valid[part] = part, slot, 0

    def _search(self) -> None:
        """Find the slots that lists up to the next miss may take."""
        keys = self._keys()
        if len(keys) > NUM_VICTIMS:
            low = np.flatnonzero(keys <= np.partition(keys, NUM_VICTIMS - 1)[NUM_VICTIMS - 1])
        else:
            low = np.arange(len(keys))
        order = low[np.argsort(keys[low], kind="stable")][:NUM_VICTIMS]
        self._victims = [(slot, int(self.owner[slot])) for slot in order.tolist()]

    def _keys(self) -> NDArray[np.float64]:
        levels = self._ranking.levels[self.owner // self._rules.parts]
        return np.where(self.owner == FREE, -math.inf, np.maximum(levels, NEVER * 2))

    def _admit(
        self, layer: int, experts: Sequence[int], heat: dict[int, float], free: deque[int]
    ) -> None:
        """Give slots to a layer's records while they lie in the staging, as `DeviceResidency`."""
        parts, levels, base = self._rules.parts, self._ranking.levels, layer * self._experts
        offered = [base + expert for expert in experts]
        wanted = [
            part
            for record in sorted(offered, key=lambda r: (-heat.get(r - base, 0.0), r))
            for part, _ in self._incomplete(record)
            if self.slot_of[part] == NO_SLOT
        ]
        wanted.sort(key=lambda p: (-heat.get(p // parts - base, 0.0), -levels[p // parts]))
        owner = np.where(self.owner == FREE, FREE, self.owner // parts)
        mine = (owner >= base) & (owner < base + self._experts)
        may_go = mine & ~np.isin(owner, offered)
        slots = np.flatnonzero(may_go)
        victims = iter(slots[np.lexsort((self.owner[slots], self._keys()[slots]))].tolist())
        for part in wanted:
            if free:
                slot = free.popleft()
            elif heat.get(part // parts - base, 0.0) > 0:
                slot = next(victims, NO_SLOT)
                if slot == NO_SLOT or self._keys()[slot] >= levels[part // parts]:
                    return
            else:
                return
            self._move(part, slot)
            self.valid[part] = self._rules.part_units
