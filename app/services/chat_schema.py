"""Tables of the chat database and the steps from each older version to the present one.

`PRAGMA user_version` numbers the schema. Each step runs inside one transaction, so a crash leaves
the old version whole. Only `chat_store` uses this.
"""

import sqlite3

import msgspec

from app.services.chat_records import files_of, joined
from engine.protocol.messages import Part

# 1: chats and the message tree. 2: full-text search, hidden (deleted) messages, the remembered
# version of each turn, and small notes of the app itself. 3: files of the draft, the
# message that waits for a reply, preset, reasoning.
_STEP_1 = (
    """CREATE TABLE IF NOT EXISTS chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL DEFAULT '',
        pinned INTEGER NOT NULL DEFAULT 0,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        system_prompt TEXT NOT NULL DEFAULT '',
        sampling TEXT,
        draft TEXT NOT NULL DEFAULT '',
        leaf INTEGER
    )""",
    """CREATE TABLE IF NOT EXISTS messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        parent INTEGER REFERENCES messages(id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        parts TEXT NOT NULL,
        model TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL DEFAULT 'done',
        facts TEXT NOT NULL DEFAULT '{}',
        created REAL NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS messages_of_chat ON messages(chat)",
    "CREATE INDEX IF NOT EXISTS messages_of_parent ON messages(parent)",
)
_STEP_2 = (
    "ALTER TABLE messages ADD COLUMN hidden REAL NOT NULL DEFAULT 0",
    "ALTER TABLE messages ADD COLUMN chosen INTEGER",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # Trigrams find parts of words, and Chinese, which has no spaces to cut at.
    "CREATE VIRTUAL TABLE search USING fts5(text, tokenize = 'trigram')",
)
_STEP_3 = (
    "ALTER TABLE chats ADD COLUMN files TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE chats ADD COLUMN queued TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE chats ADD COLUMN preset TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chats ADD COLUMN reasoning TEXT NOT NULL DEFAULT ''",
)

VERSION = 3

_parts_decoder = msgspec.json.Decoder(tuple[Part, ...])


def version_of(db: sqlite3.Connection) -> int:
    """Return the schema version of the file; 0 for an empty one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection) -> int:
    """Bring the file to `VERSION`. Returns the version it had. The connection is in autocommit."""
    found = version_of(db)
    for number, step in ((1, _STEP_1), (2, _STEP_2), (3, _STEP_3)):
        if found >= number:
            continue
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                db.execute(statement)
            if number == 2:
                _fill_search(db)
            db.execute(f"PRAGMA user_version = {number}")
        except sqlite3.Error:
            if db.in_transaction:  # a full disk has rolled back already
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    return found


def searchable(parts: str) -> str:
    """Return what search looks through in a stored message: its text and its files."""
    found = parts_from(parts)
    files = [f"{part.name}\n{part.text}" for part in files_of(found)]
    return "\n".join([text for text in (joined(found, "text"), *files) if text])


def parts_from(stored: str) -> tuple[Part, ...]:
    """Read the parts of one message. A damaged cell becomes its own text: nothing is dropped."""
    try:
        return _parts_decoder.decode(stored)
    except msgspec.MsgspecError:
        return (Part(kind="text", text=str(stored)),)


def _fill_search(db: sqlite3.Connection) -> None:
    rows = db.execute("SELECT id, parts FROM messages").fetchall()
    for message_id, parts in rows:
        db.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", (message_id, searchable(parts)))
