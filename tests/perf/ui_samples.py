"""Chats for the window's bench: thousands of messages of every kind, stored at once."""

import sqlite3

from app.services.chat_records import Chat
from app.services.chat_rows import encode
from app.services.chat_store import ChatStore
from engine.protocol.messages import Part

_QUESTION = "How does the cache decide which of the experts it keeps, number {number}?"
_ANSWERS = (
    "It keeps what was **used last**. An expert that a step needs is never evicted in that step.",
    "Three things count:\n\n- how often it was used\n- when it was used last\n- what a copy costs",
    "As code:\n\n```python\ndef keep(uses, age):\n    return uses / (1 + age)\n\n"
    "for expert in experts:\n    print(expert, keep(expert.uses, expert.age))\n```\n\nThat is all.",
    "| expert | uses | age |\n|---|---:|---:|\n| 3 | 120 | 1 |\n| 17 | 80 | 4 |\n",
    "A longer answer. " * 60 + "\n\n" + "And a second paragraph of it. " * 30,
)


def long_chat(store: ChatStore, count: int) -> Chat:
    """Store a chat of `count` messages and return it."""
    chat = store.create_chat(f"{count:,} messages")

    def work(db: sqlite3.Connection) -> None:
        last = db.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
        rows = []
        for number in range(1, count + 1):
            is_question = number % 2 == 1
            answer = _ANSWERS[number // 2 % len(_ANSWERS)]
            text = _QUESTION.format(number=number) if is_question else answer
            parent = last + number - 1 if number > 1 else None
            role = "user" if is_question else "assistant"
            rows.append((last + number, chat.id, parent, role, encode((Part(text=text),)), 0.0))
        db.executemany(
            "INSERT INTO messages(id, chat, parent, role, parts, created) VALUES (?,?,?,?,?,?)",
            rows,
        )
        db.execute("UPDATE chats SET leaf = ? WHERE id = ?", (last + count, chat.id))

    store._file.write(work)
    return chat
