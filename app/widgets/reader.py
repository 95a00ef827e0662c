"""Text to be read and copied, not changed: a report, a licence."""

from PySide6.QtWidgets import QFrame, QPlainTextEdit

from app.theme import color, follow, font
from app.wording import again


class Reader(QPlainTextEdit):
    """Plain text in a fixed pitch; `name` is what a screen reader calls it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.viewport().setAutoFillBackground(False)
        follow(self.retheme)

    def retheme(self) -> None:
        """Take font, inks and name from the present theme and language."""
        self.setFont(font("meta", mono=True))
        palette = self.palette()
        palette.setColor(palette.ColorRole.Text, color("text2"))
        self.setPalette(palette)
        self.setAccessibleName(again(self._name))
