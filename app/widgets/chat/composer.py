"""Where messages are written: grows with its lines, says what sending will do, never disappears."""

from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QMenu, QWidget

from app.services.chat_records import REASONING, Reasoning
from app.services.chat_words import REASONING_WORDS
from app.theme import RADIUS, area, color, follow, painter, pen
from app.widgets import Button, Label, hbox, vbox
from app.widgets.chat.cards import QueueCard
from app.widgets.chat.edits import GrowingEdit
from app.widgets.chat.files import FileChips
from app.wording import figures, tr
from engine.protocol.messages import Part


@dataclass(frozen=True, slots=True)
class Writing:
    """What the composer must know.

    Attributes:
        model: name of the loaded model, or "".
        is_coming: a model is on its way.
        is_replying: a reply is being written.
        is_waiting: a reply waits for a model.
        queued: the message that waits for the reply, or "".
        files: attached to the draft.
        reasoning: how much the model shall think.
        draft_tokens: tokens of the draft; 0 = not counted.
    """

    model: str = ""
    is_coming: bool = False
    is_replying: bool = False
    is_waiting: bool = False
    queued: str = ""
    draft_tokens: int = 0
    files: tuple[Part, ...] = ()
    reasoning: Reasoning = ""


class Composer(QWidget):
    """The edit, its row of facts and the one button.

    Signals:
        typed: (text) after each change.
        sent: (text) Enter or the button.
        stopped: the button, while there is nothing to send and something to stop.
        taken_back: the queued message is wanted in the edit.
        asked_last: Up in the empty edit.
        dropped: (list of Path) files.
        files_wanted: the clip: choose files.
        detached: (place) one of the files is taken away.
        reasoned: (choice) let the model think so much.
    """

    typed = Signal(str)
    sent = Signal(str)
    stopped = Signal()
    taken_back = Signal()
    asked_last = Signal()
    dropped = Signal(list)
    files_wanted = Signal()
    detached = Signal(int)
    reasoned = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._writing = Writing()
        self.edit = GrowingEdit(tr("Message"))
        self.tokens = Label("", "meta", "text3")
        self.button = Button("", "secondary", "send", name=tr("Send"))
        self.queue = QueueCard()
        self.hint = Label("", "caption", "text3")
        self.hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.files = FileChips(removes=True)
        self.clip = Button("", "ghost", "attach", small=True, name=tr("Attach text files"))
        self.think = Button("", "ghost", "thought", small=True, tail="down")
        row = hbox(self.clip, self.think, None, self.tokens, self.button, gap=6)
        self._box = _Frame()
        edge = hbox((vbox(self.files, self.edit, gap=8), 1), pad=(7, 0, 7, 0))
        self._box.setLayout(vbox(edge, row, gap=6, pad=(8, 12, 8, 8)))
        self.setLayout(vbox(self.queue, self._box, self.hint, gap=5))
        self.queue.hide()
        self.edit.textChanged.connect(self._on_text)
        self.edit.submitted.connect(self.send)
        self.edit.asked_last.connect(self.asked_last)
        self.edit.dropped.connect(self.dropped)
        self.button.clicked.connect(self._press)
        self.clip.clicked.connect(self.files_wanted)
        self.think.clicked.connect(self._choose_reasoning)
        self.files.removed.connect(self.detached)
        self.queue.taken_back.connect(self.taken_back)
        follow(self._show)

    @property
    def text(self) -> str:
        """What is typed."""
        return self.edit.toPlainText()

    def set_text(self, text: str) -> None:
        """Put a draft in; the cursor goes to its end."""
        if text != self.text:
            self.edit.setPlainText(text)
            self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)

    def set_writing(self, writing: Writing) -> None:
        """Take what sending would do now."""
        if writing != self._writing:
            self._writing = writing
            self._show()

    def send(self) -> None:
        """Send what is typed, if there is anything."""
        text = self.text
        if self._has_draft:
            self.edit.clear()
            self.sent.emit(text.strip("\n"))

    def focus(self) -> None:
        """Put the cursor into the edit."""
        self.edit.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _press(self) -> None:
        if self._has_draft:
            self.send()
        elif self._is_busy:
            self.stopped.emit()

    def reasoning_menu(self) -> QMenu:
        """Return the choices of how much to think."""
        menu = QMenu(self)
        for choice in REASONING:
            action = menu.addAction(REASONING_WORDS[choice], partial(self.reasoned.emit, choice))
            action.setCheckable(True)
            action.setChecked(choice == self._writing.reasoning)
        return menu

    def _choose_reasoning(self) -> None:
        menu = self.reasoning_menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.think.mapToGlobal(QPoint(0, -menu.sizeHint().height())))

    @property
    def _has_draft(self) -> bool:
        return bool(self.text.strip()) or bool(self._writing.files)

    @property
    def _is_busy(self) -> bool:
        return self._writing.is_replying or self._writing.is_waiting

    def _on_text(self) -> None:
        self._show_button()
        self.typed.emit(self.text)

    def _show(self) -> None:
        """Words, count and button for the present state."""
        now = self._writing
        if now.is_waiting:
            placeholder = tr("Write the next message. It is sent when the model is ready.")
        elif now.is_replying:
            placeholder = tr("Write the next message. It is sent when this reply is done.")
        elif now.model:
            placeholder = tr("Message {model}", model=now.model)
        elif now.is_coming:
            placeholder = tr("Write now: the message waits while the model loads.")
        else:
            placeholder = tr("Write now: the message waits until a model is loaded.")
        self.edit.set_placeholder(placeholder)
        hint = tr("Enter to send, Shift+Enter for a new line")
        self.hint.set_text(tr("Waiting for the model") if now.is_waiting else hint)
        self.queue.set_text(now.queued)
        self.files.set_files(now.files)
        self.think.set_text(
            tr("Reasoning: {choice}", choice=REASONING_WORDS[now.reasoning])
            if now.reasoning
            else tr("Reasoning")
        )
        self._show_button()

    def _show_button(self) -> None:
        has_text, button = self._has_draft, self.button
        tokens = self._writing.draft_tokens
        shown = has_text and tokens > 0
        self.tokens.set_text(tr("{count} tokens", count=figures.tokens(tokens)) if shown else "")
        if has_text and self._is_busy:
            icon, kind, name = "clock", "secondary", tr("Send after this reply")
        elif self._is_busy:
            icon, kind, name = "stop", "secondary", tr("Stop")
        else:
            icon, kind, name = "send", "primary" if has_text else "secondary", tr("Send")
        button.set_icon(icon)
        button.set_kind(kind)
        button.set_name(name)
        button.setEnabled(has_text or self._is_busy)


class _Frame(QWidget):
    """The ground and outline around the edit; one with the edit."""

    def __init__(self) -> None:
        super().__init__()
        follow(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        p = painter(self)
        p.setBrush(color("surface"))
        p.setPen(pen("control"))
        radius = RADIUS["card"]
        p.drawRoundedRect(area(self).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
