"""The one dialog: asks before what cannot be undone. Everything else is said in place."""

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QDialog, QWidget

from app.theme import follow
from app.widgets.buttons import Button
from app.widgets.labels import Label
from app.widgets.layout import fixed, hbox, vbox
from app.wording import again


class Question(QDialog):
    """A question, what is freed or lost, a safe button first and default, and the act.

    `accepted` means that the person wants the act.
    """

    def __init__(self, parent: QWidget, question: str, loss: str, safe: str, act: str) -> None:
        super().__init__(parent)
        self.setObjectName("dialog")
        self._question = question
        self.safe = Button(safe, "secondary")
        self.act = Button(act, "danger", "trash")
        self.safe.setDefault(True)
        self.safe.clicked.connect(self.reject)
        self.act.clicked.connect(self.accept)
        self.setLayout(
            vbox(
                Label(question, "section", "text", 600, wrap=True),
                Label(loss, "body", "text2", wrap=True),
                4,
                hbox(None, self.safe, self.act),
                gap=8,
                pad=(20, 16, 16, 14),
            )
        )
        fixed(self, width=420)
        follow(self.retheme)
        self.safe.setFocus()

    def retheme(self) -> None:
        """Say the title in the present language, in as much room as its words need."""
        self.setWindowTitle(again(self._question))
        QTimer.singleShot(0, self, self.adjustSize)  # when all labels have their words


def ask(
    parent: QWidget, question: str, loss: str, safe: str, act: str, then: Callable[[], None]
) -> Question:
    """Ask without blocking; `then` is called if the person wants the act. Phrases, not data."""
    dialog = Question(parent, question, loss, safe, act)
    dialog.accepted.connect(then)
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()
    return dialog
