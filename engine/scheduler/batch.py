"""Which requests the next step runs, and with which tokens. Arithmetic over requests; no tensors.

Prefill and decode take turns when both wait, so that a reply in progress stalls for one prompt
chunk at most. Called by `engine.scheduler.scheduler`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.runner.work import RowWork
from engine.scheduler.request import Request

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's work; `works[i]` belongs to `requests[i]`."""

    phase: Phase
    requests: tuple[Request, ...]
    works: tuple[RowWork, ...]


def next_phase(has_prefill: bool, has_decode: bool, last: Phase | None) -> Phase | None:
    """Return whose turn it is; None if nothing can run."""
    if has_prefill and has_decode:
        return "decode" if last == "prefill" else "prefill"
    if has_prefill:
        return "prefill"
    return "decode" if has_decode else None


def context_after(phase: Phase, request: Request, chunk_tokens: int) -> int:
    """Return how many tokens must have a page for the request's next step."""
    if phase == "prefill":
        return min(request.computed + chunk_tokens, request.fill_tokens)
    return request.next_position + 1


def build_batch(phase: Phase, requests: Sequence[Request], chunk_tokens: int) -> Batch:
    """Return the work of requests whose pages are already reserved. Changes nothing."""
    make = _prefill_work if phase == "prefill" else _decode_work
    return Batch(phase, tuple(requests), tuple(make(request, chunk_tokens) for request in requests))


def mark_launched(batch: Batch) -> None:
    """Move the requests' places on, once the runner has taken the batch."""
    for request, work in zip(batch.requests, batch.works, strict=True):
        request.computed = work.context_tokens
        request.launched += work.sample


def _prefill_work(request: Request, chunk_tokens: int) -> RowWork:
    tokens = request.chunk(chunk_tokens)
    is_last = request.computed + len(tokens) == request.fill_tokens
    # After a preemption the next id was sampled before it; only its place is filled again.
    return RowWork(
        row=request.row,
        tokens=tokens,
        start=request.computed,
        pages=request.pages,
        sample=is_last and not request.generated,
    )


def _decode_work(request: Request, _: int) -> RowWork:
    return RowWork(
        row=request.row, tokens=(), start=request.next_position, pages=request.pages, sample=True
    )
