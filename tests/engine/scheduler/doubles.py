"""A runner that needs no model: it stores tokens in pages and reads them back to choose the next.

So a wrong page, a wrong position or a lost token changes the reply. As keys and values do, what a
slot holds depends on everything before it; each step checks that its pages hold its own sequence.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from engine.cache.pages import PageAllocator
from engine.protocol.messages import FinishReason, Sampling
from engine.runner.work import RowWork
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.seams import Limits, Surroundings
from engine.scheduler.tally import Counts, Timing

PAGE = 16


def reply_of(prompt, count, seed=0):
    """The ids that a correct run must give."""
    sequence = list(prompt)
    for _ in range(count):
        sequence.append(next_id(sequence, seed))
    return sequence[len(prompt) :]


def next_id(sequence, seed):
    value = seed
    for token in sequence:
        value = (value * 31 + token + 7) % 65521
    return value % 997 + 3


class FakeMemory:
    """Pages of (token id, hash of the sequence up to it); resizes like KvPool."""

    def __init__(self, num_pages):
        self.pages = [[None] * PAGE for _ in range(num_pages)]
        self.refuse = False

    def resize(self, num_pages, moves=()):
        for source, target in moves:
            self.pages[target] = list(self.pages[source])
        if self.refuse:
            raise MemoryError("refused")
        del self.pages[num_pages:]
        while len(self.pages) < num_pages:
            self.pages.append([None] * PAGE)


class Handle:
    def __init__(self, work, problem=None):
        self._work = work
        self._problem = problem
        self.ids = None

    def run(self):
        self.ids = tuple(self._work())

    def wait(self):
        if self._problem is not None:
            raise self._problem
        return self.ids


class LateHandle(Handle):
    """Runs as late as a device may: when its ids, or those of a later step, are waited for."""

    def __init__(self, queue, work, problem):
        super().__init__(work, problem)
        self._queue = queue
        queue.append(self)

    def wait(self):
        while self.ids is None:
            self._queue.popleft().run()
        return super().wait()


@dataclass
class FakeRunner:
    """Computes at launch; with latency 1 as late as possible."""

    memory: FakeMemory
    latency: Literal[0, 1] = 0
    launches: list = field(default_factory=list)
    faults: deque = field(default_factory=deque)  # exception or None per launch
    wait_faults: deque = field(default_factory=deque)
    open_faults: deque = field(default_factory=deque)
    rows: dict = field(default_factory=dict)
    queue: deque = field(default_factory=deque)
    failed: bool = False  # a test asked for a failing step
    wrong: list = field(default_factory=list)  # steps that read what another sequence left
    most_rows: int = 0
    decoded: int = 0  # rows of decode steps that have run

    def open_row(self, row, sampling, seed, prompt_ids):
        assert row not in self.rows
        if fault := self.open_faults.popleft() if self.open_faults else None:
            raise fault
        self.rows[row] = {"seed": seed, "last": None, "ids": list(prompt_ids), "broken": False}
        self.most_rows = max(self.most_rows, len(self.rows))

    def close_row(self, row):
        self.rows.pop(row, None)

    def launch(self, phase, works):
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            raise fault
        self.launches.append((phase, tuple(works)))
        assert phase == "decode" or len(works) == 1
        assert len({work.row for work in works}) == len(works)
        problem = self.wait_faults.popleft() if self.wait_faults else None

        def compute():
            self.decoded += len(works) if phase == "decode" else 0
            return [token for work in works for token in self._one(work, problem is not None)]

        if self.latency:
            return LateHandle(self.queue, compute, problem)
        handle = Handle(compute, problem)
        handle.run()
        return handle

    def _one(self, work: RowWork, is_bad: bool):
        state = self.rows[work.row]
        state["broken"] |= is_bad
        tokens = work.tokens or (state["last"],)
        for position, token in enumerate(tokens, work.start):
            before = self._slot(work, position - 1)[1] if position else 0
            slot = (token, None if is_bad else hash((before, token)))
            self.memory.pages[work.pages[position // PAGE]][position % PAGE] = slot
        read = [self._slot(work, position) for position in range(work.start + len(tokens))]
        self._check(work, state, read)
        if not work.sample:
            return []
        state["last"] = next_id([token for token, _ in read], state["seed"])
        state["ids"].append(state["last"])
        return [state["last"]]

    def _slot(self, work, position):
        return self.memory.pages[work.pages[position // PAGE]][position % PAGE] or (None, None)

    def _check(self, work, state, read):
        """Compare what a step read with the sequence of its row."""
        wanted, before = [], 0
        for token in state["ids"][: len(read)]:
            before = hash((before, token))
            wanted.append((token, before))
        if read != wanted and not state["broken"]:
            self.wrong.append(work)


class FakeSink:
    """Writes down what happened; ends a reply at `eos`."""

    def __init__(self, eos=None):
        self.eos = eos
        self.starts = []
        self.tokens = {}
        self.ends = {}
        self.problems = {}

    def started(self, request):
        self.starts.append(request.id)

    def token(self, request, token_id):
        assert request.id not in self.ends, "a token after the end"
        self.tokens.setdefault(request.id, []).append(token_id)
        return token_id == self.eos

    def finished(self, request, reason, problem):
        assert request.id not in self.ends, "finished twice"
        self.ends[request.id] = reason
        self.problems[request.id] = problem


class Clock:
    """A clock that the test moves; each reading takes a little."""

    def __init__(self, tick=0.0):
        self.now = 0.0
        self.tick = tick

    def __call__(self):
        self.now += self.tick
        return self.now


@dataclass
class Bench:
    """A scheduler with its doubles."""

    scheduler: Scheduler
    runner: FakeRunner
    sink: FakeSink
    pages: PageAllocator
    memory: FakeMemory
    relieved: list

    def run(self, most=10_000, after_step=lambda: None):
        for _ in range(most):
            if not self.scheduler.step():
                return
            after_step()
        raise AssertionError("the scheduler does not come to rest")

    def submit(self, name, prompt, max_tokens=8, seed=0):
        request = make_request(name, prompt, max_tokens, seed)
        self.scheduler.submit(request)
        return request

    def assert_clean(self):
        self.assert_owned_once()
        assert self.scheduler.holdings.reserved_tokens == 0
        self.scheduler.holdings.drop()
        assert (self.pages.used, self.scheduler.holdings.kept) == (0, ())
        assert not self.runner.rows
        assert not self.scheduler.has_work

    def assert_owned_once(self):
        """No page is lost or has two owners; no step read what another sequence left."""
        owners = (*self.scheduler.requests(), *self.scheduler.holdings.kept)
        owned = sorted(page for owner in owners for page in owner.pages)
        assert owned == sorted(self.pages._used)
        assert self.scheduler.holdings.num_free == self.pages.num_pages - sum(
            len(request.pages) for request in self.scheduler.requests()
        )
        assert not self.runner.wrong


def make_request(name, prompt, max_tokens=8, seed=0):
    return Request(
        id=name,
        prompt=tuple(prompt),
        sampling=Sampling(max_tokens=max_tokens),
        seed=seed,
        timing=Timing(submitted_s=0.0),
    )


def make_bench(
    num_pages=64,
    latency=0,
    eos=None,
    context=4096,
    chunk=32,
    rows=8,
    relieves=0,
    clock=None,
    reuse=True,
    growth=None,
):
    memory = FakeMemory(num_pages)
    runner = FakeRunner(memory, latency)
    sink = FakeSink(eos)
    pages = PageAllocator(num_pages)
    relieved = []

    def relieve():
        if len(relieved) >= relieves:
            return False
        relieved.append(1)
        return True

    scheduler = Scheduler(
        runner,
        pages,
        sink,
        Limits(context_tokens=context, chunk_tokens=chunk, max_rows=rows, reuse=reuse),
        Surroundings(
            counters=lambda: Counts(routes=runner.decoded, hits=runner.decoded),
            relieve=relieve,
            memory_errors=(MemoryError,),
            lost_errors=(ConnectionError,),
            clock=clock or Clock(),
            growth=growth,
        ),
    )
    return Bench(scheduler, runner, sink, pages, memory, relieved)


CANCELLED, STOP, LENGTH, ERROR = (
    FinishReason.CANCELLED,
    FinishReason.STOP,
    FinishReason.LENGTH,
    FinishReason.ERROR,
)
