"""One message: role line with its actions, reasoning, blocks, what is missing, figures.

Takes records, gives intents as signals with the message's id. Reused while a reply grows.
"""

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QEnterEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QGraphicsOpacityEffect, QSizePolicy, QWidget

from app.services.chat_records import Message, MessageState
from app.services.chat_words import (
    clock_text,
    incomplete_text,
    problem_of,
    stats_text,
    thought_text,
)
from app.theme import follow
from app.widgets import Button, Card, Elide, Icon, Label, hbox, vbox
from app.widgets.chat.body import MessageBody, user_card
from app.widgets.chat.cards import ErrorCard, IncompleteLine
from app.widgets.chat.edits import GrowingEdit
from app.widgets.chat.files import FileChips
from app.widgets.chat.reasoning import ReasoningFold
from app.widgets.chat.stats import StatsLine
from app.widgets.rail import Mark
from app.wording import tr, tr_count


@dataclass(frozen=True, slots=True)
class Place:
    """What a message's widget must know besides the message.

    Attributes:
        version: 1 for the first version of this turn.
        versions: how many there are.
        is_running: the reply is being written.
        is_waiting: it waits for a model.
        is_last: it is the last one on screen.
        now: seconds since the epoch.
    """

    version: int = 1
    versions: int = 1
    is_running: bool = False
    is_waiting: bool = False
    is_last: bool = False
    now: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether the reply is being written or waits for a model."""
        return self.is_running or self.is_waiting


@dataclass(frozen=True, slots=True)
class Opened:
    """What a person unfolded in a message; None = the reasoning opens and closes by itself."""

    reasoning: bool | None = None
    trace: bool = False


class RoleBar(QWidget):
    """Branch switch and actions at the right of the role line; seen on hover or focus."""

    def __init__(self, is_reply: bool) -> None:
        super().__init__()
        self.left = Button("", "ghost", "left", small=True, name=tr("Version before"))
        self.right = Button("", "ghost", "right", small=True, name=tr("Next version"))
        self.count = Label("", "caption", "text2", 500)
        self.copy = Button("", "ghost", "copy", small=True, name=tr("Copy message"))
        self.edit = Button("", "ghost", "edit", small=True, name=tr("Edit message"))
        again_name = tr("Answer again") if is_reply else tr("Answer this message again")
        self.retry = Button("", "ghost", "retry", small=True, name=again_name)
        self.delete = Button("", "ghost", "trash", small=True, name=tr("Delete message"))
        self._actions = QWidget()
        self._actions.setLayout(hbox(self.copy, self.edit, self.retry, self.delete, gap=1))
        self._effect = QGraphicsOpacityEffect(self._actions)
        self._actions.setGraphicsEffect(self._effect)
        self.setLayout(hbox(self.left, self.count, self.right, 4, self._actions, gap=1))
        self.reveal(False)

    def reveal(self, on: bool) -> None:
        """Show the actions or make them unseen; they stay reachable by Tab."""
        self._effect.setOpacity(1.0 if on else 0.0)

    def take_focus(self, step: int) -> None:
        """Take the keyboard: the arrow of that direction, or the other one at the end."""
        first, second = (self.left, self.right) if step < 0 else (self.right, self.left)
        (first if first.isEnabled() else second).setFocus(Qt.FocusReason.OtherFocusReason)

    def set_place(self, place: Place) -> None:
        """Show which version this is, and what can be done now."""
        many = place.versions > 1
        for widget in (self.left, self.count, self.right):
            widget.setVisible(many)
        self.count.set_text(f"{place.version} / {place.versions}")
        self.left.setEnabled(place.version > 1)
        self.right.setEnabled(place.version < place.versions)
        busy = place.is_busy
        self.edit.setEnabled(not busy)
        self.retry.setEnabled(not busy)


class MessageView(QWidget):
    """A message on screen.

    Signals (all with the message id first):
        edited(id, text), retried(id), continued(id), deleted(id), switched(id, step);
        page_wanted(page).
    """

    edited = Signal(int, str)
    retried = Signal(int)
    continued = Signal(int)
    deleted = Signal(int)
    switched = Signal(int, int)
    page_wanted = Signal(str)

    def __init__(self, message: Message, place: Place) -> None:
        super().__init__()
        self.message, self._place = message, place
        self._is_reply = message.role == "assistant"
        self._hovered = False
        self.bar = RoleBar(self._is_reply)
        self._who = Elide("", "meta", "text", 600)
        policy = QSizePolicy.Policy
        self._who.setSizePolicy(policy.Maximum, policy.Fixed)
        self._when = Label("", "caption", "text3")
        sign = Mark(14) if self._is_reply else Icon("user", 14, "text2")
        self._head = hbox(sign, self._who, self._when, None, self.bar, gap=7)
        self.body = MessageBody()
        self.files = FileChips(removes=False)
        self._frame: QWidget = self.body if self._is_reply else user_card(self.files, self.body)
        self.fold: ReasoningFold | None = None
        self._start = Label(tr("Reading the conversation"), "meta", "text3")
        self.stats = StatsLine()
        self.tail: QWidget | None = None  # error card or incomplete line
        self.editor: GrowingEdit | None = None
        self._editor_card: Card | None = None
        self._column = vbox(self._head, self._frame, self._start, self.stats, gap=9)
        self.setLayout(self._column)
        self.stats.hide()
        self._connect()
        self.set_message(message, place)
        follow(self.retheme)

    def _connect(self) -> None:
        bar = self.bar
        bar.copy.clicked.connect(self.copy)
        bar.edit.clicked.connect(self.begin_edit)
        bar.retry.clicked.connect(self._retry)
        bar.delete.clicked.connect(self._delete)
        bar.left.clicked.connect(self._to_left)
        bar.right.clicked.connect(self._to_right)
        self.stats.split_wanted.connect(self._to_split)
        application = QApplication.instance()
        if isinstance(application, QApplication):
            application.focusChanged.connect(self._on_focus)

    def set_message(self, message: Message, place: Place) -> None:
        """Show the present text, state and figures."""
        self.message, self._place = message, place
        self._who.set_text(tr("You") if not self._is_reply else message.model or tr("Reply"))
        self._when.set_text(clock_text(message.created, place.now))
        self.bar.set_place(place)
        if not self._is_reply:
            self.files.set_files(message.files)
            self.body.set_plain(message.text)
            self.body.setVisible(bool(message.text))
            self._start.hide()
        else:
            self._set_reply(message, place)
        self.retheme()

    def use_for(self, message: Message, place: Place) -> None:
        """Show another message of the same role; nothing of the one before stays."""
        self.end_edit()
        self._hovered = False
        self.bar.reveal(False)
        if self.fold is not None:
            self._column.removeWidget(self.fold)
            self.fold.hide()
            self.fold.deleteLater()
            self.fold = None
        self.stats.trace.setChecked(False)
        self.body.reset()
        self.set_message(message, place)

    @property
    def opened(self) -> Opened:
        """What the person unfolded here."""
        reasoning = self.fold.chosen if self.fold is not None else None
        return Opened(reasoning, self.stats.trace.isChecked())

    def set_opened(self, opened: Opened) -> None:
        """Unfold what was unfolded when this message was last on screen."""
        if self.fold is not None and opened.reasoning is not None:
            self.fold.choose(opened.reasoning)
        self.stats.trace.setChecked(opened.trace)

    def retheme(self) -> None:
        """Name the whole for assistive tools in the present language."""
        who = self._who.text()
        self.setAccessibleName(tr("Message from {who}, {when}", who=who, when=self._when.text()))

    def _set_reply(self, message: Message, place: Place) -> None:
        busy = place.is_busy
        reasoning, text = message.reasoning, message.text
        if reasoning and self.fold is None:
            self.fold = ReasoningFold()
            self._column.insertWidget(1, self.fold)
        if self.fold is not None:
            is_sole = place.is_running and not text
            self.fold.set_reasoning(reasoning, thought_text(message, is_sole), is_sole)
            self.fold.setVisible(bool(reasoning))
        self.body.set_markdown(text, is_done=not place.is_running)
        self.body.setVisible(bool(text))
        waits = tr("Waiting for the model") if place.is_waiting else tr("Reading the conversation")
        self._start.set_text(waits)
        self._start.setVisible(busy and not text and not reasoning)
        has_figures = message.facts.trace is not None and bool(stats_text(message))
        self.stats.setVisible(not busy and has_figures and bool(message.parts))
        if not busy:
            self.stats.set_message(message)
        self._set_tail(message, place)

    def _set_tail(self, message: Message, place: Place) -> None:
        """Below the text: the failure, or why there is no end and how to go on."""
        if self.tail is not None:
            self._column.removeWidget(self.tail)
            self.tail.hide()
            self.tail.deleteLater()
            self.tail = None
        if place.is_busy:
            return
        error = message.facts.error
        words = incomplete_text(message)
        if message.state is MessageState.FAILED and error is not None:
            card = ErrorCard(problem_of(error))
            card.retried.connect(self._retry)
            card.page_wanted.connect(self.page_wanted)
            self.tail = card
        elif words and (place.is_last or message.state is not MessageState.DONE):
            kept = message.facts.usage.reply_tokens if message.parts else 0
            tone = "warn" if message.state is MessageState.INTERRUPTED else "plain"
            count = tr_count("{count} token kept", "{count} tokens kept", kept) if kept else ""
            line = IncompleteLine(words, count, tone, bool(message.parts))
            line.go_on.setVisible(place.is_last)
            line.continued.connect(self._continue)
            line.retried.connect(self._retry)
            self.tail = line
        if self.tail is not None:
            self._column.insertWidget(self._column.indexOf(self.stats), self.tail)

    # --- actions --------------------------------------------------------------------------------

    def copy(self) -> None:
        """Put the text of the message on the clipboard, as it was written."""
        QGuiApplication.clipboard().setText(self.message.text)

    def begin_edit(self) -> None:
        """Replace the text by an edit; Enter keeps, Esc leaves."""
        if self.editor is not None or not self.bar.edit.isEnabled():
            return
        editor = GrowingEdit(tr("Edit message"), most=16)
        keep = Button(tr("Send") if not self._is_reply else tr("Keep"), "primary", small=True)
        leave = Button(tr("Cancel"), small=True)
        note = tr("The version before stays; switch with the arrows.")
        row = hbox(Label(note, "caption", "text3"), None, leave, keep, gap=6)
        self._editor_card = Card(
            vbox(editor, row, gap=8, pad=(12, 9, 8, 8)), border="control", radius=8
        )
        self.editor = editor
        editor.setPlainText(self.message.text)
        editor.moveCursor(editor.textCursor().MoveOperation.End)
        editor.submitted.connect(self._keep_edit)
        editor.cancelled.connect(self._leave_edit)
        keep.clicked.connect(self._keep_edit)
        leave.clicked.connect(self._leave_edit)
        self._frame.hide()
        self._column.insertWidget(self._column.indexOf(self._frame), self._editor_card)
        editor.setFocus(Qt.FocusReason.OtherFocusReason)

    def end_edit(self) -> None:
        """Leave the edit without a change."""
        if self._editor_card is not None:
            self._column.removeWidget(self._editor_card)
            self._editor_card.hide()
            self._editor_card.deleteLater()
        self.editor = self._editor_card = None
        self._frame.show()

    def _leave_edit(self) -> None:
        """The keyboard stays with the message."""
        self.end_edit()
        self.bar.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def _keep_edit(self) -> None:
        text = self.editor.toPlainText() if self.editor is not None else ""
        self._leave_edit()
        if text.strip() and text != self.message.text:
            self.edited.emit(self.message.id, text)

    def _retry(self) -> None:
        self.retried.emit(self.message.id)

    def _continue(self) -> None:
        self.continued.emit(self.message.id)

    def _delete(self) -> None:
        self.deleted.emit(self.message.id)

    def _to_left(self) -> None:
        self.switched.emit(self.message.id, -1)

    def _to_right(self) -> None:
        self.switched.emit(self.message.id, 1)

    def _to_split(self) -> None:
        self.page_wanted.emit("performance")

    # --- hover ----------------------------------------------------------------------------------

    def enterEvent(self, event: QEnterEvent) -> None:
        """Reveal the actions."""
        super().enterEvent(event)
        self._hovered = True
        self.bar.reveal(True)

    def leaveEvent(self, event: QEvent) -> None:
        """Hide the actions unless the keyboard is there."""
        super().leaveEvent(event)
        self._hovered = False
        self.bar.reveal(self._has_keyboard(QApplication.focusWidget()))

    def _on_focus(self, _old: QObject | None, new: QObject | None) -> None:
        self.bar.reveal(self._hovered or self._has_keyboard(new))

    def _has_keyboard(self, widget: QObject | None) -> bool:
        return isinstance(widget, QWidget) and self.bar.isAncestorOf(widget)
