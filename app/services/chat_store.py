"""Every chat of this person: a SQLite file that never loses a reply.

Edit, regenerate and delete only add or hide nodes of the message tree; `leaf` of a chat names the
path that is shown, and each message remembers which of its answers was chosen. A reply that is
being written is saved each second (`save_partial`); what a crash left unfinished is marked
interrupted at the next start. Knows no Qt and no engine process; used by `viewmodels.chat*`.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.services import chat_search, chat_tree
from app.services.chat_file import ChatFile
from app.services.chat_records import (
    Chat,
    ChatId,
    Draft,
    Message,
    MessageId,
    MessageState,
    ReplyFacts,
    SearchHit,
    StoreNotice,
    reply_place,
)
from app.services.chat_rows import (
    CHAT_COLUMNS,
    MESSAGE_COLUMNS,
    chat_from,
    draft_parts,
    encode,
    message_from,
)
from engine.protocol.messages import Part, Sampling

HIDDEN_KEPT_S = 30 * 86_400.0  # a deleted message can be brought back for this long
NEW_DRAFT, NEW_FILES = "new-draft", "new-files"  # notes for the chat that is not begun yet


class ChatStore:
    """Chats and message trees. Calls are short and made from one thread.

    Args:
        folder: where the database lies (`DataRoot.chats`); made if absent.
        clock: seconds since the epoch.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listener: Callable[[StoreNotice], None] | None = None
        self._unheard: list[StoreNotice] = []
        self._file = ChatFile(folder, self._say, clock)
        self._recover()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._file.path

    @property
    def in_memory(self) -> bool:
        """Whether the disk refuses writes, so that text lives in memory only."""
        return self._file.in_memory

    def listen(self, listener: Callable[[StoreNotice], None]) -> None:
        """Tell `listener` about damaged files and full disks, also those noticed before."""
        self._listener = listener
        unheard, self._unheard = self._unheard, []
        for notice in unheard:
            listener(notice)

    def close(self) -> None:
        """Close the file; text held in memory is saved if the disk takes it now."""
        self._file.close()

    # --- chats ----------------------------------------------------------------------------------

    def chats(self) -> list[Chat]:
        """Return all chats, the last used first."""
        rows = self._file.read(f"SELECT {CHAT_COLUMNS} FROM chats ORDER BY updated DESC, id DESC")
        return [chat_from(row) for row in rows]

    def chat(self, chat_id: ChatId) -> Chat | None:
        """Return one chat, or None if it was deleted."""
        rows = self._file.read(f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?", (chat_id,))
        return chat_from(rows[0]) if rows else None

    def create_chat(
        self, title: str = "", system_prompt: str = "", sampling: Sampling | None = None
    ) -> Chat:
        """Add an empty chat."""
        now = self._clock()
        chat = Chat(ChatId(0), title, False, now, now, system_prompt, sampling)
        return self._file.write(lambda db: chat_tree.insert_chat(db, chat))

    def save_chat(self, chat: Chat) -> None:
        """Store all of a chat that a person sets; the leaf follows the messages."""
        self._file.write(lambda db: chat_tree.save_chat(db, chat))

    def add_whole(
        self, chat: Chat, messages: Sequence[Message], shown: Sequence[MessageId]
    ) -> ChatId:
        """Add a chat with its whole tree, such as from a file; see `chat_tree.add_whole`."""
        return self._file.write(lambda db: chat_tree.add_whole(db, chat, messages, shown))

    def delete_chat(self, chat_id: ChatId) -> None:
        """Remove a chat and all its messages for good."""

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "DELETE FROM search WHERE rowid IN (SELECT id FROM messages WHERE chat = ?)",
                (chat_id,),
            )
            db.execute("DELETE FROM messages WHERE chat = ?", (chat_id,))
            db.execute("DELETE FROM chats WHERE id = ?", (chat_id,))

        self._file.write(work)

    # --- the tree -------------------------------------------------------------------------------

    def path_of(self, chat_id: ChatId) -> list[Message]:
        """Return the messages that are shown, from the first to the leaf."""
        rows = self._file.read(
            "WITH RECURSIVE up(id, depth) AS ("
            " SELECT leaf, 0 FROM chats WHERE id = ? UNION ALL"
            " SELECT m.parent, up.depth + 1 FROM messages m JOIN up ON m.id = up.id)"
            f" SELECT {', '.join('m.' + name for name in MESSAGE_COLUMNS.split(', '))}"
            " FROM up JOIN messages m ON m.id = up.id ORDER BY up.depth DESC",
            (chat_id,),
        )
        return [message_from(row) for row in rows]

    def message(self, message_id: MessageId) -> Message | None:
        """Return one message, hidden or not; None if it is unknown."""
        rows = self._file.read(
            f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id = ?", (message_id,)
        )
        return message_from(rows[0]) if rows else None

    def versions(self, message: Message) -> list[MessageId]:
        """Return the visible versions of a turn in the order they were made, itself among them."""
        rows = self._file.read(
            "SELECT id FROM messages WHERE chat = ? AND parent IS ? AND hidden = 0 ORDER BY id",
            (message.chat_id, message.parent),
        )
        return [MessageId(row[0]) for row in rows]

    def all_messages(self, chat_id: ChatId) -> list[Message]:
        """Return every visible message of every branch, in the order they were made."""
        rows = self._file.read(
            f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat = ? AND hidden = 0 ORDER BY id",
            (chat_id,),
        )
        return [message_from(row) for row in rows]

    def add_message(self, message: Message) -> Message:
        """Add a message below its parent and show it. Returns it with id and time filled in."""
        now = self._clock()
        number = self._file.write(lambda db: chat_tree.append(db, message, now))
        return replace(message, id=number, created=now)

    def add_turn(self, chat: Chat, question: Message, model: str) -> tuple[Chat, Message]:
        """Add a message and the place of its reply by `model`, and store the chat: all or none.

        A kill leaves neither a message that nothing answers nor one that is still a draft. A chat
        whose id is 0 is added too, and the draft of such a chat forgotten; the question's own
        `chat_id` is not used.

        Returns:
            The chat, and the reply with id, parent and time filled in.
        """
        now = self._clock()

        def work(db: sqlite3.Connection) -> tuple[Chat, Message]:
            kept = chat
            if chat.id:
                chat_tree.save_chat(db, chat)
            else:
                kept = chat_tree.insert_chat(db, replace(chat, created=now, updated=now))
                db.execute("DELETE FROM notes WHERE name IN (?, ?)", (NEW_DRAFT, NEW_FILES))
            parent = chat_tree.append(db, replace(question, chat_id=kept.id), now)
            reply = reply_place(kept.id, parent, model)
            number = chat_tree.append(db, reply, now)
            return kept, replace(reply, id=number, created=now)

        return self._file.write(work)

    def begin_reply(self, message: Message, model: str) -> Message:
        """Mark a reply as being written by `model`; it may have text already, to be continued."""
        self._file.write(
            lambda db: db.execute(
                "UPDATE messages SET state = 'partial', model = ? WHERE id = ?", (model, message.id)
            )
        )
        return replace(message, state=MessageState.PARTIAL, model=model)

    def save_partial(self, message_id: MessageId, parts: Sequence[Part]) -> None:
        """Keep what has arrived of a reply so far; called about once a second."""
        self._file.write(
            lambda db: db.execute(
                "UPDATE messages SET parts = ?, state = 'partial' WHERE id = ?",
                (encode(tuple(parts)), message_id),
            )
        )

    def finish(
        self,
        message_id: MessageId,
        parts: Sequence[Part],
        state: MessageState,
        facts: ReplyFacts,
    ) -> None:
        """Store the end of a reply: whole text, how it ended, figures."""
        now = self._clock()

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE messages SET parts = ?, state = ?, facts = ? WHERE id = ?",
                (encode(tuple(parts)), state, encode(facts), message_id),
            )
            db.execute(
                "UPDATE chats SET updated = ? WHERE id = (SELECT chat FROM messages WHERE id = ?)",
                (now, message_id),
            )
            if not chat_tree.is_hidden(db, message_id):  # deleted while it was being written
                chat_tree.index(db, message_id)

        self._file.write(work)

    def show(self, message_id: MessageId) -> None:
        """Show the branch through this message, down to the answer last chosen there."""

        def work(db: sqlite3.Connection) -> None:
            row = db.execute(
                "SELECT chat, parent FROM messages WHERE id = ?", (message_id,)
            ).fetchone()
            if row is None:
                return
            db.execute("UPDATE messages SET chosen = ? WHERE id = ?", (message_id, row[1]))
            leaf = chat_tree.leaf_below(db, message_id)
            db.execute("UPDATE chats SET leaf = ? WHERE id = ?", (leaf, row[0]))

        self._file.write(work)

    def hide(self, message_id: MessageId) -> None:
        """Delete a message and what follows it on its branch; `unhide` brings it back.

        Another version of the turn is shown if there is one, else the path ends at its parent.
        """
        now = self._clock()

        def work(db: sqlite3.Connection) -> None:
            row = db.execute(
                "SELECT chat, parent FROM messages WHERE id = ? AND hidden = 0", (message_id,)
            ).fetchone()
            if row is None:
                return
            chat_id, parent = row
            db.execute("UPDATE messages SET hidden = ? WHERE id = ?", (now, message_id))
            for (number,) in chat_tree.subtree(db, message_id):
                db.execute("DELETE FROM search WHERE rowid = ?", (number,))
            other = db.execute(
                "SELECT id FROM messages WHERE chat = ? AND parent IS ? AND hidden = 0"
                " ORDER BY id DESC LIMIT 1",
                (chat_id, parent),
            ).fetchone()
            chosen = other[0] if other else None
            db.execute("UPDATE messages SET chosen = ? WHERE id = ?", (chosen, parent))
            leaf = parent if chosen is None else chat_tree.leaf_below(db, chosen)
            db.execute("UPDATE chats SET leaf = ? WHERE id = ?", (leaf, chat_id))

        self._file.write(work)

    def unhide(self, message_id: MessageId) -> None:
        """Bring a deleted message back with all that followed it, and show it."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("UPDATE messages SET hidden = 0 WHERE id = ?", (message_id,))
            for (number,) in chat_tree.subtree(db, message_id):
                chat_tree.index(db, number)

        self._file.write(work)
        self.show(message_id)

    # --- search and notes -----------------------------------------------------------------------

    def search(self, query: str) -> list[SearchHit]:
        """Return chats whose title or text holds all words of the query, the newest first."""
        return chat_search.search(self._file, query, self.chats())

    def note(self, name: str) -> str:
        """Return a small note of the app (such as the draft of a chat not yet begun), or ""."""
        rows = self._file.read("SELECT value FROM notes WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def save_note(self, name: str, value: str) -> None:
        """Store a small note under a name."""
        self._file.write(
            lambda db: db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))
        )

    # --- inside ---------------------------------------------------------------------------------

    def _say(self, notice: StoreNotice) -> None:
        if self._listener is None:
            self._unheard.append(notice)
        else:
            self._listener(notice)

    def _recover(self) -> None:
        """Mark what a crash left unfinished, and drop what was deleted long ago.

        A message that waited for a reply goes back to the draft: nobody sends it unasked.
        """
        old = self._clock() - HIDDEN_KEPT_S

        def work(db: sqlite3.Connection) -> None:
            unfinished = db.execute("SELECT id FROM messages WHERE state = 'partial'").fetchall()
            db.execute("UPDATE messages SET state = 'interrupted' WHERE state = 'partial'")
            for (number,) in unfinished:
                chat_tree.index(db, number)
            waiting = "SELECT id, draft, files, queued FROM chats WHERE queued != '[]'"
            for number, text, files, queued in db.execute(waiting).fetchall():
                draft = Draft.of(draft_parts(queued)) + Draft(text, draft_parts(files))
                db.execute(
                    "UPDATE chats SET draft = ?, files = ?, queued = '[]' WHERE id = ?",
                    (draft.text, encode(draft.files), number),
                )
            db.execute("DELETE FROM messages WHERE hidden > 0 AND hidden < ?", (old,))

        self._file.write(work)
