"""The report of trouble as it will be copied, with the hidden places marked."""

from pathlib import Path

from PySide6.QtGui import QGuiApplication, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QDialog, QFileDialog, QTextEdit, QWidget

from app.services.redaction import Redacted
from app.theme import color, follow
from app.viewmodels.diagnostics import DiagnosticsViewModel
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.labels import Icon, Label
from app.widgets.layout import fixed, hbox, vbox
from app.widgets.reader import Reader
from app.wording import Phrase, tr, tr_count


class Preview(Reader):
    """The report; marks of what was hidden have another ground."""

    def __init__(self) -> None:
        self._marks: tuple[tuple[int, int], ...] = ()
        super().__init__(tr("Text of the report"))

    def show_report(self, report: Redacted) -> None:
        """Show another text; the place that is read stays."""
        place = self.verticalScrollBar().value()
        self.setPlainText(report.text)
        self._marks = report.marks
        self.retheme()
        self.verticalScrollBar().setValue(place)

    def retheme(self) -> None:
        """Mark in the present theme, too."""
        super().retheme()
        look = QTextCharFormat()
        look.setBackground(color("accentSoft"))
        look.setForeground(color("text"))
        self.setExtraSelections([self._selection(span, look) for span in self._marks])

    def _selection(self, span: tuple[int, int], look: QTextCharFormat) -> QTextEdit.ExtraSelection:
        found = QTextEdit.ExtraSelection()
        cursor = QTextCursor(self.document())
        cursor.setPosition(span[0])
        cursor.setPosition(span[1], QTextCursor.MoveMode.KeepAnchor)
        found.cursor, found.format = cursor, look
        return found


class DiagnosticsDialog(QDialog):
    """Shows the report, then copies or saves exactly that."""

    def __init__(self, vm: DiagnosticsViewModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("dialog")
        self._vm, self._report = vm, Redacted("", ())
        self.text = Preview()
        self.hidden = Label("", "meta", "text2", wrap=True)
        self.said = Label("", "meta", "text2")
        self.copy = Button(tr("Copy"), "primary", "copy")
        self.save = Button(tr("Save…"), "secondary", "save")
        close = Button(tr("Close"), "secondary")
        self.copy.setDefault(True)
        self.copy.clicked.connect(self._copy)
        self.save.clicked.connect(self._save)
        close.clicked.connect(self.reject)
        promise = tr("This is copied, and no more. Nothing is sent anywhere.")
        self.setLayout(
            vbox(
                Label(tr("Diagnostics"), "section", "text", 600),
                Label(promise, "body", "text2", wrap=True),
                hbox(Icon("shield", 14, "text3"), (self.hidden, 1), gap=6),
                (Card(vbox((self.text, 1), pad=(12, 10, 12, 10)), fill="code"), 1),
                hbox((self.said, 1), close, self.save, self.copy, gap=8),
                gap=10,
                pad=(20, 16, 20, 16),
            )
        )
        fixed(self, width=700, min_height=520)
        vm.changed.connect(self._show)
        self._show()
        vm.begin()
        follow(self.retheme)

    def retheme(self) -> None:
        """Say the title in the present language."""
        self.setWindowTitle(tr("Diagnostics"))

    def _show(self) -> None:
        """Take the report of now; facts of the machine may have come."""
        self._report = self._vm.report()
        self.text.show_report(self._report)
        self.hidden.set_text(hidden_text(self._report.counts))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._report.text)
        self.said.set_text(tr("Copied."))

    def _save(self) -> None:
        name = str(Path.home() / "freetoken-diagnostics.txt")
        path, _ = QFileDialog.getSaveFileName(self, tr("Save the report"), name)
        if path:
            problem = self._vm.save(Path(path), self._report.text)
            self.said.set_text(problem or tr("Saved."))


def hidden_text(counts: dict[str, int]) -> Phrase:
    """Say how many places were hidden."""
    total = sum(counts.values())
    if not total:
        return tr("Nothing in it had to be hidden.")
    return tr_count(
        "{count} place is hidden: keys, logins, mail and network addresses, names.",
        "{count} places are hidden: keys, logins, mail and network addresses, names.",
        total,
    )
