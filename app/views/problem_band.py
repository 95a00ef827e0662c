"""The band below the strip while something is wrong: cause, what helps, and the way forward."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.viewmodels.session_words import Problem
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import hbox, vbox
from app.wording import tr


class ProblemBand(QWidget):
    """See the module. A refused model can be dismissed; a lost engine stays until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self._cause = Label("", "body", "text", 500, wrap=True)
        self._hint = Label("", "meta", "text2", wrap=True)
        self._last = Elide("", "meta", "text3")
        self.restart = Button(tr("Restart the engine"), small=True)
        self.smaller = Button(tr("Restart with 10 % smaller cache"), small=True)
        self.models = Button(tr("Choose a model"), small=True)
        self.log = Button(tr("Open log"), "ghost", small=True)
        self.close_button = Button(kind="ghost", icon="x", small=True, name=tr("Dismiss"))
        top = Qt.AlignmentFlag.AlignTop
        words = vbox(self._cause, self._hint, self._last, gap=2)
        buttons = hbox(None, self.log, self.smaller, self.restart, self.models, gap=6)
        row = hbox(
            (Icon("error", 16, "danger"), top),
            (vbox(words, buttons, gap=6), 1),
            (self.close_button, top),
            gap=9,
            pad=(14, 9, 8, 9),
        )
        self.setLayout(vbox(Card(row, edge="danger"), pad=(20, 10, 20, 0)))
        self.hide()

    def show_problem(self, problem: Problem | None) -> None:
        """Show what went wrong, or nothing."""
        self.setVisible(problem is not None)
        if problem is None:
            return
        pairs = ((self._cause, problem.sentence), (self._hint, problem.hint))
        for label, text in pairs:
            label.set_text(text)
            label.setVisible(bool(text))
        self._last.set_text(problem.last_log)
        self._last.setVisible(bool(problem.last_log))
        self.restart.setVisible(problem.can_restart)
        self.smaller.setVisible(problem.can_restart and problem.can_shrink)
        can_go_on = problem.kind == "load"  # the engine is well: the person may leave it at that
        self.models.setVisible(can_go_on)
        self.close_button.setVisible(can_go_on)
