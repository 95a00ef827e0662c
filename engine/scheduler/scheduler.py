"""The step loop's step: at most one forward, then whatever waits for a safe point.

Knows requests, rows and pages; no text, no tensors, no model. Called by `engine.service` on one
thread. One of the three doors where errors are caught: a failure ends the requests of that step.
"""

import bisect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.cache.pages import PageAllocator
from engine.memory.budget import PAGE_TOKENS
from engine.protocol.errors import BudgetError, DeviceError, EngineError
from engine.protocol.messages import FinishReason
from engine.scheduler import problems
from engine.scheduler.admission import check_request, pages_to_start
from engine.scheduler.batch import (
    Batch,
    Phase,
    build_batch,
    context_after,
    mark_launched,
    next_phase,
)
from engine.scheduler.holdings import Holdings
from engine.scheduler.request import Request
from engine.scheduler.safepoint import Safepoint
from engine.scheduler.seams import Limits, Runner, Sink, StepHandle, Surroundings
from engine.scheduler.tally import Counts

MAX_INTERNAL_ERRORS = 2
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Flight:
    """A launched step whose ids are not yet taken."""

    batch: Batch
    handle: StepHandle
    launched_s: float


class Scheduler:
    """Requests in, tokens to the sink; every submitted request finishes exactly once.

    Attributes:
        safepoint: what waits for the moment between two steps.
        limits: fixed per load.
        holdings: who has which pages.
        decoded_tokens, prefilled_tokens, sampled_tokens: since load.
    """

    def __init__(
        self,
        runner: Runner,
        pages: PageAllocator,
        sink: Sink,
        limits: Limits,
        around: Surroundings,
    ) -> None:
        self.safepoint = Safepoint()
        self.limits = limits
        self._runner = runner
        self.holdings = Holdings(pages, limits.reuse)
        self._sink = sink
        self._around = around
        self._waiting: list[Request] = []  # oldest first; preempted ones keep their row
        self._running: list[Request] = []  # oldest first
        self._free_rows = list(range(limits.max_rows))
        self._flight: _Flight | None = None
        self._last_phase: Phase | None = None
        self._last_accept_s = 0.0
        self._arrivals = 0
        self._internal_errors = 0
        self._was_relieved = False
        self._counted = Counts.read(around.counters())
        self.decoded_tokens = 0
        self.prefilled_tokens = 0
        self.sampled_tokens = 0

    @property
    def num_running(self) -> int:
        """Requests that have pages or are about to."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether a request is open."""
        return bool(self._waiting or self._running)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._waiting or self._running or self._flight or self.safepoint.is_wanted)

    @property
    def used_tokens(self) -> int:
        """Tokens of context that running requests hold."""
        return sum(request.computed for request in self._running)

    def requests(self) -> tuple[Request, ...]:
        """Return every open request, oldest first."""
        return tuple(sorted((*self._running, *self._waiting), key=lambda one: one.arrival))

    def submit(self, request: Request) -> None:
        """Queue a request. Raises: InvalidRequest, at once, if it could never run."""
        most, growth = self.holdings.capacity_tokens, self._around.growth
        if growth is not None:
            growth.forget_refusal()
            most = growth.most_tokens
        check_request(request, self.limits.context_tokens, most)
        self._arrivals += 1
        request.arrival = self._arrivals
        self._waiting.append(request)

    def step(self) -> bool:
        """Apply the safe point, then do at most one forward. Returns whether anything was done.

        Raises: DeviceError (every open request was ended before), or InternalError the second time.
        """
        did = self._pass_safepoint()
        self._admit()
        batch = self._next_batch()
        if batch is None:
            # Who waits can start next time: with nobody running every page is free.
            return self._drain() or did or bool(self._waiting)
        self._last_phase = batch.phase
        self._run(batch)
        return True

    def end_all(self, reason: FinishReason, problem: EngineError | None = None) -> None:
        """End every open request. After a fatal `problem` what is in flight is not waited for."""
        if problem is None:
            self._drain()
        self._flight = None
        for request in self.requests():
            if not request.is_done:
                self._finish(request, reason, problem)

    # --- the safe point ----------------------------------------------------------------------

    def _pass_safepoint(self) -> bool:
        if not self.safepoint.is_wanted:
            return False
        self._drain()
        cancels, actions = self.safepoint.take()
        open_requests = {request.id: request for request in self.requests()}
        for request_id in cancels:
            request = open_requests.get(request_id)
            if request is not None and not request.is_done:
                self._finish(request, FinishReason.CANCELLED, None)
        for action in actions:
            action()
        return True

    # --- choosing ----------------------------------------------------------------------------

    def _admit(self) -> None:
        while self._waiting:
            request = self._waiting[0]
            if request.row < 0 and not self._free_rows:
                return
            fill = request.fill_tokens
            if fill > self.holdings.capacity_tokens:
                if not self._grow(request, fill, 0):
                    self._finish_for_lack(request)  # the pool shrank meanwhile, or cannot grow
                continue
            lacking = pages_to_start(request, len(self._running)) - self.holdings.num_free
            if lacking > 0:
                if not self._grow(request, fill, lacking * PAGE_TOKENS):
                    return
                continue
            self._waiting.pop(0)
            bisect.insort(self._running, request, key=lambda one: one.arrival)
            self.holdings.find_beginning(request)
            if request.row < 0:
                self._start(request)

    def _start(self, request: Request) -> None:
        request.row = self._free_rows.pop(0)
        request.timing.started_s = self._around.clock()
        self._guarded((request,), lambda: self._open(request))

    def _open(self, request: Request) -> None:
        facts = request.row, request.sampling, request.seed, request.prompt
        try:
            self._runner.open_row(*facts)
        except self._around.memory_errors as problem:
            if not self._relieve(problem, is_first=True):
                raise
            self._runner.open_row(*facts)
        self._sink.started(request)

    def _next_batch(self) -> Batch | None:
        """Return the next step with its pages reserved, making room if they run out."""
        while True:
            prefill = [one for one in self._running if not one.is_done and one.needs_prefill]
            limit = self.limits.context_tokens
            decode = [one for one in self._running if one.can_decode(limit)]
            phase = next_phase(bool(prefill), bool(decode), self._last_phase)
            if phase is None:
                return None
            chosen = prefill[:1] if phase == "prefill" else decode
            lacking = [one for one in chosen if not self._reserve(phase, one)]
            if not lacking:
                return build_batch(phase, chosen, self.limits.chunk_tokens)
            if not self._drain():  # ids in flight may end a request and free its pages
                self._make_room(phase, lacking[0])

    def _reserve(self, phase: Phase, request: Request) -> bool:
        tokens = context_after(phase, request, self.limits.chunk_tokens)
        return self.holdings.reserve(request, tokens)

    def _grow(self, request: Request, tokens: int, missing_tokens: int) -> bool:
        """Let the context grow, so that a request gets its pages.

        Returns: whether to look again; False = nothing has changed, and nothing will.
        """
        growth = self._around.growth
        wanted = growth.plan(tokens, missing_tokens) if growth is not None else None
        if growth is None or wanted is None:
            return False
        if self._drain():
            return True
        return self._guarded((request,), lambda: growth.apply(wanted)) or request.is_done

    def _make_room(self, phase: Phase, request: Request) -> None:
        """Grow, else preempt the youngest holder; one alone at capacity has used all there is."""
        tokens = context_after(phase, request, self.limits.chunk_tokens)
        if self._grow(request, tokens, self.holdings.missing_tokens(request, tokens)):
            return
        holders = [one for one in self._running if one.pages]
        if all(one is request for one in holders):
            self._finish_for_lack(request)
            return
        youngest = holders[-1]
        _log.info("preempting %s: no free page", youngest.id)
        self.holdings.give_back(youngest)
        youngest.rewind()
        self._running.remove(youngest)
        bisect.insort(self._waiting, youngest, key=lambda one: one.arrival)

    def _finish_for_lack(self, request: Request) -> None:
        if request.generated:
            self._finish(request, FinishReason.LENGTH, None)
            return
        problem = problems.no_room(request, self.holdings.capacity_tokens)
        self._finish(request, FinishReason.ERROR, problem)

    # --- running -----------------------------------------------------------------------------

    def _run(self, batch: Batch) -> None:
        """Launch a step; then take the ids of the one before it (latency 1) or of itself."""
        previous = self._flight
        flight = self._guarded(batch.requests, lambda: self._take_off(batch))
        if flight is None:
            return
        self._flight = flight
        if not self._runner.latency:
            self._drain()
        elif previous is not None:
            self._guarded(previous.batch.requests, lambda: self._accept(previous))

    def _take_off(self, batch: Batch) -> _Flight | None:
        """Launch a batch. Returns None if memory had to be given back: it is chosen anew then."""
        launched_s = self._around.clock()
        try:
            handle = self._runner.launch(batch.phase, batch.works)
        except self._around.memory_errors as problem:
            if not self._relieve(problem, is_first=not self._was_relieved):
                raise
            self._was_relieved = True  # once per step: nothing was sampled yet
            return None
        self._was_relieved = False
        mark_launched(batch)
        return _Flight(batch, handle, launched_s)

    def _relieve(self, problem: Exception, is_first: bool) -> bool:
        """Give memory back, with no work in flight, after a refusal; False if it cannot help."""
        _log.warning("the device is out of memory: %s", problem)
        self._drain()
        return is_first and self._around.relieve()

    def _drain(self) -> bool:
        """Take the ids of the step in flight. Returns whether there was one."""
        flight, self._flight = self._flight, None
        if flight is None:
            return False
        self._guarded(flight.batch.requests, lambda: self._accept(flight))
        return True

    def _accept(self, flight: _Flight) -> bool:
        ids = iter(flight.handle.wait())
        now_s = self._around.clock()
        took_s = now_s - max(flight.launched_s, self._last_accept_s)
        self._last_accept_s = now_s
        batch = flight.batch
        # since the step before was taken: the next one may be launched and counting already
        counted, self._counted = self._counted, Counts.read(self._around.counters())
        spent = self._counted.minus(counted)
        for request, work in zip(batch.requests, batch.works, strict=True):
            token = next(ids) if work.sample else None
            if request.is_done:  # it ended while this step was in flight
                self._release(request)
                continue
            if batch.phase == "prefill":
                self.prefilled_tokens += work.num_tokens
                request.timing.add_prompt(took_s, work.num_tokens)
            else:
                self.decoded_tokens += 1
                request.timing.add_token(took_s, spent)
            if token is not None:
                self._take(request, token, now_s)
        return True

    def _take(self, request: Request, token: int, now_s: float) -> None:
        self.sampled_tokens += 1
        request.generated.append(token)
        if request.timing.first_token_s is None:
            request.timing.first_token_s = now_s
        if self._sink.token(request, token):
            self._finish(request, FinishReason.STOP, None)
        elif request.is_at_limit(self.limits.context_tokens):
            self._finish(request, FinishReason.LENGTH, None)

    # --- ending ------------------------------------------------------------------------------

    def _finish(self, request: Request, reason: FinishReason, problem: EngineError | None) -> None:
        request.is_done = True
        request.has_failed |= reason is FinishReason.ERROR
        if not self._is_in_flight(request):
            self._release(request)
        self._sink.finished(request, reason, problem)

    def _is_in_flight(self, request: Request) -> bool:
        return self._flight is not None and request in self._flight.batch.requests

    def _release(self, request: Request) -> None:
        """Give row and pages back; only when no step in flight writes to them."""
        if request in self._running:
            self._running.remove(request)
        if request in self._waiting:
            self._waiting.remove(request)
        self.holdings.give_back(request)
        if request.row >= 0:
            self._runner.close_row(request.row)
            bisect.insort(self._free_rows, request.row)
            request.row = -1

    def _guarded(self, requests: Sequence[Request], work: Callable[[], _T]) -> _T | None:
        """Return what `work` gives; a failure ends `requests` and gives None.

        Raises: DeviceError if the device is lost, InternalError the second time; every open
        request was ended before.
        """
        try:
            return work()
        except self._around.lost_errors as problem:
            lost = problems.lost_device(problem)
            self.end_all(FinishReason.ERROR, lost)
            raise lost from problem
        except DeviceError as problem:
            self.end_all(FinishReason.ERROR, problem)
            raise
        except self._around.memory_errors as problem:
            self._fail(requests, problems.out_of_memory(problem))
        except BudgetError as problem:
            self._fail(requests, problem)
        except Exception as problem:  # noqa: BLE001  the door per request
            self._fail_internally(requests, problem)
        return None

    def _fail_internally(self, requests: Sequence[Request], problem: Exception) -> None:
        # all done: the echo of a failed step, whose successor had been launched already
        self._internal_errors += not all(request.is_done for request in requests)
        _log.error("a step failed", exc_info=problem)
        wrapped = problems.failed_step(problem)
        self._fail(requests, wrapped)
        if self._internal_errors >= MAX_INTERNAL_ERRORS:
            self.end_all(FinishReason.ERROR, wrapped)
            raise problems.second_failure(wrapped) from problem

    def _fail(self, requests: Sequence[Request], problem: EngineError) -> None:
        for request in requests:
            request.has_failed = True
            if not request.is_done:
                self._finish(request, FinishReason.ERROR, problem)
            elif not self._is_in_flight(request):
                self._release(request)
