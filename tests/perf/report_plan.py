"""What a report measures, in which order, and how long each row should take.

Arithmetic only. A task is the smallest thing that is run or left out: mostly one row of a table.
Tasks of one engine process follow each other, because a load costs more than most rows; otherwise
they come in the order of `SECTIONS`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from engine.protocol.messages import MissPolicy
from tests.perf.serve import DEFAULT_POLICY
from tests.perf.serve_decode import WARM_TOKENS
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
    policy_tokens: int = 96
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

    def replies(self, section: str) -> tuple[int, int, int]:
        """Return a row's replies that warm up, those that count, and the tokens of the latter."""
        match section:
            case "batch":
                return 1, 1, self.tokens
            case "threads":
                return 1, self.repeats, self.policy_tokens
        return 1 if self.is_tiny else 2, self.repeats, self.tokens

    def lengths(self, section: str) -> list[int]:
        """Return the tokens of each reply of a row."""
        warm_up, repeats, tokens = self.replies(section)
        return [WARM_TOKENS] * warm_up + [tokens] * repeats


TINY_SIZES = Sizes(
    is_tiny=True,
    shares=(0.25, 1.0),
    prompt=32,
    tokens=12,
    repeats=2,
    batches=(2,),
    threads=(0, 1),
    policy_shares=(0.25,),
    policy_tokens=6,
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
    PROBE_S, LINKS_S, POOL_S, SAME_S, SAME_START_S = 55.0, 15.0, 10.0, 1.4, 16.0

    def __init__(self, is_tiny: bool = False) -> None:
        self._tiny = is_tiny

    def make(self, model: str) -> float:
        """Of a model's folder."""
        return 0.5 if self._tiny else self.MAKE_S[model]

    def load(self, session: Session) -> float:
        """Of an engine, until its model is there."""
        return 4.0 if self._tiny else self.LOAD_S[session.model]

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

    def prompts(self, count: int, tokens: int, share: float, chunk: int = 0) -> float:
        """Of prompts of one length."""
        return 0.5 if self._tiny else count * self.prompt(tokens, share, chunk)


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


def _engine_of(task: Task) -> Any:
    return task.session or task.section


def _decode(section: str, model: str, sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = sizes.lengths(section)
    for share in sizes.shares:
        seconds = costs.replies(sizes, share, lengths, scale=costs.SCALE[model])
        yield Task(section, f"{share}", seconds, Session(model), {"share": share})


def _batch(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = sizes.lengths("batch")
    for share in sizes.shares:
        for batch in sizes.batches:
            seconds = costs.replies(sizes, share, lengths, batch)
            facts = {"share": share, "batch": batch}
            yield Task("batch", f"{share} {batch}", seconds, Session(BF16), facts)


def _threads(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    lengths = sizes.lengths("threads")
    for threads in sizes.threads:
        for share in sizes.policy_shares:
            for policy in POLICIES:
                seconds = costs.replies(sizes, share, lengths, policy=policy, threads=threads)
                facts = {"threads": threads, "share": share, "policy": policy}
                key = f"{threads} {share} {policy}"
                yield Task("threads", key, seconds, Session(BF16, threads), facts)


def _prefill(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    for chunk, share, tokens in product((0, sizes.chunk), sizes.shares, sizes.prompts):
        if chunk and tokens <= chunk:
            continue  # one chunk either way
        seconds = costs.prompts(sizes.prompt_repeats + 1, tokens, share, chunk)
        facts = {"chunk": chunk, "share": share, "prompt": tokens}
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
    seconds = costs.SAME_START_S + 4 * 4 * 2 * 2 * costs.SAME_S
    for threads in sizes.same_threads:
        yield Task("same", f"{threads}", costs.fixed(seconds), None, {"threads": threads})


def _pool(sizes: Sizes, costs: Costs) -> Iterator[Task]:
    for encoding in ("bf16", "fp8"):
        for threads in sizes.pool_threads:
            facts = {"format": encoding, "threads": threads}
            yield Task("pool", f"{encoding} {threads}", costs.fixed(costs.POOL_S), None, facts)


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
