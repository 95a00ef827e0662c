"""Ids to events: each open request's reader, and what is said about it.

Called by the scheduler (as its sink) and by `engine.service.service`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.loader.parts import Reply
from engine.protocol.errors import EngineError
from engine.protocol.messages import (
    Event,
    Finished,
    FinishReason,
    Started,
    TokenDelta,
    ToolCallDelta,
    error_event,
)
from engine.scheduler.request import Request
from engine.text.dialects.base import Piece


@dataclass(slots=True)
class _Open:
    reply: Reply
    held_tokens: int = 0  # accepted, but not yet visible as characters


class Replies:
    """The scheduler's sink: every opened request gets exactly one Finished."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._open: dict[str, _Open] = {}

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._open

    def open(self, request_id: str, reply: Reply) -> None:
        """Begin to read a reply."""
        self._open[request_id] = _Open(reply)

    def drop(self, request_id: str) -> None:
        """Forget a reply that was never submitted; the caller says its end."""
        self._open.pop(request_id, None)

    def started(self, request: Request) -> None:
        """Say that it left the queue."""
        self._emit(Started(id=request.id, prompt_tokens=len(request.prompt)))

    def token(self, request: Request, token_id: int) -> bool:
        """Read one id. Returns whether the reply is over."""
        open_reply = self._open[request.id]
        open_reply.held_tokens += 1
        self._say(request.id, open_reply, open_reply.reply.push(token_id))
        return open_reply.reply.stopped

    def finished(self, request: Request, reason: FinishReason, problem: EngineError | None) -> None:
        """Say what was held back, what went wrong, and that it is over."""
        open_reply = self._open.pop(request.id)
        self._say(request.id, open_reply, open_reply.reply.close())
        if problem is not None:
            self._emit(error_event(problem, request.id))
        trace = request.timing.trace()
        self._emit(Finished(id=request.id, reason=reason, usage=request.usage, trace=trace))

    def _say(self, request_id: str, open_reply: _Open, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.kind == "tool_call":
                self._emit(
                    ToolCallDelta(
                        id=request_id,
                        call_id=piece.call_id,
                        name=piece.name,
                        arguments=piece.text,
                    )
                )
                continue
            self._emit(
                TokenDelta(
                    id=request_id,
                    kind=piece.kind,
                    text=piece.text,
                    num_tokens=open_reply.held_tokens,
                )
            )
            open_reply.held_tokens = 0
