"""The messages of a conversation in a reading column that scrolls.

Builds only the last messages, and older ones ahead of the person who scrolls up, so that a chat of
thousands opens at once. Stays at the end while a reply grows, unless the person has scrolled away.
"""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout

from app.services.chat_records import Message
from app.theme import SIZE, follow, px
from app.widgets import Button
from app.widgets.chat.message import MessageView, Place
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import tr

FIRST = 8  # messages built when a chat is opened: more than a screen
LOT = 4  # messages built per turn of the event loop after that
NEAR_END = 24  # px: this close counts as "at the end"
AHEAD = 1200  # px: older messages are built until so much lies above the view
GAP = 14


class MessageColumn(QScrollArea):
    """Shows a path of messages. `place_of` says what each widget must know beside its message.

    Signals: those of `MessageView`, handed on.
    """

    edited = Signal(int, str)
    retried = Signal(int)
    continued = Signal(int)
    deleted = Signal(int)
    switched = Signal(int, int)
    page_wanted = Signal(str)

    def __init__(self, place_of: Callable[[Message], Place]) -> None:
        super().__init__()
        self._place_of = place_of
        self._messages: list[Message] = []
        self._first = 0  # index of the first message that has a widget
        self.views: dict[int, MessageView] = {}
        self._sticks = True
        self._own_move = False
        self._anchor: tuple[MessageView, int] | None = None  # stays put while others change
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._column = QVBoxLayout()
        self._column.setContentsMargins(0, 0, 0, 0)
        self.foot = vbox(gap=10)  # cards below the last message
        inner = self._inner = holder(vbox(self._column, self.foot, None, gap=GAP))
        # A long name or wide card must not push the column out of the window (case G-22).
        fixed(inner, max_width=SIZE["chatColumn"], min_width=160)
        content = holder(hbox("flex", (inner, 1), "flex", gap=0, pad=(32, 8, 32, 16)))
        content.setObjectName("scrolled")
        self.setWidget(content)
        self.viewport().setAutoFillBackground(False)
        self.to_end = Button(tr("Jump to the end"), "secondary", "down", small=True)
        self.to_end.setParent(self)
        self.to_end.hide()
        self.to_end.clicked.connect(self.jump_to_end)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_moved)
        bar.rangeChanged.connect(self._on_range)
        self._older = QTimer(self)
        self._older.setSingleShot(True)
        self._older.setInterval(0)
        self._older.timeout.connect(self._build_older)
        follow(self.rezoom)

    def rezoom(self) -> None:
        """Take gaps from the present zoom."""
        self._column.setSpacing(px(GAP))
        self._place_button()

    # --- messages -------------------------------------------------------------------------------

    def open(self, messages: Sequence[Message]) -> None:
        """Show another conversation, at its end."""
        for view in list(self.views.values()):
            self._remove(view)
        self._messages = list(messages)
        self._first = max(0, len(self._messages) - FIRST)
        self._build(self._messages[self._first :])
        self.jump_to_end()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Show the same conversation after messages came, went or were switched."""
        old_ids = [message.id for message in self._messages[self._first :]]
        same = 0
        fresh = list(messages)[self._first :]
        while same < min(len(old_ids), len(fresh)) and old_ids[same] == fresh[same].id:
            same += 1
        for gone in old_ids[same:]:
            self._remove(self.views[gone])
        self._messages = list(messages)
        self._first = min(self._first, max(0, len(messages) - 1))
        for message in fresh[:same]:
            self.update_message(message)
        self._build(fresh[same:])
        if len(fresh) > same:
            self._stick()

    def update_message(self, message: Message) -> None:
        """Show the present state of one message, if it is on screen."""
        view = self.views.get(message.id)
        if view is not None:
            view.set_message(message, self._place_of(message))

    def update_places(self) -> None:
        """Show anew who is last, running and waiting."""
        for message in self._messages[-2:]:
            if message.id in self.views:
                view = self.views[message.id]
                view.set_message(view.message, self._place_of(view.message))

    def last_view(self, role: str) -> MessageView | None:
        """Return the last message of a role, or None."""
        for message in reversed(self._messages):
            if message.role == role:
                return self.views.get(message.id)
        return None

    def _build(self, messages: Sequence[Message], at_top: bool = False) -> None:
        for place, message in enumerate(messages):
            view = MessageView(message, self._place_of(message))
            view.edited.connect(self.edited)
            view.retried.connect(self.retried)
            view.continued.connect(self.continued)
            view.deleted.connect(self.deleted)
            view.switched.connect(self.switched)
            view.page_wanted.connect(self.page_wanted)
            self.views[message.id] = view
            if at_top:
                self._column.insertWidget(place, view)
            else:
                self._column.addWidget(view)

    def _remove(self, view: MessageView) -> None:
        self.views.pop(view.message.id, None)
        self._column.removeWidget(view)
        view.hide()
        view.deleteLater()

    def _build_older(self) -> None:
        if self._first == 0:
            return
        start = max(0, self._first - LOT)
        older = self._messages[start : self._first]
        self._first = start
        self._build(older, at_top=True)
        for message in older:
            self.views[message.id].show()  # the layout would show them one turn later
        self._settle()

    def _settle(self) -> None:
        """Lay everything out now, so that nothing is painted at a place it will not keep."""
        for widget in (self._inner, self.widget()):
            layout = widget.layout() if widget is not None else None
            if layout is not None:
                layout.activate()
        QCoreApplication.sendEvent(self, QEvent(QEvent.Type.LayoutRequest))

    # --- scrolling ------------------------------------------------------------------------------

    @property
    def is_at_end(self) -> bool:
        """Whether the view follows a growing reply."""
        return self._sticks

    def jump_to_end(self) -> None:
        """Show the last line and stay there."""
        self._stick()
        self._move(self.verticalScrollBar().maximum())

    def _stick(self) -> None:
        self._sticks = True
        self.to_end.hide()

    def _move(self, value: int) -> None:
        self._own_move = True
        self.verticalScrollBar().setValue(value)
        self._own_move = False

    def _on_range(self, _low: int, high: int) -> None:
        """The content has another height: stay where the person is."""
        if self._sticks:
            self._move(high)
        elif self._anchor is not None and self._anchor[0] in self.views.values():
            view, above = self._anchor
            self._move(self._place_of_view(view) - above)
        self._ask_older()

    def _place_of_view(self, view: MessageView) -> int:
        content = self.widget()
        return view.mapTo(content, QPoint(0, 0)).y() if content is not None else 0

    def _top_view(self) -> tuple[MessageView, int] | None:
        """Return the first message in view and where its top stands in it."""
        top = self.verticalScrollBar().value()
        for message in self._messages[self._first :]:
            view = self.views[message.id]
            place = self._place_of_view(view)
            if place + view.height() > top:
                return view, place - top
        return None

    def _on_moved(self, value: int) -> None:
        if not self._own_move:
            high = self.verticalScrollBar().maximum()
            self._sticks = value >= high - px(NEAR_END)
            self._anchor = None if self._sticks else self._top_view()
        self.to_end.setVisible(not self._sticks)
        self._ask_older()

    def _ask_older(self) -> None:
        if self._first and self.verticalScrollBar().value() < px(AHEAD):
            self._older.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the button in its corner."""
        super().resizeEvent(event)
        self._place_button()

    def _place_button(self) -> None:
        self.to_end.adjustSize()
        x = (self.width() - self.to_end.width()) // 2
        self.to_end.move(x, self.height() - self.to_end.height() - px(10))
        self.to_end.raise_()
