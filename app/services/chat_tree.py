"""Steps through the message tree inside one transaction: down, below, above; and the search index.

Only `chat_store` uses this; the functions take its open connection.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from app.services.chat_records import Chat, ChatId, Message, MessageId, MessageState
from app.services.chat_rows import encode, sampling_json
from app.services.chat_schema import searchable


def index(db: sqlite3.Connection, number: int) -> None:
    """Make search see the present text of a message."""
    row = db.execute("SELECT parts FROM messages WHERE id = ?", (number,)).fetchone()
    db.execute("DELETE FROM search WHERE rowid = ?", (number,))
    if row is not None and (text := searchable(row[0])):
        db.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", (number, text))


def insert(db: sqlite3.Connection, message: Message, created: float) -> MessageId:
    """Add a row for a message, whatever its own id and time. Returns its id."""
    cursor = db.execute(
        "INSERT INTO messages(chat, parent, role, parts, model, state, facts, created)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.chat_id,
            message.parent,
            message.role,
            encode(message.parts),
            message.model,
            message.state,
            encode(message.facts),
            created,
        ),
    )
    return MessageId(cursor.lastrowid or 0)


def append(db: sqlite3.Connection, message: Message, now: float) -> MessageId:
    """Add a message below its parent and show it. Returns its id."""
    number = insert(db, message, now)
    if message.state is not MessageState.PARTIAL:
        index(db, number)
    db.execute("UPDATE messages SET chosen = ? WHERE id = ?", (number, message.parent))
    db.execute(
        "UPDATE chats SET leaf = ?, updated = ? WHERE id = ?", (number, now, message.chat_id)
    )
    return number


def insert_chat(db: sqlite3.Connection, chat: Chat) -> Chat:
    """Add a chat without messages, whatever its own id and leaf. Returns it with its id."""
    cursor = db.execute(
        "INSERT INTO chats(title, created, updated) VALUES (?, ?, ?)",
        (chat.title, chat.created, chat.updated),
    )
    made = replace(chat, id=ChatId(cursor.lastrowid or 0))
    save_chat(db, made)
    return made


def save_chat(db: sqlite3.Connection, chat: Chat) -> None:
    """Store all of a chat that a person sets; the leaf follows the messages."""
    db.execute(
        "UPDATE chats SET title = ?, pinned = ?, system_prompt = ?, sampling = ?,"
        " draft = ?, files = ?, queued = ?, preset = ?, reasoning = ? WHERE id = ?",
        (
            chat.title,
            int(chat.pinned),
            chat.system_prompt,
            sampling_json(chat.sampling),
            chat.draft,
            encode(chat.files),
            encode(chat.queued),
            chat.preset,
            chat.reasoning,
            chat.id,
        ),
    )


def leaf_below(db: sqlite3.Connection, number: int) -> int:
    """Follow the chosen answers down; where none is chosen or it is hidden, the newest."""
    while True:
        row = db.execute(
            "SELECT c.id FROM messages m JOIN messages c ON c.parent = m.id AND c.hidden = 0"
            " WHERE m.id = ? ORDER BY c.id = m.chosen DESC, c.id DESC LIMIT 1",
            (number,),
        ).fetchone()
        if row is None:
            return number
        number = row[0]


def subtree(db: sqlite3.Connection, number: int) -> list[tuple[int]]:
    """Return a message and what follows it, as far as nothing is hidden by its own."""
    return db.execute(
        "WITH RECURSIVE down(id) AS (SELECT ? UNION ALL"
        " SELECT m.id FROM messages m JOIN down ON m.parent = down.id WHERE m.hidden = 0)"
        " SELECT id FROM down",
        (number,),
    ).fetchall()


def is_hidden(db: sqlite3.Connection, number: int) -> bool:
    """Whether a message or anything above it was deleted."""
    row = db.execute(
        "WITH RECURSIVE up(id, parent, hidden) AS ("
        " SELECT id, parent, hidden FROM messages WHERE id = ? UNION ALL"
        " SELECT m.id, m.parent, m.hidden FROM messages m JOIN up ON m.id = up.parent)"
        " SELECT max(hidden) FROM up",
        (number,),
    ).fetchone()
    return bool(row[0])


def add_whole(
    db: sqlite3.Connection, chat: Chat, messages: Sequence[Message], shown: Sequence[MessageId]
) -> ChatId:
    """Add a chat with all its messages. Returns its id.

    Args:
        db: the open database, in a transaction.
        chat: title, settings and times; its id and leaf are not used.
        messages: parents before their answers; their ids are those of the file they come from.
        shown: ids of the messages on screen, from the first to the leaf.
    """
    chat_id = insert_chat(db, chat).id
    numbers = dict[int | None, MessageId | None]({None: None})
    for message in messages:
        row = replace(message, chat_id=chat_id, parent=numbers[message.parent])
        number = insert(db, row, message.created)
        numbers[message.id] = number
        index(db, number)
    for parent, child in pairwise(shown):
        db.execute("UPDATE messages SET chosen = ? WHERE id = ?", (numbers[child], numbers[parent]))
    leaf = numbers[shown[-1]] if shown else None
    db.execute("UPDATE chats SET leaf = ? WHERE id = ?", (leaf, chat_id))
    return chat_id
