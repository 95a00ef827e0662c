"""What waits to be written, kept small: a slow reader on the other side stalls nobody.

Token deltas of one request merge while they wait; figures that a newer one replaces (statistics,
heat, heartbeat, progress) are replaced in place. Everything else keeps its order. Knows no stream.
Used by `engine.pipe.stdio`.
"""

import threading
from collections import OrderedDict

import msgspec

from engine.protocol.messages import (
    CacheMap,
    Event,
    Heartbeat,
    Progress,
    Stats,
    TokenDelta,
)

# More than a reader could want in one write; keeps one slow write from growing without bound.
MAX_DELTA_CHARS = 64 * 1024


class Outbox:
    """A thread-safe queue of events that merges and replaces.

    Memory is bounded by the commands received and the tokens made, not by time.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Event] = OrderedDict()
        self._next = 0
        self._deltas: dict[str, int] = {}  # request id -> its last waiting entry, if a delta
        self._latest: dict[str, int] = {}  # what a newer one replaces -> waiting entry
        self._ready = threading.Condition()
        self._closed = False

    def put(self, event: Event) -> None:
        """Add an event; never blocks. Ignored after `close`."""
        with self._ready:
            if self._closed:
                return
            if not self._merged(event):
                self._append(event)
            self._ready.notify()

    def take(self, timeout_s: float | None = None) -> list[Event]:
        """Return all that waits, oldest first; waits for the first. [] = closed or timed out."""
        with self._ready:
            self._ready.wait_for(lambda: self._entries or self._closed, timeout_s)
            out = list(self._entries.values())
            self._entries.clear()
            self._deltas.clear()
            self._latest.clear()
            return out

    def close(self) -> None:
        """Accept nothing more; what waits can still be taken."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def __len__(self) -> int:
        return len(self._entries)

    def _append(self, event: Event) -> None:
        key, self._next = self._next, self._next + 1
        self._entries[key] = event
        if isinstance(event, TokenDelta):
            self._deltas[event.id] = key
            return
        name = _replaces(event)
        if name:
            self._latest[name] = key
        # Text after this event must not slip in front of it.
        self._deltas.pop(getattr(event, "id", ""), None)

    def _merged(self, event: Event) -> bool:
        if isinstance(event, TokenDelta):
            return self._merged_delta(event)
        key = self._latest.get(_replaces(event))
        if key is None:
            return False
        self._entries[key] = event
        return True

    def _merged_delta(self, event: TokenDelta) -> bool:
        key = self._deltas.get(event.id)
        if key is None:
            return False
        waiting = self._entries[key]
        if not isinstance(waiting, TokenDelta) or waiting.kind != event.kind:
            return False
        if len(waiting.text) + len(event.text) > MAX_DELTA_CHARS:
            return False
        self._entries[key] = msgspec.structs.replace(
            waiting,
            text=waiting.text + event.text,
            num_tokens=waiting.num_tokens + event.num_tokens,
        )
        return True


def _replaces(event: Event) -> str:
    """Return what an event is the newest of, "" if every one counts."""
    if isinstance(event, Stats | CacheMap | Heartbeat):
        return type(event).__name__
    if isinstance(event, Progress):
        return f"Progress {event.id} {event.stage}"
    return ""
