"""What the palette offers for the words typed: pages, actions, models, chats, settings.

QtCore only. All but the text of chats answers at once; that is searched a moment after the last
key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.chat_records import Chat, SearchHit
from app.viewmodels.palette_match import best
from app.wording import Phrase, again, tr

Kind = Literal["page", "action", "model", "chat", "setting", "text"]
HEADS: tuple[tuple[Kind, Phrase], ...] = (
    ("page", tr("Pages")),
    ("action", tr("Actions")),
    ("model", tr("Models")),
    ("chat", tr("Chats")),
    ("setting", tr("Settings")),
    ("text", tr("In the text of chats")),
)
MOST = 6  # of a kind while something is typed
MOST_CHATS = 5  # before anything is typed: the last used
SEARCH_MS = 120  # after the last key


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that can be done.

    Attributes:
        kind: what it is.
        title: what it is called.
        detail: beside the title: keys, a setting's section, facts of a model, the place in a text.
        target: id of a page, action or section, path of a model, id of a chat.
        message: id of the message that holds the text; 0 = none.
    """

    kind: Kind
    title: str
    detail: str = ""
    target: str = ""
    message: int = 0


class PaletteViewModel(QObject):
    """Finds entries for words.

    Args:
        fixed: pages, actions and settings; the latter are offered for words only.
        models: the models that can be loaded, in order.
        chats: all chats, the last used first.
        search: finds chats by their text.

    Signals:
        changed: other entries; read `groups`.
    """

    changed = Signal()

    def __init__(
        self,
        fixed: Sequence[Entry],
        models: Callable[[], Sequence[Entry]],
        chats: Callable[[], Sequence[Chat]],
        search: Callable[[str], Sequence[SearchHit]],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._fixed, self._models, self._chats, self._search = tuple(fixed), models, chats, search
        self._query = ""
        self._near: tuple[Entry, ...] = ()
        self._far: tuple[Entry, ...] = ()
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.setInterval(SEARCH_MS)
        self._later.timeout.connect(self.search_texts)

    @property
    def query(self) -> str:
        """The words typed."""
        return self._query

    @property
    def groups(self) -> tuple[tuple[Phrase, tuple[Entry, ...]], ...]:
        """Heads and what stands below them; no head without an entry."""
        every = (*self._near, *self._far)
        made = ((head, tuple(e for e in every if e.kind == kind)) for kind, head in HEADS)
        return tuple((head, entries) for head, entries in made if entries)

    def set_query(self, query: str) -> None:
        """Look for other words."""
        self._query = " ".join(query.split())
        self._near, self._far = tuple(self._find_near()), ()
        if self._query:
            self._later.start()
        else:
            self._later.stop()
        self.changed.emit()

    def search_texts(self) -> None:
        """Look for the words in the text of all chats now."""
        self._later.stop()
        known = {entry.target for entry in self._near if entry.kind == "chat"}
        hits = [hit for hit in self._search(self._query) if hit.message is not None]
        self._far = tuple(
            Entry("text", hit.chat.title, hit.excerpt, str(hit.chat.id), hit.message or 0)
            for hit in hits
            if str(hit.chat.id) not in known
        )[:MOST]
        if self._far:
            self.changed.emit()

    def close(self) -> None:
        """Look no further: the palette is put away."""
        self._later.stop()

    def _find_near(self) -> list[Entry]:
        chats = [Entry("chat", c.title or tr("New chat"), "", str(c.id)) for c in self._chats()]
        if not self._query:
            always = [entry for entry in self._fixed if entry.kind != "setting"]
            return [*always, *self._models(), *chats[:MOST_CHATS]]
        found: list[Entry] = []
        for kind, _ in HEADS[:-1]:
            of_kind = [e for e in (*self._fixed, *self._models(), *chats) if e.kind == kind]
            found += best(self._query, of_kind, _words, MOST)
        return found


def _words(entry: Entry) -> str:
    """By what an entry is found: a model also by what is done with it."""
    title = again(entry.title)
    return f"{tr('Load')} {title}" if entry.kind == "model" else title
