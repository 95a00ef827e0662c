"""One hash over every placement: `dev.py bench same`.

The same greedy reply of one model, through captured steps, for every combination of cache size,
miss policy, CPU threads, eviction rule and resizes in mid-reply (those without resizes have no
look-ahead either). After each layer of each step the
residual stream is mixed into a hash; the ids are those that the synthetic model is known to give.
One line a combination; exit code 1 if there is more than one hash, or a wrong id. `--unresized few`
halves them: all are resized, and for each number of threads one of each size is not, too.

The model has the layers of Qwen3-30B-A3B, few of them and fewer ids. All combinations share its
records, dense weights, keys and values; what belongs to one number of CPU threads is built anew.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from engine.cache.kv import KvPool
from engine.forward import PAGE_TOKENS
from engine.loader import captured
from engine.loader.captured import CapturedPlan, CapturedRequest, build_captured
from engine.loader.parts import LoadWatch
from engine.loader.step_kernels import StepKernels
from engine.loader.tools import OpenTools, card_tools
from engine.loader.way import choose_way
from engine.loader.weights import on_device, read_weights
from engine.models.base import ModelFamily, Parts
from engine.models.registry import get_family
from engine.models.spec import ModelSpec
from engine.moe.device_experts import DeviceExperts
from engine.moe.pool import ExpertPool
from engine.moe.side_switch import SwitchRules
from engine.protocol.messages import MissPolicy, Sampling
from engine.protocol.places import DataRoot
from engine.runner.model_runner import ModelRunner
from engine.runner.work import RowWork
from engine.settings import EngineSettings
from engine.system import usable_cores
from kernels.cpu import expert_obstacle
from kernels.cpu.topology import default_cpus
from kernels.cuda.moe_state import MoeCounts, MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Eviction
from kernels.cuda.step import DecodeStep
from kernels.cuda.tools import Tools
from kernels.device.base import Device
from kernels.device.registry import open_device
from kernels.weights import DenseWeight
from tests.perf.client import BenchError
from tests.perf.memory_engine import MemoryReader
from tests.perf.serve import first_device, run
from tests.perf.synthetic import write_folder
from tests.perf.synthetic_weights import TINY, Shape
from tests.perf.tables import describe, machine
from tests.perf.walk import RingWalk

BASE = Shape(layers=6, vocab=16_384)
START = 1000  # of the prompt
RESIZES = (0.5, 2.0, 0.25, 1.0)  # of the combination's slots, evenly spread over the reply
MOST_STEPS = SwitchRules().first_serve_steps  # from then on the engine tries other policies
GREEDY = Sampling(temperature=0.0)
QUIET = LoadWatch(lambda *_: None, lambda: False)
HASH = MoeCounts._fields.index("hash")


class Case(NamedTuple):
    """A combination."""

    threads: int
    share: float
    policy: MissPolicy
    eviction: Eviction
    resizes: bool


class Outcome(NamedTuple):
    """What a combination gave.

    Attributes:
        hash: of the residual stream.
        right, tokens: of the reply's ids.
        hits: share of the units that lay in slots, in the reply.
        link_share: of the units that did not, over the link; None if there were none.
    """

    hash: int
    right: int
    tokens: int
    hits: float
    link_share: float | None


@dataclass(frozen=True, slots=True)
class Task:
    """The reply that all give: to a prompt read token by token, or as one chunk."""

    prompt: tuple[int, ...]
    tokens: int
    by_chunk: bool
    judge: Callable[[Sequence[int]], int]

    @classmethod
    def on_ring(cls, vocab: int, prompt: int, tokens: int, by_chunk: bool) -> "Task":
        """Return the task over a synthetic model."""
        walk = RingWalk(vocab)
        ids = tuple(int(word[1:]) for word in walk.prompt(START, prompt).split())

        def judge(reply: Sequence[int]) -> int:
            return walk.judge(START, prompt, " ".join(f"t{token}" for token in reply))[0]

        return cls(ids, tokens, by_chunk, judge)


@dataclass(frozen=True, slots=True)
class Model:
    """What all combinations share."""

    spec: ModelSpec
    family: ModelFamily
    plan: CapturedPlan
    weight: Callable[[str], DenseWeight]
    pool: ExpertPool
    kv: KvPool
    device: Device
    tools: Tools


class Serving:
    """The model behind one number of CPU threads."""

    def __init__(self, model: Model, experts: DeviceExperts, runner: ModelRunner) -> None:
        self._model, self._experts, self._runner = model, experts, runner
        self._state: MoeState = experts._parts.state  # counters and eviction rule

    def reply(self, case: Case, task: Task) -> Outcome:
        """Give the reply from an empty cache."""
        slots = max(1, round(case.share * self._model.pool.num_records))
        self._empty()
        self._experts.resize(slots)
        self._state.counters[HASH] = 0
        self._runner.open_row(0, GREEDY, 0, task.prompt)
        try:
            # A cache that the link does not fill would stay empty.
            fills = case.policy is MissPolicy.CPU_ONLY
            self._serve(case, MissPolicy.FILL_ONLY if fills else case.policy)
            ids = [self._read(task)]
            self._serve(case, case.policy)
            before = self._state.counts()
            ids += self._decode(case, task, slots)
        finally:
            self._runner.close_row(0)
        after = self._state.counts()
        hits, link, cpu = (
            getattr(after, name) - getattr(before, name)
            for name in ("hit_units", "link_units", "cpu_units")
        )
        return Outcome(
            hash=after.hash % (1 << 64),
            right=task.judge(ids),
            tokens=len(ids),
            hits=hits / max(1, hits + link + cpu),
            link_share=link / (link + cpu) if link + cpu else None,
        )

    def _read(self, task: Task) -> int:
        """Read the prompt; returns the reply's first id."""
        last, pages = len(task.prompt) - 1, self._pages
        if task.by_chunk:
            work = RowWork(0, task.prompt, 0, pages, sample=True)
            return self._runner.launch("prefill", [work]).wait()[0]
        ids: tuple[int, ...] = ()
        for place, token in enumerate(task.prompt):
            work = RowWork(0, (token,), place, pages, sample=place == last)
            ids = self._runner.launch("decode", [work]).wait()
        return ids[0]

    def _decode(self, case: Case, task: Task, slots: int) -> list[int]:
        """Return the ids behind the first one."""
        ids: list[int] = []
        every = task.tokens // (len(RESIZES) + 1)
        for step in range(1, task.tokens):
            turn, rest = divmod(step, every)
            if case.resizes and not rest and 1 <= turn <= len(RESIZES):
                wished = round(RESIZES[turn - 1] * slots)
                self._experts.resize(min(max(1, wished), self._experts.max_slots))
            place = len(task.prompt) + step - 1
            work = RowWork(0, (), place, self._pages, sample=True)
            ids += self._runner.launch("decode", [work]).wait()
        return ids

    @property
    def _pages(self) -> tuple[int, ...]:
        return tuple(range(self._model.kv.num_pages))

    def _serve(self, case: Case, policy: MissPolicy) -> None:
        self._experts.set_policy(policy)
        here = replace(self._state.policy, eviction=case.eviction, look_ahead=case.resizes)
        self._state.set_policy(here)

    def _empty(self) -> None:
        """Forget what lies in slots and who was used."""
        self._model.device.synchronize()
        tables = self._state.snapshot()
        tables.slot_of.fill(NO_SLOT)
        tables.owner.fill(FREE)
        for table in (tables.valid, tables.score, tables.stamp):
            table.fill(0)
        self._state.install(tables)


def main(arguments: list[str] | None = None, open_tools: OpenTools = card_tools) -> int:
    """Run all combinations and print; returns 1 if they differ or an id is wrong.

    `open_tools` says what the device offers for captured steps.
    Raises: BenchError where this machine cannot run them all.
    """
    options = _parser().parse_args(arguments)
    _check(options)
    start_s = time.perf_counter()
    shape = replace(TINY if options.tiny else BASE, encoding=options.encoding)
    shape = replace(shape, layers=options.layers or shape.layers)
    task = Task.on_ring(shape.vocab, options.prompt, options.tokens, options.chunk)
    cases = cases_of(options)
    print(
        f"same: {shape.layers} layers, {shape.encoding}, prompt {options.prompt} as "
        f"{'one chunk' if options.chunk else 'steps'}, {options.tokens} tokens, "
        f"resized {len(RESIZES)} times on the way\n{describe(machine())}",
        flush=True,
    )
    outcomes = []
    with ExitStack() as stack:
        model = open_model(shape, options, open_tools, stack)
        for threads in options.threads:
            with serving(model, threads) as served:
                for case in cases:
                    if case.threads == threads:
                        outcomes.append(served.reply(case, task))
                        print(line(case, outcomes[-1]), flush=True)
    verdict, code = judged(outcomes)
    print(f"{verdict}, {time.perf_counter() - start_s:.0f} s")
    return code


def cases_of(options: argparse.Namespace) -> list[Case]:
    """Return the combinations, by number of threads."""
    wholes = product(options.threads, options.shares, options.policies, Eviction, (False, True))
    cases = [Case(*one) for one in wholes]
    if options.unresized == "all":
        return cases
    few = (options.policies[0], next(iter(Eviction)))
    return [case for case in cases if case.resizes or (case.policy, case.eviction) == few]


def line(case: Case, outcome: Outcome) -> str:
    """Return a combination in one line."""
    link_share = "   -" if outcome.link_share is None else f"{outcome.link_share:4.2f}"
    return (
        f"{case.share:7.2%}  {case.policy:<9}  threads {case.threads:<2}  "
        f"{case.eviction.name.lower():<9}  {'resizes' if case.resizes else '-':<7}  "
        f"{outcome.hash:016x}  ids {outcome.right}/{outcome.tokens}  hit {outcome.hits:6.1%}  "
        f"q {link_share}"
    )


def judged(outcomes: Sequence[Outcome]) -> tuple[str, int]:
    """Return the last line, and the exit code. A hash of 0 is none."""
    hashes = {outcome.hash for outcome in outcomes}
    wrong = sum(outcome.right < outcome.tokens for outcome in outcomes)
    found = "1 hash" if len(hashes) == 1 else f"{len(hashes)} hashes"
    replies = f"{wrong} wrong replies" if wrong else "every id right"
    is_same = len(hashes) == 1 and 0 not in hashes
    return f"{len(outcomes)} combinations, {found}, {replies}", int(not is_same or wrong > 0)


def open_model(
    shape: Shape, options: argparse.Namespace, open_tools: OpenTools, stack: ExitStack
) -> Model:
    """Make the model in memory; `stack` learns how to free it.

    Raises: BenchError where its steps cannot be captured, or a side of the misses is missing.
    """
    temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    folder = write_folder(temporary / "model", shape, threads=usable_cores(), in_memory=True)
    reader = MemoryReader(folder)
    device = open_device(options.device or first_device())
    stack.callback(device.close)
    tools, obstacle = open_tools(device, EngineSettings(home=DataRoot(options.home or temporary)))
    family = get_family(reader.model_type)
    spec = family.read_config(reader.config)
    way = choose_way(reader, family, spec, obstacle, max_rows=1)
    if way.captured is None or tools is None:
        raise BenchError(f"Steps cannot be captured: {way.reason}.")
    buffer = device.host_buffer(reader.pool_bytes)
    stack.callback(buffer.close)
    if not buffer.pinned:
        raise BenchError(f"The device cannot read missing experts. {buffer.reason}")
    pool = ExpertPool(reader.layout, reader.num_moe_layers, reader.num_experts, buffer)
    reader.read_pool(pool.storage, lambda *_: None, lambda: False)
    pages = -(-(options.prompt + options.tokens) // PAGE_TOKENS)
    kv = KvPool(spec.num_layers, spec.num_kv_heads, spec.head_dim, way.dtype, device, pages, pages)
    stack.callback(kv.close)
    weight = on_device(read_weights(reader, QUIET), device)
    return Model(spec, family, way.captured, weight, pool, kv, device, tools)


@contextmanager
def serving(model: Model, threads: int) -> Iterator[Serving]:
    """Build what captured steps need, with so many CPU threads, and steps that hash."""
    request = CapturedRequest(
        plan=model.plan,
        spec=model.spec,
        pool=model.pool,
        kv=model.kv,
        device=model.device,
        tools=model.tools,
        kernels=StepKernels(model.tools, model.plan.for_rows),
        num_slots=1,
        staging_records=2 * model.pool.num_experts,
        policy=MissPolicy.TWO_ENDED,
        rates=None,
        num_threads=threads,
    )

    with ExitStack() as stack:
        stack.callback(request.kernels.close)
        with mock.patch.object(captured, "DecodeStep", partial(DecodeStep, with_hash=True)):
            experts, program = build_captured(request, model.family, model.weight, stack)
        parts = Parts(model.device.torch_device, model.kv.dtype, model.kv, experts)
        body = model.family.build(model.spec, model.weight, parts)
        runner = ModelRunner(body, model.kv, model.device, 1, program)
        stack.callback(runner.close)
        yield Serving(model, experts, runner)


def _check(options: argparse.Namespace) -> None:
    """Raise BenchError for what this machine or the engine cannot do."""
    if obstacle := expert_obstacle():
        raise BenchError(f"No CPU threads can compute missing experts: {obstacle}.")
    cpus = len(default_cpus(max(options.threads)).cpus)
    if cpus < max(options.threads):
        raise BenchError(f"{max(options.threads)} threads were asked for; there are {cpus} CPUs.")
    if options.prompt + options.tokens > MOST_STEPS:
        raise BenchError(f"Prompt and reply may have {MOST_STEPS} tokens together.")
    if options.prompt < 1 or options.tokens <= len(RESIZES):
        raise BenchError(f"A prompt has a token, and a reply more than {len(RESIZES)}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=0, help=f"{BASE.layers} if not given")
    parser.add_argument("--tokens", type=int, default=256, help="of the reply")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--chunk", action="store_true", help="read the prompt as one chunk")
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 8, 12], help="of the CPU")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument(
        "--policies", type=MissPolicy, nargs="+", default=list(MissPolicy), choices=list(MissPolicy)
    )
    parser.add_argument(
        "--unresized", choices=["all", "few"], default="all", help="replies without resizes"
    )
    parser.add_argument("--encoding", choices=["bf16", "fp8_block"], default="bf16")
    parser.add_argument("--device", default="", help="the first GPU, else the CPU")
    parser.add_argument("--home", type=Path, help="keeps compiled kernels; else a temporary one")
    parser.add_argument("--tiny", action="store_true", help="the shape of the tests")
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
