"""The messages of a conversation in a reading column that scrolls: only some screens are alive.

Of a chat of thousands, the messages in sight and a screen above and below have widgets; widgets
that are scrolled away are used again. All others are a height: measured before, or estimated. The
place a person reads stays put whatever changes its height; at the end the column follows a growing
reply until the person scrolls away.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from app.services.chat_records import Message
from app.theme import SIZE, follow, px, theme
from app.widgets import Button
from app.widgets.chat.heights import Heights, estimate
from app.widgets.chat.message import MessageView, Opened, Place
from app.widgets.focus import tab_stops
from app.widgets.layout import holder, vbox
from app.wording import tr

NEAR_END = 24  # px: this close counts as "at the end"
GAP, SIDE, ABOVE, BELOW = 14, 32, 8, 16  # px: between messages and around the column
LEAST = 160  # px: no narrower, whatever the window does
STEP = 48  # px: one notch of the wheel or arrow of the bar
SPARES = 8  # widgets kept for use again, of each role


class MessageColumn(QAbstractScrollArea):
    """Shows a path of messages. `place_of` says what each widget must know beside its message.

    Attributes:
        views: the live widgets by message id.
        foot: layout for cards below the last message.

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
        self._index: dict[int, int] = {}
        self._heights = Heights()
        self.views: dict[int, MessageView] = {}
        self._spare: dict[str, list[MessageView]] = {"user": [], "assistant": []}
        self._opened: dict[int, Opened] = {}  # what the person unfolded in messages without widget
        self._sticks = True
        self._anchor = (0, 0)  # index of a message and where its top stands in the view
        self._own_move = False
        self._tabs_due = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.viewport().setAutoFillBackground(False)
        self.foot = vbox(gap=10)
        self._foot = holder(self.foot)
        self._foot.setParent(self.viewport())
        self._foot.show()
        self.to_end = Button(tr("Jump to the end"), "secondary", "down", small=True)
        self.to_end.setParent(self)
        self.to_end.hide()
        self.to_end.clicked.connect(self.jump_to_end)
        self._more = QTimer(self)
        self._more.setSingleShot(True)
        self._more.setInterval(0)
        self._more.timeout.connect(self._fill_near)
        follow(self.rezoom)

    def rezoom(self) -> None:
        """Take gaps and estimates from the present zoom."""
        self.verticalScrollBar().setSingleStep(px(STEP))
        self._estimate_all()
        self._place_button()

    # --- messages -------------------------------------------------------------------------------

    def open(self, messages: Sequence[Message]) -> None:
        """Show another conversation, at its end."""
        self._opened.clear()
        for message_id in tuple(self.views):
            self._retire(message_id, keep=False)
        self._take(messages)
        self._heights = Heights(self._estimates(self._messages))
        self._stick()
        self._lay_out()
        self._fill()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Show the same conversation after messages came, went or were switched.

        A message at the end, or a reply that begins, is followed; any other change leaves the
        first message that differs where it stands.
        """
        old, fresh = self._messages, list(messages)
        same = 0
        while same < min(len(old), len(fresh)) and old[same].id == fresh[same].id:
            same += 1
        if not self._sticks or same < len(old):
            self._hold(min(same, max(0, len(fresh) - 1)))
        for gone in old[same:]:
            self._retire(gone.id, keep=False)
        self._take(fresh)
        self._heights.replace_from(same, self._estimates(fresh[same:]))
        for message in fresh[:same]:
            self._show(message)
        is_new = len(fresh) > same
        if is_new and (same == len(old) or self._place_of(fresh[-1]).is_busy):
            self._stick()
        self._lay_out()
        self._fill()
        self._note_place()

    def update_message(self, message: Message) -> None:
        """Show the present state of one message."""
        index = self._index.get(message.id)
        if index is None:
            return
        self._messages[index] = message
        if not self._show(message):
            self._heights.set(index, *self._estimates([message]))
            self._lay_out()

    def update_places(self) -> None:
        """Show anew who is last, running and waiting."""
        for message in self._messages[-2:]:
            self._show(message)

    def last_view(self, role: str) -> MessageView | None:
        """Return the last message of a role, brought into view, or None."""
        for message in reversed(self._messages):
            if message.role == role:
                return self.reveal(message.id)
        return None

    def reveal(self, message_id: int) -> MessageView | None:
        """Scroll to a message if it is not whole in view. Returns its widget, None = not here."""
        index = self._index.get(message_id)
        if index is None:
            return None
        view = self.views.get(message_id) or self._build(index)
        self._lay_out()
        top, room = self._top(index) - self._value, self.viewport().height()
        if top < 0 or top + view.height() > room:
            self._anchor = (index, min(px(STEP), max(0, room - view.height())))
            self._sticks = False
            self._lay_out()
            self._note_place()
        self._fill()
        return view

    def _take(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self._index = {message.id: place for place, message in enumerate(self._messages)}

    def _show(self, message: Message) -> bool:
        """Bring a widget up to date. Returns whether the message has one."""
        view = self.views.get(message.id)
        if view is not None:
            view.set_message(message, self._place_of(message))
        return view is not None

    # --- widgets come and go --------------------------------------------------------------------

    def _build(self, index: int) -> MessageView:
        message = self._messages[index]
        spare = self._spare[message.role]
        if spare:
            view = spare.pop()
            view.use_for(message, self._place_of(message))
        else:
            view = self._made(message)
        view.set_opened(self._opened.pop(message.id, Opened()))
        self.views[message.id] = view
        self._tabs_due = True
        view.resize(self._width, view.height())
        view.show()
        return view

    def _made(self, message: Message) -> MessageView:
        view = MessageView(message, self._place_of(message))
        view.edited.connect(self.edited)
        view.retried.connect(self.retried)
        view.continued.connect(self.continued)
        view.deleted.connect(self.deleted)
        view.switched.connect(self.switched)
        view.page_wanted.connect(self.page_wanted)
        view.setParent(self.viewport())
        return view

    def _retire(self, message_id: int, keep: bool = True) -> None:
        """Take a message's widget away, to be used again; `keep` what is unfolded in it."""
        view = self.views.pop(message_id, None)
        if view is None:
            return
        if keep and view.opened != Opened():
            self._opened[message_id] = view.opened
        view.hide()
        spare = self._spare[view.message.role]
        if len(spare) < SPARES:
            spare.append(view)
        else:
            view.deleteLater()

    def _fill(self) -> None:
        """Build all that is in sight at once, then a screen above and below, one at a turn."""
        if not self._messages or not self.isVisible():
            return
        while (index := self._missing_in_sight()) is not None:
            self._build(index)
            self._lay_out()
        self._prune()
        if self._missing_near() is not None:
            self._more.start()
        elif self._tabs_due:
            self._tabs_due = False
            self._order_tabs()

    def _fill_near(self) -> None:
        """Build one message that is not in sight yet."""
        index = self._missing_near() if self._messages and self.isVisible() else None
        if index is not None:
            self._build(index)
            self._lay_out()
        self._fill()

    def _missing_in_sight(self) -> int | None:
        """Return a message in sight that has no widget, or None; at the end, from below."""
        first, last = self._reach(0)
        places = range(last, first - 1, -1) if self._sticks else range(first, last + 1)
        return next((i for i in places if self._messages[i].id not in self.views), None)

    def _missing_near(self) -> int | None:
        """Return a message within a screen of the view that has no widget, or None."""
        first, last = self._reach(0)
        upper, lower = self._reach(self.viewport().height())
        places = (*range(first - 1, upper - 1, -1), *range(last + 1, lower + 1))
        return next((i for i in places if self._messages[i].id not in self.views), None)

    def _order_tabs(self) -> None:
        """Let Tab go from message to message downwards, whichever was built first."""
        views = [self.views[n] for n in sorted(self.views, key=self._index.__getitem__)]
        stops = [stop for view in views for stop in tab_stops(view)]
        for before, after in pairwise(stops):
            QWidget.setTabOrder(before, after)

    def _prune(self) -> None:
        """Retire widgets more than two screens away, unless the person works in them."""
        upper, lower = self._reach(2 * self.viewport().height())
        focus = QApplication.focusWidget()
        for message_id, view in tuple(self.views.items()):
            is_used = view.editor is not None or (focus is not None and view.isAncestorOf(focus))
            if not upper <= self._index[message_id] <= lower and not is_used:
                self._retire(message_id)

    def _reach(self, beyond: int) -> tuple[int, int]:
        """Return the first and last message within `beyond` px of the view."""
        top = self._value - px(ABOVE)
        bottom = top + self.viewport().height()
        return self._heights.at(top - beyond), self._heights.at(bottom + beyond)

    # --- places ---------------------------------------------------------------------------------

    @property
    def _value(self) -> int:
        return self.verticalScrollBar().value()

    @property
    def _width(self) -> int:
        room = self.viewport().width() - 2 * px(SIDE)
        return max(px(LEAST), min(px(SIZE["chatColumn"]), room))

    def _top(self, index: int) -> int:
        """Return where a message begins, in px from the top of the whole column."""
        return px(ABOVE) + self._heights.top(index)

    def _estimates(self, messages: Sequence[Message]) -> list[int]:
        """Return about how much room messages take, with the gap below each."""
        zoom = theme().zoom
        width = round(self._width / zoom)
        return [round(zoom * (estimate(message.text, width) + GAP)) for message in messages]

    def _estimate_all(self) -> None:
        """The width or the zoom is another: what has no widget is estimated anew."""
        self._heights.replace_from(0, self._estimates(self._messages))
        self._lay_out()
        self._more.start()

    def _lay_out(self) -> None:
        """Measure what is alive, keep the place, and put all widgets where they belong."""
        width = self._width
        for message_id, view in self.views.items():
            height = _height_at(view, width)
            view.resize(width, height)
            self._heights.set(self._index[message_id], height + px(GAP))
        foot = _height_at(self._foot, width) if self.foot.count() else 0
        self._foot.resize(width, foot)
        room = self.viewport().height()
        bar = self.verticalScrollBar()
        self._own_move = True
        bar.setPageStep(room)
        bar.setRange(0, max(0, self._top(len(self._heights)) + foot + px(BELOW) - room))
        index, above = self._anchor
        is_free = not self._sticks and self._messages
        bar.setValue(self._top(index) - above if is_free else bar.maximum())
        self._own_move = False
        self._position()

    def _position(self) -> None:
        x = max(px(SIDE), (self.viewport().width() - self._width) // 2)
        for message_id, view in self.views.items():
            view.move(x, self._top(self._index[message_id]) - self._value)
        self._foot.move(x, self._top(len(self._heights)) - self._value)

    def showEvent(self, event: QShowEvent) -> None:
        """Build what nobody could see before."""
        super().showEvent(event)
        self._lay_out()
        self._fill()

    # --- scrolling ------------------------------------------------------------------------------

    @property
    def is_at_end(self) -> bool:
        """Whether the view follows a growing reply."""
        return self._sticks

    def jump_to_end(self) -> None:
        """Show the last line and stay there."""
        self._stick()
        self._lay_out()
        self._fill()

    def _stick(self) -> None:
        self._sticks = True
        self.to_end.hide()

    def _hold(self, index: int) -> None:
        """Leave a message where it stands in the view."""
        self._sticks = False
        self._anchor = (index, self._top(min(index, len(self._heights))) - self._value)

    def _note_place(self) -> None:
        """The person moved: remember whether at the end, and else what stands where."""
        self._sticks = self._value >= self.verticalScrollBar().maximum() - px(NEAR_END)
        if not self._sticks and self._messages:
            first, last = self._reach(0)
            alive = (i for i in range(first, last + 1) if self._messages[i].id in self.views)
            self._hold(next(alive, first))  # what is alive does not change its height at once
        self.to_end.setVisible(not self._sticks)

    def scrollContentsBy(self, _dx: int, dy: int) -> None:
        """Move what is alive; what comes into sight is built."""
        self.viewport().scroll(0, dy)
        if self._own_move:
            return
        self._note_place()
        self._position()
        self._fill()

    def viewportEvent(self, event: QEvent) -> bool:
        """A widget asks for another height: lay out before anything is painted."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._lay_out()
            self._fill()
            return True
        return super().viewportEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Take the new width; keep the button in its corner."""
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._estimate_all()
        else:
            self._lay_out()
            self._more.start()
        self._place_button()

    def _place_button(self) -> None:
        self.to_end.adjustSize()
        x = (self.width() - self.to_end.width()) // 2
        self.to_end.move(x, self.height() - self.to_end.height() - px(10))
        self.to_end.raise_()


def _height_at(widget: QWidget, width: int) -> int:
    """Return how high a widget is at a width; some do not depend on it."""
    return (
        widget.heightForWidth(width) if widget.hasHeightForWidth() else widget.sizeHint().height()
    )
