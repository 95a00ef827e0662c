"""Cards and lines of the conversation: failures, crashes, incomplete replies, notices, queue."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.services.chat_words import Problem
from app.services.outcome import ProcessOutcome
from app.theme import area, draw_text, painter
from app.widgets import Button, Card, Chip, Elide, Icon, Label, hbox, vbox
from app.widgets.chat.wrap import Wrap
from app.widgets.layout import Item
from app.wording import tr

TOP = Qt.AlignmentFlag.AlignTop


class ErrorCard(Card):
    """Why a reply failed, in the place of the reply: cause, what to do, at most two buttons.

    Signals:
        retried: answer again.
        page_wanted: (page) open the setting that helps.
    """

    retried = Signal()
    page_wanted = Signal(str)

    def __init__(self, problem: Problem) -> None:
        self._page = problem.page
        self.retry = Button(tr("Try again"), "secondary", "retry")
        self.open = Button(tr("Open split"), "ghost", "performance")
        title = Label(problem.title, "read", "text", 600, wrap=True)
        parts: list[QWidget] = [_line(problem.cause)]
        if problem.hint:
            parts.append(_line(problem.hint))
        head = hbox((Icon("error", 18, "danger"), TOP), (title, 1), gap=9)
        row = hbox(self.retry, self.open, None, gap=8)
        super().__init__(
            vbox(head, *parts, row, gap=8, pad=(18, 14, 16, 14)), fill="surface", edge="danger"
        )
        self.open.setVisible(bool(problem.page))
        self.retry.clicked.connect(self.retried)
        self.open.clicked.connect(self._go)

    def _go(self) -> None:
        self.page_wanted.emit(self._page)


class LogLine(Elide):
    """One line of a log, in mono, shortened where it is too long."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        draw_text(painter(self), area(self), self.text(), 11, "text2", mono=True, elide=True)


class CrashCard(Card):
    """How the engine ended: cause, what helps, saved note, last log line, the way back.

    Where memory was short the smaller cache is the primary way back, else the plain restart.

    Args:
        outcome: how it ended.
        hint: what to do, or "".
        can_shrink: whether a smaller cache could help at all.

    Signals:
        restart_wanted: (smaller) start the engine again, with a smaller cache or as before.
        log_wanted: open the logs.
    """

    restart_wanted = Signal(bool)
    log_wanted = Signal()

    def __init__(self, outcome: ProcessOutcome, hint: str, can_shrink: bool) -> None:
        self.outcome, self._log = outcome, outcome.last_log
        title = Label(tr("The engine stopped"), "read", "text", 600)
        cause = _line(outcome.sentence)
        kept = tr("Your chats are stored, with what has arrived of a reply.")
        saved = hbox(
            (Icon("check", 14, "accentText"), TOP),
            (Label(kept, "meta", "text2", wrap=True), 1),
            gap=6,
        )
        self._make_ways(outcome.lacked_memory and can_shrink)
        parts: list[Item] = [hbox(Icon("error", 18, "danger"), title, None, gap=9), cause]
        parts += [_line(hint), saved] if hint else [saved]
        if outcome.last_log:
            copy = Button("", "ghost", "copy", small=True, name=tr("Copy the last log line"))
            copy.clicked.connect(self._copy)
            line = LogLine(outcome.last_log, "caption", "text2")
            parts.append(Card(hbox((line, 1), copy, pad=(10, 3, 4, 3)), fill="code", radius=6))
        ways = Wrap()
        for way in self._ways:
            ways.addWidget(way)
        parts.append(ways)
        super().__init__(vbox(*parts, gap=10, pad=(18, 14, 16, 14)), fill="surface", edge="danger")
        self.smaller.setVisible(can_shrink)  # now that it has a parent: else it would be a window
        self.smaller.clicked.connect(self._restart_smaller)
        self.as_before.clicked.connect(self._restart)
        self.log.clicked.connect(self.log_wanted)

    def _make_ways(self, smaller_first: bool) -> None:
        self.smaller = Button(tr("Restart with 10 % smaller cache"))
        self.as_before = Button(tr("Restart the engine"))
        self.log = Button(tr("Open log"), "ghost", "logs")
        first, second = self.as_before, self.smaller
        if smaller_first:
            first, second = self.smaller, self.as_before
            self.as_before.set_text(tr("Restart as before"))
        first.set_kind("primary")
        first.set_icon("retry")
        self._ways = (first, second, self.log)

    def _restart(self) -> None:
        self.restart_wanted.emit(False)

    def _restart_smaller(self) -> None:
        self.restart_wanted.emit(True)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._log)


class IncompleteLine(QWidget):
    """A chip that says why a reply has no end, how much is kept, and a button to go on.

    Signals:
        continued: go on with this reply.
        retried: answer again.
    """

    continued = Signal()
    retried = Signal()

    def __init__(self, words: str, kept: str, tone: str, has_text: bool) -> None:
        super().__init__()
        self.go_on = Button(tr("Continue") if has_text else tr("Answer now"), small=True)
        self.setLayout(
            hbox(Chip(words, tone), Label(kept, "meta", "text3"), 4, self.go_on, None, gap=8)
        )
        self.go_on.clicked.connect(self.continued if has_text else self.retried)


class QueueCard(Card):
    """A message that waits for the reply before it.

    Signals:
        taken_back: the person wants it in the composer again.
    """

    taken_back = Signal()

    def __init__(self) -> None:
        self._text = Elide("", "body", "text2")
        self.edit = Button(tr("Take back"), "ghost", "edit", small=True)
        row = hbox(
            Icon("clock", 14, "text3"),
            Label(tr("Sent after this reply:"), "meta", "text3"),
            (self._text, 1),
            self.edit,
            gap=8,
            pad=(12, 5, 6, 5),
        )
        super().__init__(row, radius=8)
        self.edit.clicked.connect(self.taken_back)

    def set_text(self, text: str) -> None:
        """Show the message, hidden if there is none."""
        self._text.set_text(" ".join(text.split()))
        self.setVisible(bool(text))


class NoticeBar(Card):
    """A sentence about the chat file that stays until it is closed.

    Signals:
        closed: put it away.
    """

    closed = Signal()

    def __init__(self) -> None:
        self._label = Label("", "meta", "text", wrap=True)
        close = Button("", "ghost", "x", small=True, name=tr("Close this notice"))
        row = hbox(
            (Icon("warn", 16, "warn"), TOP), (self._label, 1), (close, TOP), pad=(12, 8, 6, 8)
        )
        super().__init__(row, fill="warnSoft", border="", radius=8)
        close.clicked.connect(self.closed)

    def set_text(self, text: str) -> None:
        """Show a sentence; hidden if there is none."""
        self._label.set_text(text)
        self.setVisible(bool(text))


def _line(text: str) -> Label:
    return Label(text, "body", "text2", wrap=True)
