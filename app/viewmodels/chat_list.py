"""The list of chats: sections, search, pin, rename, delete with undo. QtCore only."""

import time
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.chat_records import Chat, ChatId, ChatRow, MessageId, SearchHit, Section
from app.services.chat_store import ChatStore
from app.services.chat_words import GROUPS, group_of

UNDO_MS = 6_000
SEARCH_MS = 120  # after the last key


class ChatListModel(QObject):
    """All chats in sections, or what a search found.

    A deleted chat leaves the list at once and the disk after `UNDO_MS`, so that it can come back.

    Signals:
        changed: other sections; read `sections`.
        deleted: (chat) it left the list and can be brought back with `undo_delete`.
    """

    changed = Signal()
    deleted = Signal(object)

    def __init__(
        self,
        store: ChatStore,
        clock: Callable[[], float] = time.time,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._clock = clock
        self._query = ""
        self._doomed: Chat | None = None
        self._sections: tuple[Section, ...] = ()
        self._undo = QTimer(self)
        self._undo.setSingleShot(True)
        self._undo.setInterval(UNDO_MS)
        self._undo.timeout.connect(self.finish_delete)
        self._search = QTimer(self)
        self._search.setSingleShot(True)
        self._search.setInterval(SEARCH_MS)
        self._search.timeout.connect(self.refresh)
        self.refresh()

    @property
    def sections(self) -> tuple[Section, ...]:
        """What to show now."""
        return self._sections

    @property
    def query(self) -> str:
        """The words being searched, or ""."""
        return self._query

    def chats(self) -> list[Chat]:
        """Return every chat that is not being deleted, the last used first."""
        doomed = self._doomed.id if self._doomed else None
        return [chat for chat in self._store.chats() if chat.id != doomed]

    def set_query(self, query: str) -> None:
        """Search soon; an empty query shows all chats."""
        self._query = query.strip()
        self._search.start()

    def refresh(self) -> None:
        """Read the list anew."""
        self._search.stop()
        sections = self._found() if self._query else self._grouped()
        if sections != self._sections:
            self._sections = sections
            self.changed.emit()

    def rename(self, chat_id: ChatId, title: str) -> None:
        """Give a chat another title; an empty one is ignored."""
        chat = self._store.chat(chat_id)
        title = " ".join(title.split())
        if chat is not None and title:
            self._store.save_chat(replace(chat, title=title))
            self.refresh()

    def set_pinned(self, chat_id: ChatId, pinned: bool) -> None:
        """Keep a chat at the top, or no longer."""
        chat = self._store.chat(chat_id)
        if chat is not None:
            self._store.save_chat(replace(chat, pinned=pinned))
            self.refresh()

    def delete(self, chat_id: ChatId) -> None:
        """Take a chat off the list; it is removed for good after a while."""
        self.finish_delete()
        self._doomed = self._store.chat(chat_id)
        if self._doomed is not None:
            self._undo.start()
            self.refresh()
            self.deleted.emit(self._doomed)

    def undo_delete(self) -> None:
        """Bring back the chat deleted last, if it is still there."""
        self._undo.stop()
        self._doomed = None
        self.refresh()

    def finish_delete(self) -> None:
        """Remove the chat deleted last now; called before the app quits."""
        self._undo.stop()
        doomed, self._doomed = self._doomed, None
        if doomed is not None:
            self._store.delete_chat(doomed.id)
            self.refresh()

    def _grouped(self) -> tuple[Section, ...]:
        now = self._clock()
        rows: dict[str, list[ChatRow]] = {}
        for chat in self.chats():
            rows.setdefault(group_of(chat, now), []).append(ChatRow(chat))
        return tuple(Section(title, tuple(rows[name])) for name, title in GROUPS if name in rows)

    def find(self, query: str) -> list[SearchHit]:
        """Return the chats whose title or text holds all words, without one being deleted."""
        doomed = self._doomed.id if self._doomed else None
        return [hit for hit in self._store.search(query) if hit.chat.id != doomed]

    def place_of(self, chat_id: ChatId) -> MessageId | None:
        """Return the message in which the search found something in a chat, or None."""
        rows = (row for section in self._sections for row in section.rows)
        return next((row.message for row in rows if row.chat.id == chat_id), None)

    def _found(self) -> tuple[Section, ...]:
        hits = self.find(self._query)
        rows = tuple(ChatRow(hit.chat, hit.excerpt, hit.message) for hit in hits)
        return (Section("", rows),) if rows else ()
