"""Prefill on a device with a link: which records cross, in which runs, into which places, and when.

Numbers only; no torch. Nothing here changes a bit of the result: the same records are computed the
same way wherever they lie, this decides what is copied beforehand. Called by
`engine.moe.device_prefill`; carried out by `engine.moe.device_stream`.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

# A copy costs about 5 us beside its bytes (44 GB/s at 1 MiB, 10 GB/s at 64 KiB of a link of 53), in
# which a link carries some 256 KiB: a shorter gap between two records is copied along.
BRIDGE_BYTES = 256 << 10
GROUP_BYTES = 32 << 20
MAX_GROUPS = 4
LEARNING = 0.25  # weight of the newest measurement
# Tokens of one text route to few experts, neighbours to the same. Over recorded routes of two texts
# the missing experts that n tokens route grow like those of n ** 0.7 tokens that know nothing of
# each other, times 0.33 to 0.41 (8 to 256 tokens, 128 experts, top 8, a quarter resident).
KINSHIP = 0.7
VARIETY = 0.37
INFORMATIVE = (0.02, 0.98)  # shares of the missing experts; those beyond are bounds


@dataclass(slots=True)
class Run:
    """Experts [first, first + count) of a layer, copied at once to the ring from `place` on.

    Nobody changes one. A frozen one takes several times as long to make, and a prompt's first copy
    waits until hundreds are made.
    """

    first: int
    count: int
    place: int


class Group(NamedTuple):
    """Records that are waited for together.

    Attributes:
        layer: the layer they belong to.
        experts: those that were missing, ascending.
        places: the ring's record of each of them.
        runs: the copies; they may bring a neighbour along that nobody asked for.
        after: groups [0, after) must be read to the end before this one is copied.
    """

    layer: int
    experts: tuple[int, ...]
    places: tuple[int, ...]
    runs: tuple[Run, ...]
    after: int


def coalesce(experts: Sequence[int], record_bytes: int, place: int = 0) -> tuple[Run, ...]:
    """Join ascending experts to runs, over gaps that cost less than a copy.

    The runs go to the ring from `place` on, one behind the other.
    """
    if not experts:
        return ()
    reach = _reach(record_bytes)
    runs: list[Run] = []
    first = last = experts[0]
    for expert in experts:
        if expert - last > reach:
            count = last + 1 - first
            runs.append(Run(first, count, place))
            first, place = expert, place + count
        last = expert
    runs.append(Run(first, last + 1 - first, place))
    return tuple(runs)


def _reach(record_bytes: int) -> int:
    """Return how far on an expert may lie that continues a run: 1 = only the next one."""
    return 1 + BRIDGE_BYTES // record_bytes


def plan_groups(
    missing: Sequence[Sequence[int]], record_bytes: int, ring_records: int, first_layer: int = 0
) -> tuple[Group, ...]:
    """Lay the missing experts of the layers from `first_layer` on out in a ring, from 2 records.

    A layer that fits into the ring lies there as a whole, in up to `MAX_GROUPS` groups, so that its
    first records are computed while its last ones are copied; two layers that fit together are
    there together. A larger layer passes in groups of half the ring.

    The experts of a layer ascend. A prompt's first copy waits for this, so that nothing is called
    for each expert.

    Returns: groups in the order of their copies; each missing expert is in exactly one.
    """
    if ring_records < 2:
        raise ValueError(f"a ring of {ring_records} records")
    groups: list[Group] = []
    until = [0] * ring_records  # of each place: groups [0, until) hold the last one that lies there
    head = 0
    for layer, experts in enumerate(missing, first_layer):
        offsets = _offsets(experts, record_bytes)
        pieces = _pieces(offsets, record_bytes, ring_records)
        together = sum(offsets[end - 1] + 1 - offsets[begin] for begin, end in pieces)
        if together <= ring_records < head + together:
            head = 0
        for begin, end in pieces:
            size = offsets[end - 1] + 1 - offsets[begin]
            if head + size > ring_records:
                head = 0
            shift, inside = head - offsets[begin], tuple(experts[begin:end])
            places = tuple([offset + shift for offset in offsets[begin:end]])
            runs = coalesce(inside, record_bytes, head)
            after = max(until[head : head + size])
            groups.append(Group(layer, inside, places, runs, after))
            until[head : head + size] = [len(groups)] * size
            head += size
    return tuple(groups)


def _offsets(experts: Sequence[int], record_bytes: int) -> Sequence[int]:
    """Return which record of a layer's runs, one behind the other, each expert's is."""
    reach = _reach(record_bytes)
    if reach == 1 or not experts:
        return range(len(experts))
    steps = [b - a if b - a <= reach else 1 for a, b in pairwise(experts)]
    return list(accumulate(steps, initial=0))


def _pieces(offsets: Sequence[int], record_bytes: int, ring_records: int) -> list[tuple[int, int]]:
    """Cut a layer into groups [begin, end) of about equal size; none begins or ends in a gap."""
    if not offsets:
        return []
    total = offsets[-1] + 1
    wanted = min(MAX_GROUPS, max(1, total * record_bytes // GROUP_BYTES))
    limit = -(-total // wanted)
    if total > ring_records:
        limit = min(limit, ring_records // 2)
    pieces: list[tuple[int, int]] = []
    begin = 0
    while begin < len(offsets):
        end = bisect_left(offsets, offsets[begin] + limit, begin)
        pieces.append((begin, end))
        begin = end
    return pieces


class Portion(NamedTuple):
    """Ranks [first, last) of a layer that become available together.

    `group` is the number of the group that brings them; None = they are resident.
    """

    first: int
    last: int
    group: int | None


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Where a layer's records lie, by rank: the order in which they become available.

    Attributes:
        experts: all E of them by rank: residents, then those of the ring, then those that lie
            nowhere, because nothing routes them.
        slots: slots of the first ranks.
        places: the ring's records of the ranks behind them.
        portions: what is computed at once; without the last kind.
    """

    experts: tuple[int, ...]
    slots: tuple[int, ...]
    places: tuple[int, ...]
    portions: tuple[Portion, ...]

    @property
    def num_available(self) -> int:
        """Ranks that lie somewhere."""
        return len(self.slots) + len(self.places)

    def place(self, rank: int) -> int | None:
        """Return the ring's record of a rank, None if it is not there."""
        place = rank - len(self.slots)
        return self.places[place] if 0 <= place < len(self.places) else None


def plan_layer(
    num_experts: int, resident: Mapping[int, int], groups: Sequence[tuple[int, Group]]
) -> LayerPlan:
    """Order a layer's experts by when they are there.

    `resident` is expert -> slot, `groups` the layer's groups with their numbers.
    """
    experts, places = [*resident], list[int]()
    portions = [Portion(0, len(experts), None)] if experts else []
    for number, group in groups:
        first = len(experts)
        experts += group.experts
        places += group.places
        portions.append(Portion(first, len(experts), number))
    nowhere: Sequence[int] = ()
    if len(experts) < num_experts:  # of a streamed layer all lie somewhere
        nowhere = sorted(set(range(num_experts)).difference(experts))
    return LayerPlan((*experts, *nowhere), tuple(resident.values()), tuple(places), tuple(portions))


def tile_bounds(num_tokens: int, tile_tokens: int) -> tuple[tuple[int, int], ...]:
    """Cut a chunk into tiles [begin, end) of about equal size, none longer than `tile_tokens`."""
    tiles = -(-num_tokens // tile_tokens)
    ends = [num_tokens * (i + 1) // tiles for i in range(tiles)]
    return tuple(zip([0, *ends], ends, strict=False))


@dataclass(frozen=True, slots=True)
class PrefillRates:
    """What the choice between streaming and demand loading rests on; measured while serving.

    Attributes:
        link: bytes/s from host memory to the device.
        sync_s: seconds that reading a layer's routes on the host costs.
        layer_s: seconds of one layer's own work on a short chunk, which hides copies only if they
            were started before it.
        variety: how different the routes of a text's tokens are; see `routed_share`.
    """

    link: float = 50e9
    sync_s: float = 60e-6
    layer_s: float = 300e-6
    variety: float = VARIETY

    def with_link(self, num_bytes: int, seconds: float) -> "PrefillRates":
        """Learn from copies of a pass."""
        if num_bytes <= 0 or seconds <= 0.0:
            return self
        return replace(self, link=_blend(self.link, num_bytes / seconds))

    def with_layer(self, seconds: float) -> "PrefillRates":
        """Learn from a layer's work without its copies."""
        return replace(self, layer_s=_blend(self.layer_s, seconds)) if seconds > 0.0 else self

    def with_routes(
        self, num_tokens: int, top_k: int, num_experts: int, share: float
    ) -> "PrefillRates":
        """Learn from the `share` of the missing experts that a chunk has routed.

        Nearly all says that variety is that or more, nearly none that it is that or less.
        """
        least, most = INFORMATIVE
        apart = _apart(num_tokens, top_k, num_experts)
        if not math.isfinite(apart):
            return self
        found = -math.log(1.0 - min(max(share, least), most)) / apart
        if (share > most and found < self.variety) or (share < least and found > self.variety):
            return self
        return replace(self, variety=_blend(self.variety, found))


def _blend(old: float, new: float) -> float:
    return old + LEARNING * (new - old)


def stream_seconds(missing_bytes: float, rates: PrefillRates) -> float:
    """Return a layer's time if all that is missing is streamed beside the layer before."""
    return max(missing_bytes / rates.link, rates.layer_s)


def demand_seconds(missing_bytes: float, share: float, rates: PrefillRates) -> float:
    """Return a layer's time if the routed `share` of what is missing is copied on demand."""
    return rates.layer_s + rates.sync_s + share * missing_bytes / rates.link


def routed_share(num_tokens: int, top_k: int, num_experts: int, variety: float) -> float:
    """Return which share of a layer's missing experts a chunk should route."""
    return 1.0 - math.exp(-variety * _apart(num_tokens, top_k, num_experts))


def _apart(num_tokens: int, top_k: int, num_experts: int) -> float:
    """Return how far an expert's chance of being left out falls, as minus its logarithm."""
    if top_k >= num_experts:
        return math.inf
    return float((-num_tokens * math.log(1.0 - top_k / num_experts)) ** KINSHIP)


def prefers_demand(
    num_tokens: int, top_k: int, num_experts: int, missing_bytes: float, rates: PrefillRates
) -> bool:
    """Choose for a chunk: load what is routed once it is known, instead of streaming all ahead.

    `missing_bytes` are those of a layer on average.
    """
    share = routed_share(num_tokens, top_k, num_experts, rates.variety)
    return demand_seconds(missing_bytes, share, rates) < stream_seconds(missing_bytes, rates)


def hotness(routes: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return how hot the experts of a prompt's last tokens are, hottest first.

    A route counts 1 at the last token and half of it every 16 tokens before. Equal ones: the lower
    expert first. Shapes: routes [W][K].
    """
    heat: dict[int, float] = {}
    for age, token in enumerate(reversed(routes)):
        weight = 0.5 ** (age / 16)
        for expert in token:
            heat[expert] = heat.get(expert, 0.0) + weight
    ascending = sorted(heat)  # equal ones stay in this order
    hottest_first = sorted(ascending, key=heat.__getitem__, reverse=True)
    return {expert: heat[expert] for expert in hottest_first}
