"""The one table of keyboard shortcuts: feeds actions, the help dialog, the settings page, a test.

A shortcut with a `page` is handed to that page's `shortcut(id)` method by the main window; the
others act on the window itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.wording import Phrase, tr

PAGES: tuple[tuple[str, Phrase], ...] = (
    ("chat", tr("Chat")),
    ("models", tr("Models")),
    ("performance", tr("Performance")),
    ("profiler", tr("Profiler")),
    ("server", tr("Server")),
    ("logs", tr("Logs")),
    ("settings", tr("Settings")),
)


@dataclass(frozen=True, slots=True)
class Shortcut:
    """One entry.

    Attributes:
        id: what is done; unique.
        keys: key sequences in Qt's portable text; the first one is shown.
        text: what it does, for dialog and menus.
        group: head it stands under in the dialog.
        page: page that handles it; it is brought to the front first.
        listed_only: whoever has the focus handles the key by itself; shown, not bound. (Esc bubbles
            up: popover, drag, search field, then the window stops the reply.)
    """

    id: str
    keys: tuple[str, ...]
    text: Phrase
    group: Phrase
    page: str = ""
    listed_only: bool = False


_CHAT, _WINDOW, _VIEW = tr("Chat"), tr("Window"), tr("View")

SHORTCUTS: tuple[Shortcut, ...] = (
    Shortcut("new_chat", ("Ctrl+N",), tr("New chat"), _CHAT, "chat"),
    Shortcut("composer", ("Ctrl+L",), tr("Write a message"), _CHAT, "chat"),
    Shortcut("inspector", ("Ctrl+I",), tr("Show or hide the inspector"), _CHAT, "chat"),
    Shortcut("stop", ("Esc",), tr("Stop the reply"), _CHAT, listed_only=True),
    Shortcut("copy_reply", ("Ctrl+Shift+C",), tr("Copy the last reply"), _CHAT, "chat"),
    Shortcut("retry", ("Ctrl+R",), tr("Answer again"), _CHAT, "chat"),
    Shortcut("edit_last", ("Up",), tr("Edit the last message"), _CHAT, "chat", listed_only=True),
    Shortcut("palette", ("Ctrl+K",), tr("Find anything"), _WINDOW),
    Shortcut("search", ("Ctrl+F",), tr("Search on this page"), _WINDOW),
    Shortcut("import_chats", ("Ctrl+Shift+O",), tr("Import chats…"), _CHAT, "chat"),
    Shortcut("diagnostics", ("Ctrl+Shift+D",), tr("Copy diagnostics…"), _WINDOW, "logs"),
    Shortcut("settings", ("Ctrl+,",), tr("Settings"), _WINDOW),
    Shortcut("help", ("F1",), tr("Keyboard shortcuts"), _WINDOW),
    Shortcut("quit", ("Ctrl+Q",), tr("Quit"), _WINDOW),
    *(
        Shortcut(f"page_{name}", (f"Ctrl+{number}",), tr("Go to {page}", page=text), _VIEW)
        for number, (name, text) in enumerate(PAGES, 1)
    ),
    Shortcut("rail", ("Ctrl+B",), tr("Fold or unfold the rail"), _VIEW),
    Shortcut("zoom_in", ("Ctrl++", "Ctrl+="), tr("Larger"), _VIEW),
    Shortcut("zoom_out", ("Ctrl+-",), tr("Smaller"), _VIEW),
    Shortcut("zoom_reset", ("Ctrl+0",), tr("Original size"), _VIEW),
    Shortcut(
        "chart_table",
        ("Ctrl+Shift+T",),
        tr("Read the focused chart as a table"),
        _VIEW,
        "performance",
        listed_only=True,
    ),
    Shortcut("yield_now", ("Ctrl+Shift+Y",), tr("Yield memory now, or take it back"), _WINDOW),
)


@runtime_checkable
class TakesShortcuts(Protocol):
    """A page that handles shortcuts by id."""

    def shortcut(self, name: str) -> bool:
        """Do it; False if there is nothing to do."""


def shown_keys(shortcut: Shortcut) -> str:
    """Return the first key sequence as the platform writes it."""
    return QKeySequence(shortcut.keys[0]).toString(QKeySequence.SequenceFormat.NativeText)


def bind(window: QWidget, act: Callable[[Shortcut], None]) -> dict[str, QAction]:
    """Give `window` an action per shortcut, each calling `act`; returns them by id."""
    actions: dict[str, QAction] = {}
    for entry in SHORTCUTS:
        if entry.listed_only:
            continue
        action = QAction(window)
        action.setObjectName(entry.id)
        action.setShortcuts([QKeySequence(keys) for keys in entry.keys])
        action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        action.triggered.connect(_Call(act, entry))
        window.addAction(action)
        actions[entry.id] = action
    return actions


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with its shortcut; a plain object, so that nothing is captured by a closure."""

    act: Callable[[Shortcut], None]
    shortcut: Shortcut

    def __call__(self, _checked: bool = False) -> None:
        """Do it."""
        self.act(self.shortcut)
