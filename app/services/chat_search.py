"""Full-text search over all chats: titles, and the visible text of every branch.

The index holds trigrams, so parts of words and Chinese are found; words shorter than three
characters are looked for by scanning.
"""

from collections.abc import Sequence

from app.services.chat_file import ChatFile
from app.services.chat_records import Chat, MessageId, SearchHit

MAX_HITS = 50
MAX_ROWS = 500


def search(file: ChatFile, query: str, chats: Sequence[Chat]) -> list[SearchHit]:
    """Return the chats that hold all words of the query in a title or in one message.

    Args:
        file: the open database.
        query: what the person typed; nothing in it is an operator.
        chats: every chat; the hits keep its order.
    """
    words = query.split()
    if not words:
        return []
    places = _places(file, words)
    hits = []
    for chat in chats:
        title = chat.title.casefold()
        if chat.id in places:
            number, text = places[chat.id]
            hits.append(SearchHit(chat, MessageId(number), excerpt_of(text, words)))
        elif all(word.casefold() in title for word in words):
            hits.append(SearchHit(chat, None, ""))
    return hits[:MAX_HITS]


def excerpt_of(text: str, words: Sequence[str], around: int = 32) -> str:
    """Return the place where the first of the words occurs, on one line."""
    low = text.casefold()
    found = [place for word in words if (place := low.find(word.casefold())) >= 0]
    place = min(found, default=0)
    start = max(0, place - around)
    piece = " ".join(text[start : place + 2 * around].split())
    return ("…" if start else "") + piece + ("…" if place + 2 * around < len(text) else "")


def _places(file: ChatFile, words: Sequence[str]) -> dict[int, tuple[int, str]]:
    """Return the newest matching message of each chat: chat id -> (message id, text)."""
    short = [word for word in words if len(word) < 3]
    long = [word for word in words if len(word) >= 3]
    conditions = ["s.text LIKE ? ESCAPE '!'" for _ in short]
    values: list[object] = [f"%{_escaped(word)}%" for word in short]
    if long:
        conditions.append("search MATCH ?")
        values.append(" AND ".join('"' + word.replace('"', '""') + '"' for word in long))
    rows = file.read(
        "SELECT s.rowid, m.chat, s.text FROM search s JOIN messages m ON m.id = s.rowid"
        f" WHERE {' AND '.join(conditions)} ORDER BY s.rowid DESC LIMIT {MAX_ROWS}",
        tuple(values),
    )
    places: dict[int, tuple[int, str]] = {}
    for number, chat, text in rows:
        places.setdefault(chat, (number, text))
    return places


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
