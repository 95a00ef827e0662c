"""Replies that are being written: deltas gathered at 20 Hz, saved each second, ended once.

Sits between `TalkClient` and the store; knows message ids, not chats on screen. QtCore only.
"""

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.chat_records import (
    Failure,
    Message,
    MessageId,
    MessageState,
    ReplyFacts,
    text_parts,
)
from app.services.chat_store import ChatStore
from app.services.chat_words import rates_along
from app.services.remote_switch import TalkClient
from engine.protocol.errors import ErrorCode
from engine.protocol.messages import (
    ChatMessage,
    Error,
    Finished,
    FinishReason,
    Part,
    Sampling,
    TokenDelta,
    ToolCallDelta,
    Usage,
)

SHOW_MS = 50
SAVE_MS = 1_000


class LiveReply:
    """What has arrived of one reply. `message` is the row it started as."""

    def __init__(self, message: Message, now: float) -> None:
        self.message = message
        self.begun = now
        self.tokens = message.facts.usage.reply_tokens if message.parts else 0
        self.thought_tokens = message.facts.thought_tokens
        self.error: Failure | None = None
        self._kept_thought_s = message.facts.thought_s
        self._reasoning: list[str] = [message.reasoning] if message.reasoning else []
        self._text: list[str] = [message.text] if message.text else []
        self._calls: list[Part] = []
        self._first_thought: float | None = None
        self._last_thought: float | None = None
        self._points: list[tuple[float, int]] = []

    def add(self, delta: TokenDelta, now: float) -> None:
        """Take one delta; `now` is monotonic seconds."""
        self.tokens += delta.num_tokens
        if delta.kind == "reasoning":
            self._reasoning.append(delta.text)
            self.thought_tokens += delta.num_tokens
            self._first_thought = now if self._first_thought is None else self._first_thought
            self._last_thought = now
        else:
            if self.is_thinking:
                self._last_thought = now
            self._text.append(delta.text)
        if not self._points or now - self._points[-1][0] >= SHOW_MS / 1000:
            self._points.append((now, self.tokens))

    def add_call(self, call: ToolCallDelta) -> None:
        """Take one whole tool call."""
        self._calls.append(
            Part(kind="tool_call", text=call.arguments, name=call.name, call_id=call.call_id)
        )

    @property
    def text(self) -> str:
        """The visible text so far."""
        return _merged(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return _merged(self._reasoning)

    @property
    def is_thinking(self) -> bool:
        """Whether only reasoning has arrived yet."""
        return bool(self._reasoning) and not self._text

    @property
    def thought_s(self) -> float:
        """Seconds between the first thought and the first word of the answer."""
        if self._first_thought is None or self._last_thought is None:
            return self._kept_thought_s
        return self._kept_thought_s + self._last_thought - self._first_thought

    def parts(self) -> tuple[Part, ...]:
        """The content so far, as it is stored."""
        return text_parts(self.text, self.reasoning) + tuple(self._calls)

    def facts(self, event: Finished | None = None) -> ReplyFacts:
        """The figures so far, with those of the end once it is known."""
        usage = Usage(reply_tokens=self.tokens)
        if event is not None and event.usage.prompt_tokens:
            kept = max(event.usage.reply_tokens, self.tokens)
            usage = Usage(
                prompt_tokens=event.usage.prompt_tokens,
                reply_tokens=kept,
                reused_tokens=event.usage.reused_tokens,
            )
        has_trace = event is not None and event.trace.decode_s > 0
        return ReplyFacts(
            reason=event.reason.value if event is not None else "",
            usage=usage,
            trace=event.trace if event is not None and has_trace else None,
            thought_s=round(self.thought_s, 2),
            thought_tokens=self.thought_tokens,
            speed=rates_along(self._points),
            error=self.error,
        )


class ReplyRunner(QObject):
    """All running replies of all chats.

    Signals:
        grew: (message id) more text; at most every `SHOW_MS` per burst, all replies together.
        ended: (message id) the reply is over and stored.
    """

    grew = Signal(int)
    ended = Signal(int)

    def __init__(
        self,
        store: ChatStore,
        client: TalkClient,
        monotonic: Callable[[], float] = time.monotonic,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store, self._client, self._monotonic = store, client, monotonic
        self._replies: dict[str, LiveReply] = {}
        self._fresh: set[str] = set()  # to show
        self._unsaved: set[str] = set()
        self._show = self._timer(SHOW_MS, self.flush)
        self._save = self._timer(SAVE_MS, self.save)
        client.delta.connect(self._on_delta)
        client.tool_call.connect(self._on_tool_call)
        client.failed.connect(self._on_failed)
        client.finished.connect(self._on_finished)

    def start(
        self,
        message: Message,
        messages: tuple[ChatMessage, ...],
        sampling: Sampling,
        continue_last: bool = False,
        template_args: dict[str, object] | None = None,
    ) -> None:
        """Ask for a reply that goes into `message`; the arguments are for the chat template."""
        request = self._client.generate(
            messages, sampling, continue_last=continue_last, template_args=template_args
        )
        self._replies[request] = LiveReply(message, self._monotonic())

    def reply_of(self, message_id: MessageId) -> LiveReply | None:
        """Return the running reply of a message, or None."""
        for reply in self._replies.values():
            if reply.message.id == message_id:
                return reply
        return None

    def stop(self, message_id: MessageId) -> None:
        """Ask the engine to end a reply; what has arrived stays."""
        for request, reply in tuple(self._replies.items()):
            if reply.message.id == message_id:
                self._client.cancel(request)

    def flush(self) -> None:
        """Show what has arrived since the last time."""
        fresh, self._fresh = self._fresh, set()
        for request in fresh:
            if request in self._replies:
                self.grew.emit(self._replies[request].message.id)

    def save(self) -> None:
        """Write what has arrived to the store."""
        unsaved, self._unsaved = self._unsaved, set()
        for request in unsaved:
            reply = self._replies.get(request)
            if reply is not None:
                self._store.save_partial(reply.message.id, reply.parts())

    def _timer(self, interval: int, act: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(interval)
        timer.timeout.connect(act)
        return timer

    def _touch(self, request: str) -> None:
        self._fresh.add(request)
        self._unsaved.add(request)
        if not self._show.isActive():
            self._show.start()
        if not self._save.isActive():
            self._save.start()

    def _on_delta(self, event: TokenDelta) -> None:
        reply = self._replies.get(event.id)
        if reply is not None:
            reply.add(event, self._monotonic())
            self._touch(event.id)

    def _on_tool_call(self, event: ToolCallDelta) -> None:
        reply = self._replies.get(event.id)
        if reply is not None:
            reply.add_call(event)
            self._touch(event.id)

    def _on_failed(self, event: Error) -> None:
        reply = self._replies.get(event.id)
        # A dead engine is told once, by the page; the reply itself is only incomplete.
        if reply is not None and self._client.is_running:
            reply.error = Failure(event.code, event.message, event.hint)

    def _on_finished(self, event: Finished) -> None:
        reply = self._replies.pop(event.id, None)
        if reply is None:
            return
        self._fresh.discard(event.id)
        self._unsaved.discard(event.id)
        state = _state_after(event.reason, reply.error)
        self._store.finish(reply.message.id, reply.parts(), state, reply.facts(event))
        self.ended.emit(reply.message.id)


def _state_after(reason: FinishReason, error: Failure | None) -> MessageState:
    if reason is FinishReason.CANCELLED or (error and error.code is ErrorCode.CANCELLED):
        return MessageState.STOPPED
    if reason is FinishReason.ERROR:
        return MessageState.FAILED if error else MessageState.INTERRUPTED
    return MessageState.DONE


def _merged(pieces: list[str]) -> str:
    """Join the pieces and keep them joined, so that asking again is cheap."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""
