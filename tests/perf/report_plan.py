"""What a report measures, in which order, and how long each row should take.

Arithmetic only. A task is the smallest thing that is run or left out: mostly one row of a table.
Tasks of one engine process follow each other, because a load costs more than most rows; otherwise
they come in the order of `SECTIONS`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from engine.protocol.messages import MissPolicy
from tests.perf.serve import DEFAULT_POLICY
from tests.perf.serve_decode import LEAD_TOKENS, WARM_TOKENS
from tests.perf.switched_engine import WAYS

SECTIONS = {
    "probe": "what this machine can do at best",
    "decode": "decode, BF16, one reply",
    "same": "one hash over every placement",
    "threads": "policies by CPU threads",
    "prefill": "seconds to the first token",
    "batch": "decode of several replies at once",
    "suffix": "short turns, missing experts streamed or loaded on demand",
    "resize": "a part of the pool changes hands during a reply",
    "fp8": "decode, FP8, one reply",
    "deep": "decode, BF16, all layers",
    "pool": "CPU kernels beside a loop that only reads",
    "load": "reading a model",
}
"""By value: what comes first is measured first."""

BF16, FP8, DEEP, DISK = "bf16", "fp8", "deep", "disk"
"""Models; see `report_engine.MODELS`."""

NEEDS_PROBE = frozenset({"decode", "threads", "prefill", "batch", "suffix", "fp8", "deep"})
POLICIES = (DEFAULT_POLICY, *(str(policy) for policy in MissPolicy))


@dataclass(frozen=True, slots=True)
class Session:
    """An engine process: tasks with equal ones share it.

    Attributes:
        model: what it loads.
        threads: of the CPU; 0 = the engine's choice.
        chunk: tokens of a prompt's chunk; 0 = the engine's choice.
        reuse: a prompt begins with what the last one left.
    """

    model: str
    threads: int = 0
    chunk: int = 0
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One row, or the rows that can only be had together.

    Attributes:
        section, key: name it.
        seconds: how long it should take, without the load of its engine.
        session: None if it needs no engine of ours.
        facts: what its row is about; they become the row's first columns.
    """

    section: str
    key: str
    seconds: float
    session: Session | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Replies(NamedTuple):
    """How a row of decode is measured.

    Attributes:
        warm_up: replies of WARM_TOKENS before those that count. 0 = one reply is cut into what
            counts, behind its first LEAD_TOKENS: its prompt is read once.
        repeats, tokens: replies, or stretches of the one, and how long each is.
    """

    warm_up: int
    repeats: int
    tokens: int

    @property
    def lengths(self) -> list[int]:
        """Tokens of each reply, those that warm up first."""
        if not self.warm_up:
            return [LEAD_TOKENS + self.repeats * self.tokens]
        return [WARM_TOKENS] * self.warm_up + [self.tokens] * self.repeats

    @property
    def words(self) -> str:
        """How it is said under a table's title."""
        if self.warm_up:
            behind = f"behind {self.warm_up} of {WARM_TOKENS}"
            return f"median of {self.repeats} replies of {self.tokens} tokens {behind}"
        parts = f"median of {self.repeats} x " if self.repeats > 1 else ""
        return (
            f"{parts}{self.tokens} tokens of a reply behind its first {LEAD_TOKENS}; "
            "shares and limit of all of it"
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. The defaults are for a card; see `TINY_SIZES`."""

    is_tiny: bool = False
    shares: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)
    prompt: int = 512
    tokens: int = 192
    repeats: int = 3
    batches: tuple[int, ...] = (2, 4, 8)
    threads: tuple[int, ...] = (0, 4, 8, 12)
    policy_shares: tuple[float, ...] = (0.125, 0.25, 0.5)
    stretch: int = 64
    prompts: tuple[int, ...] = (512, 4096, 16384, 32768)
    prompt_repeats: int = 2
    chunk: int = 2048
    prefix: int = 4096
    turns: tuple[int, ...] = (64, 256, 1024)
    turn_repeats: int = 3
    resizes: int = 20
    every: int = 12
    same_threads: tuple[int, ...] = (4, 8, 12)
    pool_threads: tuple[int, ...] = (4, 8, 12, 0)

    def replies(self, section: str) -> Replies:
        """Return how a row of decode is measured."""
        match section:
            case "batch":
                return Replies(0, 1, self.tokens)
            case "threads" | "deep":
                return Replies(0, self.repeats, self.stretch)
        return Replies(1 if self.is_tiny else 2, self.repeats, self.tokens)

    def words(self, section: str) -> str:
        """Return what a row of an engine's section is made of."""
        match section:
            case "prefill":
                return f"median of {self.prompt_repeats} prompts behind one that warms up"
            case "suffix":
                return f"median of {self.turn_repeats} turns, each behind {self.prefix} new tokens"
            case "resize":
                return f"{self.resizes} times in one reply, {self.every} tokens apart"
        return self.replies(section).words


TINY_SIZES = Sizes(
    is_tiny=True,
    shares=(0.25, 1.0),
    prompt=32,
    tokens=12,
    repeats=2,
    batches=(2,),
    threads=(0, 1),
    policy_shares=(0.25,),
    stretch=6,
    prompts=(24, 48),
    prompt_repeats=1,
    chunk=16,
    prefix=64,
    turns=(8,),
    turn_repeats=2,
    resizes=4,
    every=2,
    same_threads=(1,),
    pool_threads=(1,),
)
"""For a machine without a card: every section, no figure worth keeping."""


class Costs:
    """Seconds on an H200 with 16 cores, from what was measured there.

    A step: 1.5 ms of the card, then the missed bytes at what link and CPU bring together. A prompt:
    the missing experts once over the link, or its own arithmetic. On a machine of another speed
    `Budget` scales them by what the first rows took.
    """

    STEP_S = 1.5e-3
    MISSED = {0.125: 0.565, 0.25: 0.377, 0.5: 0.185, 1.0: 0.005}  # share of the routed bytes
    TOKEN_GB, POOL_GB = 1.81, 29.0
    LINK, MEMORY, PER_THREAD = 50.0, 130.0, 6.0  # GB/s
    PROMPT_RATE = 20_000.0  # tokens/s
    REPLY_S = 0.05
    SCALE = {BF16: 1.0, FP8: 0.55, DEEP: 2.0, DISK: 0.25}
    MAKE_S = {BF16: 14.0, FP8: 9.0, DEEP: 5.0, DISK: 12.0}
    LOAD_S = {BF16: 17.0, FP8: 11.0, DEEP: 35.0, DISK: 6.0}
    PROBE_S, LINKS_S = 21.0, 15.0
    POOL_START_S, POOL_S = 6.0, 2.0  # and by number of threads
    SAME_START_S, SAME_BUILD_S, SAME_REPLY_S = 16.0, 3.0, 0.1  # and by number of threads, by reply
    SAME_STEPS, SAME_SCALE = 64 + 256, 0.32  # 6 of 24 layers, each with its hash

    def __init__(self, is_tiny: bool = False) -> None:
        self._tiny = is_tiny

    def make(self, model: str) -> float:
        """Of a model's folder."""
        return 0.5 if self._tiny else self.MAKE_S[model]

    def load(self, session: Session) -> float:
        """Of an engine, until its model is there."""
        return 4.0 if self._tiny else self.LOAD_S[session.model]

    def links(self) -> float:
        """Of the rates that the policy `split` goes by."""
        return 0.0 if self._tiny else self.LINKS_S

    def fixed(self, seconds: float) -> float:
        """Of what knows neither model nor reply."""
        return 3.0 if self._tiny else seconds

    def step(
        self, share: float, batch: int = 1, policy: str = "", threads: int = 0, scale: float = 1.0
    ) -> float:
        """Of one decode step."""
        cpu = min(75.0, self.PER_THREAD * (threads or 15))
        both = min(self.MEMORY, self.LINK + cpu)
        alone = {str(MissPolicy.FILL_ONLY): self.LINK, str(MissPolicy.CPU_ONLY): cpu}
        rate = alone.get(policy, both)
        missed = self.MISSED[share] * self.TOKEN_GB * float(batch**0.85)
        return scale * (self.STEP_S + missed / rate)

    def prompt(self, tokens: int, share: float, chunk: int = 0, scale: float = 1.0) -> float:
        """Until a prompt's first token."""
        passes = -(-tokens // chunk) if chunk else 1
        link = passes * (1.0 - share) * self.POOL_GB / self.LINK
        return self.REPLY_S + scale * max(link, tokens / self.PROMPT_RATE)

    def replies(
        self, sizes: Sizes, share: float, lengths: Sequence[int], batch: int = 1, **step: Any
    ) -> float:
        """Of replies of these lengths to the usual prompt, `batch` at a time."""
        if self._tiny:
            return 1.0
        scale = step.get("scale", 1.0)
        prompts = len(lengths) * batch * self.prompt(sizes.prompt, share, scale=scale)
        return prompts + sum(lengths) * self.step(share, batch, **step)

    def fill(self, sizes: Sizes, share: float, scale: float = 1.0) -> float:
        """Of the reply that fills a cache of another size before its first row."""
        return 0.0 if self._tiny else self.replies(sizes, share, [WARM_TOKENS], scale=scale)

    def prompts(self, count: int, tokens: int, share: float, chunk: int = 0) -> float:
        """Of prompts of one length."""
        return 0.5 if self._tiny else count * self.prompt(tokens, share, chunk)

    def same(self, threads: int) -> float:
        """Of all combinations of one number of CPU threads."""
        whole = 0.0
        for share, policy in product(self.MISSED, MissPolicy):
            count = 3 if policy is MissPolicy.TWO_ENDED else 2  # rules, and once without resizes
            step = self.step(share, 1, policy, threads, self.SAME_SCALE)
            whole += count * (self.SAME_REPLY_S + self.SAME_STEPS * step)
        return self.SAME_BUILD_S + whole


def plan(names: Iterable[str], sizes: Sizes, costs: Costs) -> list[Task]:
    """Return the tasks of these sections in the order in which they run."""
    wanted = [name for name in SECTIONS if name in set(names)]
    if "probe" not in wanted and NEEDS_PROBE.intersection(wanted):
        wanted.insert(0, "probe")
    tasks = [task for name in wanted for task in _MAKERS[name](sizes, costs)]
    first: dict[Any, int] = {}
    for place, task in enumerate(tasks):
        first.setdefault(_engine_of(task), place)
    return sorted(tasks, key=lambda task: first[_engine_of(task)])  # stable within an engine


def groups(tasks: Sequence[Task]) -> Iterator[tuple[Session | None, list[Task]]]:
    """Yield the tasks by engine, those without one alone."""
    group: list[Task] = []
    for task in tasks:
        if group and (task.session is None or task.session != group[0].session):
            yield group[0].session, group
            group = []
        group.append(task)
    if group:
        yield group[0].session, group


def needs_links(tasks: Iterable[Task]) -> bool:
    """Return whether a task needs the rates that the policy `split` goes by."""
    return any(task.facts.get("policy") == MissPolicy.SPLIT for task in tasks)


def _engine_of(task: Task) -> Any:
    return task.session or task.section


def _decode(section: str, model: str, sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths, scale = sizes.replies(section).lengths, costs.SCALE[model]
    for share in sizes.shares:
        seconds = costs.fill(sizes, share, scale)
        seconds += costs.replies(sizes, share, lengths, scale=scale)
        yield Task(section, f"{share}", seconds, Session(model), {"share": share})


def _batch(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = sizes.replies("batch").lengths
    for share in sizes.shares:
        for batch in sizes.batches:
            seconds = costs.replies(sizes, share, lengths, batch)
            if batch == sizes.batches[0]:
                seconds += costs.fill(sizes, share)
            facts = {"share": share, "batch": batch}
            yield Task("batch", f"{share} {batch}", seconds, Session(BF16), facts)


def _threads(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = sizes.replies("threads").lengths
    for threads in sizes.threads:
        for share in sizes.policy_shares:
            for policy in POLICIES:
                seconds = costs.replies(sizes, share, lengths, policy=policy, threads=threads)
                if policy == POLICIES[0]:
                    seconds += costs.fill(sizes, share)
                facts = {"threads": threads, "share": share, "policy": policy}
                key = f"{threads} {share} {policy}"
                yield Task("threads", key, seconds, Session(BF16, threads), facts)


def _prefill(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    for chunk, share, tokens in product((0, sizes.chunk), sizes.shares, sizes.prompts):
        if chunk and tokens <= chunk:
            continue  # one chunk either way
        is_known = chunk and share != sizes.shares[0]  # its chunks, and how long the text may get
        warm_up = min(tokens, 2 * chunk) if is_known else tokens
        seconds = costs.prompts(sizes.prompt_repeats, tokens, share, chunk)
        seconds += costs.prompts(1, warm_up, share, chunk)
        facts = {"chunk": chunk, "share": share, "prompt": tokens, "warm up": warm_up}
        session = Session(BF16, chunk=chunk)
        yield Task("prefill", f"{chunk} {share} {tokens}", seconds, session, facts)


def _suffix(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    for share in sizes.policy_shares:
        for tokens in sizes.turns:
            for way in WAYS:
                seconds = costs.prompts(sizes.turn_repeats, sizes.prefix, share)
                seconds += costs.prompts(sizes.turn_repeats, tokens, share)
                facts = {"share": share, "prompt": tokens, "way": way}
                session = Session(BF16, reuse=True)
                yield Task("suffix", f"{share} {tokens} {way}", seconds, session, facts)


def _resize(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = [(sizes.resizes + 2) * sizes.every] * 2
    yield Task("resize", "all", 2.0 + costs.replies(sizes, 0.25, lengths), Session(BF16))


def _same(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    seconds = costs.SAME_START_S + sum(map(costs.same, sizes.same_threads))
    yield Task("same", "all", costs.fixed(seconds), None, {"counts": sizes.same_threads})


def _pool(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    seconds = costs.POOL_START_S + len(sizes.pool_threads) * costs.POOL_S
    for encoding in ("bf16", "fp8"):
        facts = {"format": encoding, "counts": sizes.pool_threads}
        yield Task("pool", encoding, costs.fixed(seconds), None, facts)


def _load(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    for source, reads in (("disk", 2), ("page cache", 1)):
        session = Session(DISK)
        seconds = costs.load(session) * (1 + reads)
        yield Task("load", source, seconds, None, {"from": source})


_MAKERS = {
    "probe": lambda sizes, costs: [Task("probe", "probe", costs.fixed(costs.PROBE_S))],
    "decode": lambda sizes, costs: _decode("decode", BF16, sizes, costs),
    "fp8": lambda sizes, costs: _decode("fp8", FP8, sizes, costs),
    "deep": lambda sizes, costs: _decode("deep", DEEP, sizes, costs),
    "batch": _batch,
    "threads": _threads,
    "prefill": _prefill,
    "suffix": _suffix,
    "resize": _resize,
    "same": _same,
    "pool": _pool,
    "load": _load,
}
