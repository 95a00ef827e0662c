"""How much of the context a conversation takes, and the draft with it. QtCore only.

The engine counts (template included); asked again a moment after the last change, one question at
a time. Without a model nothing is known and the figures are 0.
"""

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.chat_records import Draft
from app.services.remote_switch import TalkClient
from app.viewmodels.chat_send import with_files_quoted
from engine.protocol.messages import (
    ChatMessage,
    Error,
    Stats,
    Status,
    TokenCount,
)

ASK_MS = 400
LIVE_MS = 250  # while a reply grows


class ContextMeter(QObject):
    """Counts the shown conversation and the draft.

    `messages` gives the conversation as it would be sent, with its files or without; it is asked
    when a count is due. What the system prompt and the files take is what is missing without them.

    Signals:
        changed: any figure is another now.
    """

    changed = Signal()

    def __init__(
        self,
        client: TalkClient,
        messages: Callable[[bool], tuple[ChatMessage, ...]],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._client, self._messages = client, messages
        self._draft = Draft()
        self._history_due = False
        self._history_id = ""
        self._draft_id = ""
        self._history_tokens = 0
        self._whole_tokens = 0
        self._ids: dict[str, str] = {}  # of counts without the system prompt, without files
        self._without: dict[str, int] = {}
        self._live_tokens = 0
        self._is_closed = False
        self._capacity = self._grows_to = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ASK_MS)
        self._timer.timeout.connect(self._ask)
        self._grown = QTimer(self)
        self._grown.setSingleShot(True)
        self._grown.setInterval(LIVE_MS)
        self._grown.timeout.connect(self.changed)
        client.token_count.connect(self._on_count)
        client.failed.connect(self._on_failed)
        client.stats.connect(self._on_stats)
        client.status.connect(self._on_status)

    @property
    def used_tokens(self) -> int:
        """Tokens of the conversation without the draft: counted last, and what came since."""
        return self._history_tokens + self._live_tokens

    @property
    def system_tokens(self) -> int:
        """What the system prompt takes of it."""
        return self._part_of("system")

    @property
    def files_tokens(self) -> int:
        """What attached files take of it."""
        return self._part_of("files")

    @property
    def draft_tokens(self) -> int:
        """What the draft would add."""
        return max(0, self._whole_tokens - self._history_tokens) if self._draft else 0

    @property
    def capacity_tokens(self) -> int:
        """What one conversation may take: the model's limit or what the KV pool can be for it."""
        model = self._client.model
        if model is None:
            return 0
        pool = max(self._capacity, self._grows_to) if self._capacity else 0
        found = [value for value in (model.context_tokens, pool) if value > 0]
        return min(found, default=0)

    def set_draft(self, draft: Draft) -> None:
        """Count the draft soon, its files as they will be sent."""
        if draft != self._draft:
            self._draft = draft
            self._timer.start()
            if not draft:
                self.changed.emit()

    def set_live(self, tokens: int) -> None:
        """Add what a running reply has written; the count leaves that reply out."""
        self._live_tokens = tokens
        if not self._grown.isActive() and not self._is_closed:
            self._grown.start()

    def end_live(self) -> None:
        """The reply is over: its tokens belong to the conversation; the engine counts again."""
        self._history_tokens += self._live_tokens
        self._live_tokens = 0
        self.recount()

    def recount(self) -> None:
        """Count the conversation soon: another chat, branch, message or system prompt."""
        self._history_due = True
        self._timer.start()

    def forget(self) -> None:
        """Show nothing until the next count: another conversation is on screen."""
        self._history_tokens = self._whole_tokens = self._live_tokens = 0
        self._history_id = self._draft_id = ""
        self._ids, self._without = {}, {}
        self.changed.emit()
        self.recount()

    def close(self) -> None:
        """Say nothing more: the app ends."""
        self._is_closed = True
        self._grown.stop()
        self._timer.stop()

    def _ask(self) -> None:
        if self._client.model is None:
            return
        messages = self._messages(True)
        if self._history_due:
            self._history_due = False
            self._history_tokens = 0 if not messages else self._history_tokens
            self._history_id = self._client.count_tokens(messages) if messages else ""
            self._ask_parts(messages)
        if self._draft:
            parts = with_files_quoted(self._draft.parts())
            draft = ChatMessage(role="user", parts=parts)
            self._draft_id = self._client.count_tokens((*messages, draft))

    def _ask_parts(self, messages: tuple[ChatMessage, ...]) -> None:
        """Ask what the conversation costs without its system prompt, and without its files."""
        self._ids, before, self._without = {}, self._without, {}
        turns, bare = tuple(t for t in messages if t.role != "system"), self._messages(False)
        for part, less in (("system", turns), ("files", bare)):
            if less == messages:
                continue
            if less:
                self._ids[part] = self._client.count_tokens(less)
            if not less or part in before:  # the count before holds until the new one is there
                self._without[part] = before.get(part, 0) if less else 0

    def _part_of(self, part: str) -> int:
        if part not in self._without:
            return 0
        return max(0, self._history_tokens - self._without[part])

    def _on_count(self, event: TokenCount) -> None:
        part = next((part for part, asked in self._ids.items() if asked == event.id), "")
        if part:
            self._without[part] = event.num_tokens
        elif event.id == self._history_id:
            self._history_tokens = event.num_tokens
        elif event.id == self._draft_id:
            self._whole_tokens = event.num_tokens
        else:
            return
        self.changed.emit()

    def _on_failed(self, event: Error) -> None:
        if event.id and event.id in (self._history_id, self._draft_id):
            self._history_id = "" if event.id == self._history_id else self._history_id
            self._draft_id = "" if event.id == self._draft_id else self._draft_id

    def _on_stats(self, event: Stats) -> None:
        self._set_capacity(event.context_capacity_tokens, self._grows_to)

    def _on_status(self, event: Status) -> None:
        pools = [pool for device in event.devices for pool in device.pools if pool.name == "kv"]
        if pools:
            self._set_capacity(pools[0].units, pools[0].grows_to_units)

    def _set_capacity(self, tokens: int, grows_to: int) -> None:
        if tokens and (tokens, grows_to) != (self._capacity, self._grows_to):
            self._capacity, self._grows_to = tokens, grows_to
            self.changed.emit()
