"""The list of keyboard shortcuts, from the one table."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QWidget

from app.theme import follow
from app.views.shortcuts import SHORTCUTS, shown_keys
from app.widgets.buttons import Button
from app.widgets.chips import Chip
from app.widgets.labels import Label
from app.widgets.layout import Box, Item, Scroll, fixed, hbox, holder, vbox
from app.wording import tr


def shortcut_list() -> QWidget:
    """Return all shortcuts under their heads, as rows of words and keys."""
    groups: dict[str, list[Item]] = {}
    heads = {}
    for entry in SHORTCUTS:
        heads[entry.group.key] = entry.group
        row = hbox((Label(entry.text, "body", "text2"), 1), Chip(shown_keys(entry), mono=True))
        groups.setdefault(entry.group.key, []).append(row)
    columns: list[Box] = [
        vbox(Label(heads[key], "meta", "text", 600), *rows, gap=6) for key, rows in groups.items()
    ]
    return holder(vbox(*columns, None, gap=16))


class HelpDialog(QDialog):
    """Shown by F1.

    Signals:
        page_wanted(str): the person goes on to a page.
    """

    page_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dialog")
        close = Button(tr("Close"), "secondary")
        close.setDefault(True)
        close.clicked.connect(self.accept)
        self.first_run = Button(tr("Open the first run"), "ghost", "shield")
        self.first_run.clicked.connect(self._go)
        self.setLayout(
            vbox(
                Label(tr("Keyboard shortcuts"), "section", "text", 600),
                (Scroll(shortcut_list()), 1),
                hbox(self.first_run, None, close),
                gap=12,
                pad=(20, 16, 20, 16),
            )
        )
        fixed(self, width=440, min_height=520)
        follow(self.retheme)

    def _go(self) -> None:
        self.accept()
        self.page_wanted.emit("first_run")

    def retheme(self) -> None:
        """Say the title in the present language."""
        self.setWindowTitle(tr("Keyboard shortcuts"))
