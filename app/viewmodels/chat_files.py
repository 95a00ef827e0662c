"""Files of the chat page: attached to a draft, exported, imported. QtCore only.

Disks are read on a thread; what cannot be taken is named in a sentence, never silently left out.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.chat_export import Kind, as_json, as_markdown, file_name
from app.services.chat_files import FileReader, Refusal, added, read_text_file
from app.services.chat_import import Found, NotFound, read_chat_file
from app.services.chat_records import Chat, ChatId
from app.services.chat_store import ChatStore
from app.services.files import replace_file
from app.viewmodels.chat_conversation import NO_CHAT, Conversation
from app.viewmodels.chat_reply import ReplyRunner
from app.wording import tr, tr_count
from engine.protocol.messages import Part


class ChatFiles(QObject):
    """Reads and writes files for the chats.

    Signals:
        said: (sentence) something to tell for a moment.
        attached: other files are attached to the draft on screen.
        imported: (chat id) a chat came from a file.
    """

    said = Signal(str)
    attached = Signal()
    imported = Signal(int)

    def __init__(
        self,
        store: ChatStore,
        talk: Conversation,
        runner: ReplyRunner,
        clock: Callable[[], float] = time.time,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store, self._talk, self._runner, self._clock = store, talk, runner, clock
        self._texts: FileReader[list[Part | Refusal]] = FileReader(self)
        self._chats: FileReader[list[Found | NotFound]] = FileReader(self)
        talk.files_changed.connect(self.attached)

    @property
    def is_reading(self) -> bool:
        """Whether files are on their way."""
        return self._texts.is_busy or self._chats.is_busy

    # --- attached to the draft ------------------------------------------------------------------

    def attach(self, paths: Sequence[Path]) -> None:
        """Attach text files to the draft; what cannot be taken is named (case G-04)."""
        chat_id, wanted = self._talk.chat.id, tuple(paths)
        self._texts.run(
            lambda: [read_text_file(path) for path in wanted], partial(self._attach, chat_id)
        )

    def detach(self, place: int) -> None:
        """Take one of the attached files away again."""
        files = self._talk.chat.files
        if 0 <= place < len(files):
            self._talk.attach(self._talk.chat.id, files[:place] + files[place + 1 :])

    def _attach(self, chat_id: ChatId, found: list[Part | Refusal]) -> None:
        """The chat may be another by now: the files belong where they were dropped.

        If that chat is gone, or was begun meanwhile, they come to the one on screen.
        """
        chat = None if chat_id == self._talk.chat.id else self._store.chat(chat_id)
        chat = chat or self._talk.chat
        refused = [entry for entry in found if isinstance(entry, Refusal)]
        fresh = [entry for entry in found if isinstance(entry, Part)]
        files, more = added(chat.files, fresh)
        if files != chat.files:
            self._talk.attach(chat.id, files)
        refused += more
        for refusal in refused:
            self.said.emit(refusal.sentence)

    # --- chats as files -------------------------------------------------------------------------

    def export_name(self, chat_id: ChatId, kind: Kind) -> str:
        """Return a file name for a chat."""
        return file_name(self._store.chat(chat_id) or Chat(NO_CHAT), kind)

    def export_chat(self, chat_id: ChatId, path: Path, kind: Kind) -> None:
        """Write a chat into a file; how that went is said."""
        chat = self._store.chat(chat_id)
        if chat is None:
            return
        self._runner.save()  # what has arrived of a running reply belongs to it
        shown = self._store.path_of(chat_id)
        text = as_markdown(chat, shown)
        if kind == "json":
            text = as_json(chat, shown, self._store.all_messages(chat_id))
        try:
            replace_file(path, text.encode())
        except OSError as problem:
            reason = problem.strerror or str(problem)
            self.said.emit(tr("{name} was not written: {reason}.", name=path.name, reason=reason))
        else:
            self.said.emit(tr("Saved as {path}", path=path))

    def import_chats(self, paths: Sequence[Path]) -> None:
        """Add the chats of files; what cannot be read is named."""
        wanted, now = tuple(paths), self._clock()
        self._chats.run(lambda: [read_chat_file(path, now) for path in wanted], self._add)

    def _add(self, found: list[Found | NotFound]) -> None:
        chat_id, count = NO_CHAT, 0
        for entry in found:
            if isinstance(entry, NotFound):
                self.said.emit(entry.sentence)
                continue
            chat_id = self._store.add_whole(entry.chat, entry.messages, entry.shown)
            count += len(entry.messages)
        if chat_id != NO_CHAT:
            self.said.emit(tr_count("{count} message imported", "{count} messages imported", count))
            self.imported.emit(chat_id)

    def close(self) -> None:
        """Take nothing more: the app ends."""
        self._texts.close()
        self._chats.close()
