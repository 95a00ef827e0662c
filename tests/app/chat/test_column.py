"""The reading column: what lives, where it stands, and that reading is never disturbed."""

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtWidgets import QWidget

from app.services.chat_records import ChatId, Message, MessageId, ReplyFacts
from app.widgets.chat.column import MessageColumn
from app.widgets.chat.message import MessageView, Place
from app.widgets.look import use
from engine.protocol.messages import Part, Trace

pytestmark = pytest.mark.usefixtures("looks")
BUSY: set[int] = set()


def message(number: int, text: str = "", thought: str = "") -> Message:
    role = "user" if number % 2 else "assistant"
    parts = tuple(
        Part(kind=kind, text=words)
        for kind, words in (("reasoning", thought), ("text", text or f"Message {number}."))
        if words
    )
    trace = Trace(decode_s=1.0, decode_tokens_per_s=9.0, hit_share=0.5, fill_share=0.5)
    facts = ReplyFacts(trace=trace) if role == "assistant" else ReplyFacts()
    return Message(MessageId(number), ChatId(1), None, role, parts, "m", facts=facts)


def chat(count: int) -> list[Message]:
    return [message(n, "Words of it. " * (n % 23 + 1)) for n in range(1, count + 1)]


def turns(count: int = 40) -> None:
    for _ in range(count):
        QCoreApplication.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


@pytest.fixture
def column(qtbot):
    """A column of 700 x 600 on screen; `BUSY` holds the ids of running replies."""
    BUSY.clear()
    made = MessageColumn(lambda m: Place(is_running=m.id in BUSY))
    qtbot.addWidget(made)
    made.resize(700, 600)
    made.show()
    return made


def bar(column):
    return column.verticalScrollBar()


def in_sight(column) -> dict[int, int]:
    """Return where each message that can be seen stands."""
    room = column.viewport().height()
    return {
        n: view.y()
        for n, view in column.views.items()
        if view.y() < room and view.y() + view.height() > 0
    }


def test_wheel_upwards_through_estimates_then_every_step_moves_by_itself_only(column):
    """Messages built above have other heights than estimated; what is in sight never jumps."""
    column.open(chat(400))
    turns()
    for _ in range(150):
        before = in_sight(column)
        bar(column).setValue(bar(column).value() - 60)
        turns(2)
        after = in_sight(column)
        moved = {after[n] - before[n] for n in before.keys() & after.keys()}
        assert moved == {60}
    assert min(column.views) < 380  # it went somewhere


def test_views_when_scrolled_away_then_used_again_for_others(column, monkeypatch):
    """Twenty screens up and down make no more widgets than some screens hold."""
    made = []
    build = column._made
    monkeypatch.setattr(column, "_made", lambda m: made.append(m.id) or build(m))
    column.open(chat(600))
    turns()
    for place in range(0, bar(column).maximum(), 500):
        bar(column).setValue(place)
        turns(4)
    assert 0 < len(made) < 60
    shown = {view.message.id for view in column.findChildren(MessageView) if view.isVisible()}
    assert shown == set(column.views)


def test_view_when_used_again_then_nothing_of_the_message_before_stays(column):
    """Text, reasoning, trace, edit and hover belong to the message that was shown."""
    view = MessageView(message(2, "old **text**", "old thought"), Place(versions=3))
    view.stats.trace.click()
    view.fold.head.click()
    view.begin_edit()
    view.use_for(message(4, "new"), Place())
    assert view.body.widgets[0].text == "new"
    assert view.fold is None
    assert view.stats.card is None
    assert view.editor is None
    assert view.bar.count.isHidden()
    view.use_for(message(4, "new"), Place())
    assert [w.text for w in view.body.widgets] == ["new"]
    view.deleteLater()


def test_unfolded_parts_when_scrolled_away_and_back_then_unfolded_again(column):
    """The trace and the reasoning that a person opened are open when they come back."""
    messages = chat(300)
    messages[149] = message(150, "answer", "a thought")
    column.open(messages)
    view = column.reveal(150)
    view.fold.head.click()
    view.stats.trace.click()
    column.jump_to_end()
    turns()
    assert 150 not in column.views
    view = column.reveal(150)
    assert view.fold.head.isChecked()
    assert view.stats.card is not None
    assert not column.reveal(152).stats.trace.isChecked()


def test_edit_when_scrolled_away_then_what_was_typed_is_kept(column):
    """A message that is being edited keeps its widget."""
    column.open(chat(300))
    view = column.reveal(151)
    view.begin_edit()
    view.editor.setPlainText("half a sentence")
    column.jump_to_end()
    turns()
    assert column.views[151] is view
    assert view.editor.toPlainText() == "half a sentence"


def test_reply_growing_out_of_sight_then_no_widget_is_touched(column):
    """Scrolled away from a running reply, its deltas change a sum and nothing in sight."""
    messages = chat(300)
    BUSY.add(300)
    column.open(messages)
    turns()
    bar(column).setValue(bar(column).maximum() // 3)
    turns()
    assert 300 not in column.views
    before, high = in_sight(column), bar(column).maximum()
    column.update_message(message(300, "much more of it\n\n" * 80))
    assert in_sight(column) == before
    assert bar(column).maximum() > high
    assert 300 not in column.views
    column.to_end.click()
    turns()
    assert column.is_at_end
    assert len(column.views[300].body.widgets) == 80


def test_messages_above_when_they_come_and_go_then_the_place_is_kept(column):
    """Another version in the middle leaves its turn where it stands, also from the end."""
    messages = chat(40)
    column.open(messages)
    turns()
    view = column.reveal(31)
    where = view.y()
    other = [*messages[:30], *(message(n, "Another. " * 40) for n in range(131, 139))]
    column.set_messages(other)
    turns()
    assert column.views[131].y() == where
    column.set_messages(messages)
    turns()
    assert column.views[31].y() == where


def test_message_at_the_end_when_added_then_it_is_followed(column):
    """What the person just sent is in sight, even if they had scrolled away."""
    messages = chat(60)
    column.open(messages)
    turns()
    bar(column).setValue(0)
    turns()
    BUSY.add(62)
    column.set_messages([*messages, message(61), message(62, "…")])
    turns()
    assert column.is_at_end
    assert bar(column).value() == bar(column).maximum()
    BUSY.add(162)
    column.set_messages([*messages, message(61), message(162, "again")])  # answered anew
    turns()
    assert column.is_at_end


def test_foot_then_it_stands_below_the_last_message(column):
    """Cards below the conversation scroll with it and are seen at the end."""
    column.open(chat(30))
    card = QWidget()
    card.setFixedHeight(90)
    column.foot.addWidget(card)
    turns()
    last = column.views[30]
    assert column._foot.y() == last.y() + last.height() + 14
    assert column._foot.y() + 90 <= column.viewport().height()
    column.foot.removeWidget(card)
    card.deleteLater()


@pytest.mark.parametrize("change", ["zoom", "width"])
def test_heights_when_zoom_or_width_change_then_measured_anew(column, change):
    """The end stays the end, and a place in the middle stays that place."""
    column.open(chat(200))
    turns()
    if change == "zoom":
        use(zoom=1.4)
    else:
        column.resize(420, 600)
    turns()
    assert bar(column).value() == bar(column).maximum()
    assert column.views[200].y() + column.views[200].height() <= column.viewport().height()
    view = column.reveal(100)
    where = view.y()
    if change == "zoom":
        use(zoom=1.0)
    else:
        column.resize(700, 600)
    turns()
    assert column.views[100].y() == where


def tab_order(column) -> list[int]:
    """Return the messages in the order in which Tab visits them, from the first one on."""
    first = column.views[min(column.views)].bar.left
    found, widget = [], first
    while True:
        owner = next((n for n, view in column.views.items() if view.isAncestorOf(widget)), None)
        if owner is not None and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            found += [owner] if found[-1:] != [owner] else []
        widget = widget.nextInFocusChain()
        if widget is first:
            return found


def test_tab_then_it_goes_downwards_whichever_was_built_first(column):
    """After opening at the end, where the last message is built first, and after scrolling."""
    column.open(chat(80))
    turns()
    assert tab_order(column) == sorted(column.views)
    bar(column).setValue(bar(column).maximum() // 2)
    turns()
    assert tab_order(column) == sorted(column.views)


def test_hidden_column_then_it_builds_nothing_until_it_is_shown(column):
    """A chat behind another page costs nothing."""
    column.hide()
    column.open(chat(100))
    turns()
    assert column.views == {}
    column.show()
    turns()
    assert 100 in column.views


def test_unknown_message_then_nothing_is_revealed(column):
    """A search hit on another branch is no error."""
    column.open(chat(3))
    assert column.reveal(99) is None
    assert column.last_view("user").message.id == 3
    column.open([])
    assert column.last_view("user") is None
