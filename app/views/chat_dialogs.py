"""File dialogs of the chat page: where a chat goes, which files come in."""

from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from app.services.chat_export import Kind
from app.services.chat_records import ChatId
from app.viewmodels.chat_files import ChatFiles
from app.wording import tr


class ChatDialogs:
    """Asks for files and hands them to the view model.

    Args:
        parent: the page they stand over.
        files: what takes the chosen files.
    """

    def __init__(self, parent: QWidget, files: ChatFiles) -> None:
        self._parent, self._files = parent, files

    def export_chat(self, chat_id: int, kind: Kind) -> None:
        """Ask for a place and write a chat there."""
        name = self._files.export_name(ChatId(chat_id), kind)
        path, _ = QFileDialog.getSaveFileName(self._parent, tr("Export chat"), name)
        if path:
            self._files.export_chat(ChatId(chat_id), Path(path), kind)

    def import_chats(self) -> None:
        """Ask for chat files and add their chats."""
        kinds = f"{tr('Chats')} (*.json)"
        paths, _ = QFileDialog.getOpenFileNames(self._parent, tr("Import chats"), "", kinds)
        if paths:
            self._files.import_chats([Path(path) for path in paths])

    def attach(self) -> None:
        """Ask for text files and attach them to the draft."""
        paths, _ = QFileDialog.getOpenFileNames(self._parent, tr("Attach text files"))
        if paths:
            self._files.attach([Path(path) for path in paths])
